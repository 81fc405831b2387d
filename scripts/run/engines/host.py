"""The engine `host`: a job as a child process of this one, in an interpreter that is already there.

For the demo, and for machines without Docker. Nothing is isolated, so the result lists every difference between the
interpreter's packages and the pins.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from scripts import surroundings
from scripts.containers import process, restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError

#: What a job may see of this process's environment; no tokens, no proxies, no user's settings.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "CUDA_HOME", "TORCH_EXTENSIONS_DIR", "TMPDIR", "OMP_NUM_THREADS")


def environment(gpu_uuids: list[str]) -> dict[str, str]:
    """The environment of a job's process: offline, unbuffered, the chosen GPUs only."""
    of_machine = surroundings.current()
    passed = {name: value for name, value in of_machine.variables.items() if name in PASSED} | (of_machine.between_gpus if gpu_uuids else {})
    fixed = restrictions.ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids)}
    del fixed["PYTHONDONTWRITEBYTECODE"]  # for a read-only root; here every job would compile torch and transformers anew
    return passed | fixed


def run(python: Path, command: list[str], folder: Path, gpu_uuids: list[str], timeout_s: float, on_line: Callable[[str], None], near: str = "") -> Outcome:
    """Run `python command` in `folder`, its output line by line to `on_line`; every process that it started ends with it.

    `near` are the cores that it is kept on, "" for all. Raises KitError where there is no such program.
    """
    if not shutil.which(folder / python if python.parent.name else python):
        raise KitError(f"{python} does not start ({os.strerror(errno.ENOENT)}); type PYTHON_HOST=/path/to/python")
    return process.run([str(python), *command], folder, environment(gpu_uuids), timeout_s, on_line, near)


def must_have_torch(python: Path, error_type: type[KitError]) -> None:
    """Raise an error of this type where an interpreter does not start or lacks torch. Nothing is imported: that would take seconds."""
    question = "import importlib.util as u, sys; sys.exit(None in map(u.find_spec, ('torch', 'transformers')))"
    try:
        done = subprocess.run([str(python), "-c", question], capture_output=True, env=environment([]), cwd="/")
    except OSError as error:
        raise error_type(f"PYTHON_HOST is {str(python)!r}, which does not start ({error.strerror}); type PYTHON_HOST=/path/to/python") from error
    if done.returncode != 0:
        raise error_type(
            f"{python} has no torch and transformers; type PYTHON_HOST=/path/to/python of one that has, "
            "or make demo, which brings its own and runs tiny models on the CPU"
        )


def differences(installed: dict[str, str], locked: dict[str, str]) -> list[str]:
    """One line for each package whose version is not the locked one; a build's local label ("+cpu") does not count."""
    lines = []
    for name, pinned in locked.items():
        version = installed.get(name)
        if version is None:
            lines.append(f"{name}: pinned {pinned}, not installed")
        elif version.split("+")[0] != pinned.split("+")[0]:
            lines.append(f"{name}: pinned {pinned}, found {version}")
    return lines
