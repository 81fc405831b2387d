"""Images for Apptainer: SIF files."""

from pathlib import Path

from scripts.containers import apptainer, programs
from scripts.errors import KitError
from scripts.images.image_files import Kind

#: gzip, which every Apptainer reads, and fast: the default level takes three times as long for a tenth less.
COMPRESSION = "-Xcompression-level 1"


def build(layout: Path) -> Path:
    """The SIF of the only image of a layout, beside it. Raises KitError where Apptainer builds none."""
    made = layout.parent / "made.sif"
    words = ["--quiet", "build", "--force", "--disable-cache", "--mksquashfs-args", COMPRESSION, str(made), f"oci:{layout}"]
    done = apptainer.call(words, APPTAINER_TMPDIR=str(layout.parent))  # a node's own /tmp often has no room for an image
    if done.returncode != 0:
        raise KitError(f"Apptainer could not build the SIF: {programs.last_line(done)}")
    if not made.is_file():
        raise KitError(f"Apptainer says that it built {made.name} and left no such file; see `apptainer version`, the kit needs 1.4 or newer")
    return made


KIND = Kind("apptainer", "SIF", "sif", "KIT_SIF", "sif_sha256", build, apptainer.output_of)
