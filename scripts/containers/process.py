"""A job as a child process of this one, watched by the warden (scripts/machine/warden.py): no process of it outlives the job or this process."""

import contextlib
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.containers.container import Outcome, clean_up
from scripts.machine import cores, temporary_folders, warden
from scripts.machine.lines import Lines

#: Seconds after a job's end in which its output is still read; then its pipe is closed.
DRAIN_S = 2.0

#: Seconds between two checks whether a job has ended, because another process may keep its pipe open.
LOOK_EVERY_S = 0.2


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float, on_line: Callable[[str], None], near: str = "") -> Outcome:
    """Run a command in `folder`, its output line by line to `on_line`; every process that it started ends with it.

    `environment` holds all variables that it gets. `near` are the cores that it is kept on, "" for all.
    """
    began, began_monotonic = time.time(), time.monotonic()
    deadline = began_monotonic + timeout_s
    with cores.kept_on(near):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", warden.__file__, *command],
            cwd=folder,
            env=dict(environment),
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


def with_folder(prefix: str, start: Callable[[Path], Outcome]) -> Outcome:
    """Run a job that has a temporary folder of its own (scripts/machine/temporary_folders.py), which is gone when this returns.

    A signal that comes while the folder of a job that has ended is removed has `Ended` as its cause.
    """
    outcome, made = None, contextlib.ExitStack()
    folder = made.enter_context(temporary_folders.made(prefix))
    try:
        outcome = start(folder)
        return outcome
    finally:
        clean_up(made.close, outcome)


def _follow(process: subprocess.Popen[bytes], deadline: float, on_line: Callable[[str], None]) -> bool:
    """Read a job's output until the job has ended; False where the deadline (monotonic seconds) came first."""
    assert process.stdout, "its output is a pipe"
    pipe, lines, drained_at = process.stdout.fileno(), Lines(), math.inf
    open_for_more = True
    while open_for_more and time.monotonic() < min(deadline, drained_at):
        if process.poll() is not None:  # before the look at its pipe, which then holds its last words
            drained_at = min(drained_at, time.monotonic() + DRAIN_S)
        ready, _, _ = select.select([pipe], [], [], max(0.0, min(LOOK_EVERY_S, deadline - time.monotonic())))
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
    """Close the warden's pipe, whereupon it ends every process of the job; kill the warden and all below it where it does not end in time."""
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
