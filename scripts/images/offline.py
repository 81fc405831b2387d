"""What a machine without a network needs beside the images: the wheels of the tools, and the kit itself.

    tools/           the files of the groups `installer` and `run`, for this Python or for those that are named
    kit.tar          this clone with its newest commit alone, so that results know where they come from

`tar xf kit.tar && cd llm-repro && make restore ARCHIVES=…` sets all of it up there.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.reasons import first_line
from scripts.containers import programs
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.pins import Pins

TOOLS, KIT, FOLDER = "tools", "kit.tar", "llm-repro"

#: The groups of tools that a measurement needs.
GROUPS = ("installer", "run")

#: The platforms of wheels that Linux machines of the last years take.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64")


def keep_tools(loaded: Pins, where: Path, pythons: Sequence[str] = ()) -> Path:
    """Fetch the wheels of the tools for some versions of Python ("3.12"), this one where none is named; needs the network. Raises KitError."""
    target = where / TOOLS
    target.mkdir(parents=True, exist_ok=True)
    for version in pythons or (f"{sys.version_info.major}.{sys.version_info.minor}",):
        for group in GROUPS:
            command = [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", version, "--dest", str(target)),
                *(f"--platform={platform}" for platform in PLATFORMS),
                *("--requirement", str(loaded.host_lock(group))),
            ]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                why = programs.last_line(done)
                raise KitError(
                    f"the tools for Python {version} could not be fetched: {why}; type the same again once the network answers, or another version in PYTHONS"
                )
    return target


def keep_kit(where: Path, root: Path = ROOT) -> Path:
    """Pack the clone's newest commit with its history cut off; changes that are not committed stay behind. Raises KitError."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work, FOLDER)
        # Settings of the user may name another remote, and a folder with hooks of the user's.
        command = ["git", "clone", "--quiet", "--template=", "--origin", "origin", "--depth", "1", root.resolve().as_uri(), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise KitError(f"{root} cannot be cloned: {first_line(done.stderr)}; run this in a clone of the kit")
        subprocess.run(["git", "-C", str(copy), "remote", "remove", "origin"], check=True, capture_output=True)
        for name in ("logs", "refs/remotes"):  # the log of the clone names this place and its user; `git remote remove` leaves a broken reference
            shutil.rmtree(copy / ".git" / name, ignore_errors=True)
        partial = where / f".partial-{KIT}"
        try:
            with tarfile.open(partial, "w") as packed:
                packed.add(copy, FOLDER, filter=_of_nobody)
            partial.replace(where / KIT)
        finally:
            partial.unlink(missing_ok=True)
    return where / KIT


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member that names no user of this machine. Where root unpacks it, it is root's: git reads no clone of another user."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
