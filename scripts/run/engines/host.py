"""The engine `host`: a job as a child process of this one, in an interpreter that is already there.

For the demo, and for machines without Docker. Nothing is isolated, so the result lists every difference between the
interpreter's packages and the pins.
"""

import errno
import math
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scripts import surroundings
from scripts.containers import restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError
from scripts.machine import cores, warden
from scripts.machine.lines import Lines

#: What a job may see of this process's environment; no tokens, no proxies, no user's settings.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "CUDA_HOME", "TORCH_EXTENSIONS_DIR", "TMPDIR", "OMP_NUM_THREADS")

#: NCCL's multicast and peer settings of the machine stay as they are.
PASSED_PREFIXES = ("NCCL_", "TORCH_SYMM_", "NVSHMEM_")


def environment(gpu_uuids: list[str]) -> dict[str, str]:
    """The environment of a job's process: offline, unbuffered, the chosen GPUs only."""
    passed = {name: value for name, value in surroundings.current().variables.items() if name in PASSED or name.startswith(PASSED_PREFIXES)}
    fixed = restrictions.ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids)}
    del fixed["PYTHONDONTWRITEBYTECODE"]  # for a read-only root; here every job would compile torch and transformers anew
    return passed | fixed


#: Seconds after a job's end in which its output is still read; then its pipe is closed.
DRAIN_S = 2.0

#: Seconds between two checks whether a job has ended, because another process may keep its pipe open.
LOOK_EVERY_S = 0.2


def run(python: Path, command: list[str], folder: Path, gpu_uuids: list[str], timeout_s: float, on_line: Callable[[str], None], near: str = "") -> Outcome:
    """Run `python command` in `folder`, its output line by line to `on_line`; every process that it started ends with it.

    `near` are the cores that it is kept on, "" for all. Raises KitError where there is no such program.
    """
    if not shutil.which(folder / python if python.parent.name else python):
        raise KitError(f"{python} does not start ({os.strerror(errno.ENOENT)}); type PYTHON_HOST=/path/to/python")
    began, began_monotonic = time.time(), time.monotonic()
    deadline = began_monotonic + timeout_s
    with cores.kept_on(near):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", warden.__file__, str(python), *command],
            cwd=folder,
            env=environment(gpu_uuids),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        timed_out = not _follow(process, deadline, on_line)
    finally:
        _end(process)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode  # as a shell and Docker say it
    return Outcome(code, False, timed_out, began, began + time.monotonic() - began_monotonic)  # the clock may be set meanwhile


def _follow(process: subprocess.Popen[bytes], deadline: float, on_line: Callable[[str], None]) -> bool:
    """Read a job's output until the job has ended; False where the deadline (monotonic seconds) came first."""
    assert process.stdout, "its output is a pipe"
    pipe, lines, drained_at = process.stdout.fileno(), Lines(), math.inf
    open_for_more = True
    while open_for_more and time.monotonic() < min(deadline, drained_at):
        ready, _, _ = select.select([pipe], [], [], max(0.0, min(LOOK_EVERY_S, deadline - time.monotonic())))
        if process.poll() is not None:
            drained_at = min(drained_at, time.monotonic() + DRAIN_S)
        chunk = os.read(pipe, 1 << 16) if ready else b""
        for line in lines.feed(chunk):
            on_line(line)
        open_for_more = bool(chunk) if ready else process.returncode is None
    for line in lines.rest():
        on_line(line)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let go of the warden, which then ends every process of the job; where it cannot, do what can be done from here."""
    assert process.stdin and process.stdout, "both are pipes"
    process.stdin.close()
    try:
        process.wait(warden.LAST_S + 5)
    except subprocess.TimeoutExpired:
        warden.kill_below(process.pid)
        process.kill()
        process.wait()
    finally:
        process.stdout.close()


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
