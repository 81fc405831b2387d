"""A process between the runner and a job that ends every process of the job: python warden.py COMMAND….

With pyxis it runs beside the job, in the image's Python. This may be 3.8, where `list[int]` and `int | None` as annotations raise TypeError.

A process group would miss ranks, which have sessions of their own, and daemons, which leave their parent. The warden is a subreaper:
Linux makes it the parent of every orphan below it, so it finds them all. Its standard input is a pipe that the runner holds. The pipe
ends when the runner ends the job, or when the runner is killed.

The warden ends with the exit code of COMMAND, 128 + n where signal n ended it, once all processes below it are gone. It is
a program of its own that has to start in a few milliseconds, so it imports only the standard library.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

#: Signals that the warden ignores, because the runner decides when a job ends; Python itself ignores the last two.
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)

#: Exit code where the command does not start, as in a shell.
NOT_STARTED = 127

#: Seconds that the warden waits for killed processes: a process inside a driver call does not die at once.
LAST_S = 10.0


def parent_of(place: Path) -> int:
    """The parent of the process with this folder in /proc; raises OSError or IndexError where it has just ended."""
    return int((place / "stat").read_bytes().rpartition(b")")[2].split()[1])


def descendants(pid: int) -> "list[int]":
    """The pids of all processes below a process; processes that begin or end meanwhile may be missing."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            children.setdefault(parent_of(place), []).append(int(place.name))
    below, waiting = [], [pid]
    while waiting:
        started = children.get(waiting.pop(), [])
        below += started
        waiting += started
    return below


def kill_below(pid: int) -> None:
    """Kill every process below a process. All are stopped first, so that none starts another meanwhile."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for child in descendants(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, number)


def end_all() -> None:
    """Kill and reap every process below this process; gives up after LAST_S."""
    deadline = time.monotonic() + LAST_S
    while time.monotonic() < deadline:
        kill_below(os.getpid())
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def start(command: "list[str]") -> int:
    """Start a command that dies with this process; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)  # an ignored signal stays ignored in the command
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} does not start: {error.strerror}", flush=True)
    finally:
        os._exit(NOT_STARTED)


def reap(pid: int) -> "int | None":
    """The exit code of a child; None while it runs. Orphans that came here are reaped too."""
    while True:
        reaped, status = os.waitpid(-1, os.WNOHANG)
        if reaped == pid:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if not reaped:
            return None


def wait(pid: int, deaths: int) -> int:
    """Wait until a child ends or the runner closes the pipe; returns the exit code. `deaths` gets a byte whenever a child ends."""
    while (code := reap(pid)) is None:
        ready, _, _ = select.select([sys.stdin.fileno(), deaths], [], [])
        if sys.stdin.fileno() in ready:
            return 128 + signal.SIGKILL
        os.read(deaths, 4096)
    return code


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    deaths, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    code = wait(start(sys.argv[1:]), deaths)
    end_all()
    os._exit(code)


if __name__ == "__main__":
    main()
