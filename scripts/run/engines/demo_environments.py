"""The demo's environments: hash-locked, made by uv, with a CPU build of torch wherever one can be had.

Files are linked from uv's cache, so a second environment with the same torch costs little time and disk.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts import paths, pins, surroundings
from scripts.errors import KitError, PreflightError
from scripts.machine import installs, locks
from scripts.pins import Image, requirement_files, uv

#: The stack whose images are these environments.
STACK = "demo"

#: Written last; an environment without it was cut off and is made anew.
MARKER = ".complete"

#: The way of installation that takes the lock as it is: on Linux a torch with CUDA, which fills about CUDA_MB on the disk.
ORDINARY = "ordinary build of torch, on Linux with several GB of CUDA packages"
CUDA_MB = 5000


def backends() -> list[str]:
    """The backends that have an environment here: a case of theirs runs with STACK=demo on a machine without Docker, GPU and torch."""
    return [name for name, table in pins.load().backends.items() if STACK in table["stacks"]]


def in_place_of_gpus(backend: str) -> str:
    """What to type for a tiny model of a backend's case on the CPU; "" for a backend without an environment here."""
    return f"DEVICE=cpu SCALE=tiny WEIGHTS=random ENGINE=host STACK={STACK}" if backend in backends() else ""


def ensure(environment: str, say: Callable[[str], None] = lambda line: print(line, file=sys.stderr), root: Path = paths.ROOT) -> Path:
    """The interpreter of an environment of pins.toml, which is made first unless it is there, whole and up to date."""
    image = pins.load(root).environments()[environment][0]
    lock = image.lock_text()
    python = _python_for(image)
    digest = hashlib.sha256(f"{lock}\n{python}".encode()).hexdigest()[:12]
    folder = root / ".envs" / f"demo-{environment}-{digest}"
    interpreter = folder / "bin" / "python"
    try:
        folder.parent.mkdir(exist_ok=True)
        with locks.held(folder.parent / ".lock", why="another process makes an environment of the demo"):
            if not (folder / MARKER).exists():
                about = pins.load(root).stacks[image.stack]["environments"][environment]
                say(f"environment {environment}, once: {installs.sizes(about['download_mb'], about['disk_mb'])}")
                how = _make(folder, python, lock, f"environment {environment}", say, about["disk_mb"])
                (folder / MARKER).write_text(how + "\n", encoding="utf-8")
    except OSError as error:
        raise KitError(f"environment {environment}: cannot write {error.filename or folder}: {error.strerror}") from error
    return interpreter


def _python_for(image: Image) -> str:
    """This interpreter, or another one of this machine where the environment has no wheels for it."""
    allowed = image.options.get("python")
    if not allowed or platform.python_version().rpartition(".")[0] in allowed:
        return sys.executable
    for version in allowed:
        done = _uv("python", "find", version)
        if done.returncode == 0:
            return done.stdout.strip()
    versions = " or ".join(allowed)
    raise PreflightError(
        f"{image.backend} needs Python {versions} in addition to {platform.python_version()}, because some of its packages have no "
        f"builds for later versions; install Python {versions} and type `make demo` again"
    )


def _make(folder: Path, python: str, lock: str, title: str, say: Callable[[str], None], disk_mb: int) -> str:
    """Try the ways of installation in turn; returns the way that worked. `disk_mb` is the expected size of a CPU build in MB."""
    made = _uv("venv", "--clear", "--python", python, str(folder))
    if made.returncode != 0:
        raise KitError(f"{title}: no virtual environment in {folder}: {uv.reason(made)}")
    tried: list[str] = []
    for how, options, requirements in _attempts(lock):
        if how == ORDINARY and tried:
            say(f"{title}: {tried[-1]} did not come from torch's own index, so it will be the build for CUDA: about {CUDA_MB:,} MB in place of {disk_mb:,} MB")
            say(f"{title}: Ctrl-C ends this; type the same again once that index answers, or PIP_FIND_LINKS=/folder of the CPU build")
        tried.append(how.partition(" from ")[0])
        began = time.monotonic()
        done = _install(folder, options, requirements, f"{title}, {how}", CUDA_MB if how == ORDINARY else disk_mb)
        say(f"{title}, {how}: {f'{time.monotonic() - began:.0f} s' if done.returncode == 0 else f'no: {uv.reason(done)}'}")
        if done.returncode == 0:
            return how
        if "No space left" in done.stderr:
            break
    shutil.rmtree(folder, ignore_errors=True)
    raise KitError(f"{title} could not be installed, see the reasons above; type `make demo` again, which reuses the downloads")


def _attempts(lock: str) -> Iterator[tuple[str, list[str], str]]:
    """(what it is, options for uv, requirements), the cheapest first."""
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        cpu = requirement_files.cpu_only(lock)
        folders = surroundings.current().text("PIP_FIND_LINKS").split()
        if folders:
            yield "CPU build of torch from PIP_FIND_LINKS", [f"--find-links={folder}" for folder in folders], cpu
        yield "CPU build of torch from its own index", ["--torch-backend=cpu"], cpu
    yield ORDINARY, [], lock


def _install(folder: Path, options: list[str], requirements: str, title: str, disk_mb: int) -> subprocess.CompletedProcess[str]:
    path = folder / "requirements.txt"
    path.write_text(requirements, encoding="utf-8")
    interpreter = str(folder / "bin" / "python")
    common = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirements", str(path))
    done = installs.run(title, [uv.find(), "pip", "install", "--python", interpreter, *common, *options], _environment(), disk_mb)
    if done.returncode == 0:
        done = installs.run(f"{title}, first import of torch", [interpreter, "-c", "import torch"], surroundings.current().variables)
    return done


def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([uv.find(), *arguments], env=_environment(), capture_output=True, text=True, errors="replace")


def _environment() -> dict[str, str]:
    """The variables for uv: the user's settings of pip, without extra indexes and without folders of wheels, which `_attempts` tries by themselves."""
    kept = surroundings.current().for_installers
    own = {name: value for name, value in uv.settings_of_pip(sys.executable).items() if name not in ("UV_FIND_LINKS", "UV_INDEX", "UV_INDEX_STRATEGY")}
    return kept | own | uv.SETTINGS | uv.trust()
