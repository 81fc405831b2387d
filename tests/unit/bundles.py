"""A kit with three of its committed runs, in a repository of its own, and what becomes of its bundle."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

from scripts.machine import checksums
from scripts.share import BUNDLE, bundle

ROOT = Path(__file__).resolve().parents[2]


def make_kit(folder: Path) -> Path:
    for name in bundle.files():
        if "runs" not in name.parts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for report, count in (("reports", 3), ("reports/without-containers", 1)):
        for run in sorted((ROOT / report / "runs").glob("inference-tools.layer-parallel.*"))[:count]:
            shutil.copytree(run, folder / report / "runs" / run.name)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


def unpack(path: Path, folder: Path) -> Path:
    """Into a folder, as `tar -x` does; what it holds was packed here."""
    subprocess.run(["tar", "-xzf", str(path), "-C", str(folder)], check=True)
    return folder / BUNDLE


def sum_anew(folder: Path) -> None:
    """What everybody can do who changes a bundle."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != checksums.NAME)
    sums = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (folder / checksums.NAME).write_text(checksums.text(sums))


def repack(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:  # nobody keeps it
        archive.add(folder, BUNDLE)
    return path
