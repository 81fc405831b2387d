"""Run an installer as a child process, and print every few seconds what it does, how far it is and how long it still takes."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: Seconds between two progress lines; a terminal redraws one line more often.
TELL_EVERY_S = 3.0
REDRAW_EVERY_S = 0.5

MB = 1_000_000


def sizes(download_mb: int, disk_mb: int) -> str:
    """The cost of an installation in words, shown before it begins."""
    return f"up to {download_mb:,} MB to download and {disk_mb:,} MB on the disk, about {max(5, disk_mb // 25)} s where the network gives 20 MB/s"


def run(title: str, command: Sequence[str], environment: Mapping[str, str], disk_mb: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with its progress on standard error; the returned object holds its stdout and stderr.

    `disk_mb` is the expected size in MB of what it writes; 0 shows only the time.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        began = time.monotonic()
        process = subprocess.Popen(list(command), env=dict(environment), stdout=out, stderr=err, text=True)
        try:
            _watch(process, lambda: _line(title, time.monotonic() - began, _written_mb(process.pid), disk_mb))
        except BaseException:
            process.kill()
            process.wait()
            raise
        out.seek(0), err.seek(0)
        return subprocess.CompletedProcess(list(command), process.returncode, out.read(), err.read())


def _watch(process: subprocess.Popen[str], line: Callable[[], str]) -> None:
    terminal = sys.stderr.isatty()
    shown = False
    while True:
        try:
            process.wait(REDRAW_EVERY_S if terminal else TELL_EVERY_S)
            break
        except subprocess.TimeoutExpired:
            shown = True
            print(f"\r\x1b[K{line()}" if terminal else line(), end="" if terminal else "\n", file=sys.stderr, flush=True)
    if terminal and shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _line(title: str, seconds: float, written_mb: float, disk_mb: int) -> str:
    if not disk_mb or written_mb < 1:
        return f"  {title}: {seconds:.0f} s"
    if written_mb >= disk_mb:
        return f"  {title}: {written_mb:,.0f} MB, more than the expected {disk_mb:,}, {seconds:.0f} s"
    share = written_mb / disk_mb
    left_s = seconds / share - seconds
    return f"  {title}: {written_mb:,.0f} of about {disk_mb:,} MB, {seconds:.0f} s, about {left_s:.0f} s left"


def _written_mb(pid: int) -> float:
    """MB that a process has written so far; 0 where the system does not count them."""
    try:
        counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(dict(line.split(": ") for line in counters.splitlines())["wchar"]) / MB
