"""python -m scripts.commands.tools GROUP: install a group of the tools into .venv; pins.toml names the groups.

The Makefile runs this program with the user's own Python, so it needs only the standard library. `run` makes a new .venv; the other groups
are added to it. pip installs uv, and uv installs the other tools, all by their hashes. On a machine without a network they come from an
archive.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from scripts import pins, surroundings
from scripts.commands import clean
from scripts.errors import KitError, PreflightError, UsageError, run_command
from scripts.machine import installs, locks
from scripts.paths import ROOT
from scripts.pins import requirement_files, uv

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"

HASHED = ("--require-hashes", "--no-deps", "--only-binary", ":all:")


def kept_files(loaded: pins.Pins) -> list[str]:
    """Options that make pip and uv take the tools from an archive; [] where ARCHIVES does not hold them for this Python.

    An archive may be older than the locks. It is no source then, and a line says so: without an index nothing else could be installed.
    """
    folder = Path(surroundings.current().text("ARCHIVES") or ROOT / "archives").absolute() / "tools"
    tag = f"-cp{sys.version_info.major}{sys.version_info.minor}-"
    names = [path.name for path in folder.glob("*.whl") if any(part in path.name for part in (tag, "-abi3-", "-py2", "-py3"))]
    if not any(name.startswith("numpy-") for name in names):
        return []
    held = {(requirement_files.normalized(name.split("-")[0]), name.split("-")[1]) for name in names}
    locks = [loaded.host_lock(group).read_text(encoding="utf-8") for group in ("installer", "run")]
    lacking = [f"{name} {version}" for lock in locks for name, version in requirement_files.versions(lock).items() if (name, version) not in held]
    if lacking:
        print(f"{folder} has no {lacking[0]}, so the tools come from the network; make archive ONLY=tools would keep them", file=sys.stderr)
    return [] if lacking else ["--no-index", "--find-links", str(folder)]


def install(group: str) -> None:
    """Install a group unless it is installed.

    Raises KitError with the message of pip or uv, and PreflightError where a command of the kit runs with the tools that would be replaced.
    """
    loaded = pins.load(keys_checked=False)
    known = loaded.host["groups"]
    if group not in known:
        raise UsageError(f"there is no group of tools {group!r}, allowed are {', '.join(known)}; try python -m scripts.commands.tools run")
    if VENV.is_symlink():  # venv --clear would empty what the link leads to, and only then refuse the link
        raise UsageError(f"{VENV} is a link to {VENV.resolve()}, allowed is a folder of its own; type rm {VENV} and the same again")
    if _is_current(group, loaded):
        return
    with locks.held(ROOT / ".venv.lock", why="another make installs tools"):
        if not _is_current(group, loaded):
            with clean.not_in_use(VENV / clean.IN_USE.name) if group == "run" else contextlib.nullcontext():
                _install(group, loaded)


def _install(group: str, loaded: pins.Pins) -> None:
    about = loaded.host["groups"][group]
    print(f"installing {about['summary']} into .venv, once: {installs.sizes(about['download_mb'], about['disk_mb'])}", file=sys.stderr)
    began = time.monotonic()
    source = kept_files(loaded) if group == "run" else []
    if group == "run":
        _make_environment(loaded.host_lock("installer"), source)
    _fill(loaded.host_lock(group), about["disk_mb"], source)
    _mark(VENV / f".{group}", _newest_lock_ns(group, loaded))
    print(f"installed in {time.monotonic() - began:.0f} s", file=sys.stderr)


def _is_current(group: str, loaded: pins.Pins) -> bool:
    """Is the group installed from its present lock?"""
    marker = VENV / f".{group}"
    return marker.exists() and marker.stat().st_mtime_ns > _newest_lock_ns(group, loaded)


def _newest_lock_ns(group: str, loaded: pins.Pins) -> int:
    """When the locks of a group were last changed; the group run includes the installer itself."""
    groups = ("installer", group) if group == "run" else (group,)
    return max(loaded.host_lock(one).stat().st_mtime_ns for one in groups)


def _mark(marker: Path, locked_ns: int) -> None:
    """Mark a group as installed now, or after its lock where that is from the future: a clock that was ahead would have it installed each time."""
    now_ns = max(time.time_ns(), locked_ns + 10**9)
    marker.touch()
    os.utime(marker, ns=(now_ns, now_ns))


def _make_environment(lock: Path, source: list[str]) -> None:
    made = installs.run("making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)], surroundings.current().for_installers)
    if made.returncode != 0:
        raise PreflightError(f"{sys.executable} cannot make a virtual environment; on Debian and Ubuntu type apt-get install python3-venv")
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *source, *HASHED, "--requirement", str(lock)]
    _must_work(installs.run("fetching uv", command, surroundings.current().for_installers))


def _fill(lock: Path, disk_mb: int, source: list[str]) -> None:
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(PYTHON), *source, *HASHED, "--requirement", str(lock)]
    settings = uv.settings_of_pip(str(PYTHON)) | uv.trust() | uv.SETTINGS
    _must_work(installs.run("installing", command, surroundings.current().for_installers | settings, disk_mb))


def _must_work(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise KitError(f"the tools could not be installed: {uv.reason(done)}. Look at the network and type the same again")


def main() -> None:
    surroundings.use(os.environ)
    if len(sys.argv) != 2:
        raise UsageError("type python -m scripts.commands.tools GROUP, for example python -m scripts.commands.tools run")
    install(sys.argv[1])


if __name__ == "__main__":
    run_command(main)
