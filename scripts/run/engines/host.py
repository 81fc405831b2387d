"""The engine `host`: a job as a child process of this one, in an interpreter that is already there.

For the demo, and for machines without Docker. Nothing is isolated, so the result lists every difference between the
interpreter's packages and the pins.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from scripts import surroundings
from scripts.containers import restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError

#: What a job may see of this process's environment; no tokens, no proxies, no user's settings.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "CUDA_HOME", "TORCH_EXTENSIONS_DIR", "TMPDIR", "OMP_NUM_THREADS")

#: NCCL's multicast and peer settings of the machine stay as they are.
PASSED_PREFIXES = ("NCCL_", "TORCH_SYMM_", "NVSHMEM_")


def environment(gpu_uuids: list[str]) -> dict[str, str]:
    """The environment of a job's process: offline, unbuffered, the chosen GPUs only."""
    passed = {name: value for name, value in surroundings.current().variables.items() if name in PASSED or name.startswith(PASSED_PREFIXES)}
    ours = restrictions.ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids)}
    del ours["PYTHONDONTWRITEBYTECODE"]  # for a read-only root; here every job would compile torch and transformers anew
    return passed | ours


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, so that a killed runner leaves nothing behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def run(python: Path, command: list[str], folder: Path, gpu_uuids: list[str], timeout_s: float, on_line: Callable[[str], None]) -> Outcome:
    """Run `python command` in `folder`, its output line by line to `on_line`; the whole process group ends with it."""
    began = time.time()
    try:
        process = subprocess.Popen(
            [str(python), *command],
            cwd=folder,
            env=environment(gpu_uuids),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        raise KitError(f"{python} does not start ({error.strerror}); type PYTHON_HOST=/path/to/python") from error
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _kill_group(process)

    timer = threading.Timer(timeout_s, expire)
    timer.start()
    try:
        for line in process.stdout:
            on_line(line.rstrip("\n"))
        exit_code = process.wait()
    finally:
        timer.cancel()
        _kill_group(process)
    return Outcome(exit_code=exit_code, oom_killed=False, timed_out=expired.is_set(), started_at=began, finished_at=time.time())


def _kill_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def must_have_torch(python: Path) -> None:
    """Raise KitError where an interpreter does not start or has nothing to measure. Nothing is imported: that would take seconds."""
    question = "import importlib.util as u, sys; sys.exit(None in map(u.find_spec, ('torch', 'transformers')))"
    try:
        found = subprocess.run([str(python), "-c", question], capture_output=True, env=environment([]), cwd="/")
    except OSError as error:
        raise KitError(f"{python} does not start ({error.strerror}); type PYTHON_HOST=/path/to/python") from error
    if found.returncode != 0:
        raise KitError(
            f"{python} has no torch and transformers; type PYTHON_HOST=/path/to/python of one that has, "
            "or make demo, which brings its own and runs tiny models on the CPU"
        )


def differences(found: dict[str, str], locked: dict[str, str]) -> list[str]:
    """One line for each package whose version is not the locked one; a build's local label ("+cpu") does not count."""
    lines = []
    for name, pinned in locked.items():
        version = found.get(name)
        if version is None:
            lines.append(f"{name}: pinned {pinned}, not installed")
        elif version.split("+")[0] != pinned.split("+")[0]:
            lines.append(f"{name}: pinned {pinned}, found {version}")
    return lines
