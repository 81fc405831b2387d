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

#: An installer that has written nothing for so long is waiting, and an estimate of the time left would only grow.
STILL_S = 5.0

MB = 1_000_000


def sizes(download_mb: int, disk_mb: int) -> str:
    """The cost of an installation in words, shown before it begins."""
    return f"up to {download_mb:,} MB to download and {disk_mb:,} MB on the disk, about {max(5, disk_mb // 25)} s if the network gives 20 MB/s"


def run(title: str, command: Sequence[str], environment: Mapping[str, str], disk_mb: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end with its progress on standard error; the returned object holds its stdout and stderr.

    `disk_mb` is the expected size in MB of what it writes; 0 shows only the time.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        progress = Progress(title, disk_mb)
        process = subprocess.Popen(list(command), env=dict(environment), stdout=out, stderr=err, text=True)
        try:
            _watch(process, lambda: progress.line(time.monotonic(), _written_mb(process.pid)))
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


class Progress:
    """What an installer has written so far, in words; a time left is shown only while it writes."""

    def __init__(self, title: str, disk_mb: int) -> None:
        self.title, self.disk_mb = title, disk_mb
        self.began = self.moved_at = time.monotonic()
        self.written_mb = 0.0

    def line(self, now: float, written_mb: float) -> str:
        if written_mb > self.written_mb:
            self.moved_at, self.written_mb = now, written_mb
        seconds, still_s = now - self.began, now - self.moved_at
        if not self.disk_mb or written_mb < 1:
            return f"  {self.title}: {seconds:.0f} s"
        if still_s > STILL_S:
            return f"  {self.title}: {written_mb:,.0f} of about {self.disk_mb:,} MB, {seconds:.0f} s, nothing came for {still_s:.0f} s"
        if written_mb >= self.disk_mb:
            return f"  {self.title}: {written_mb:,.0f} MB, more than the expected {self.disk_mb:,}, {seconds:.0f} s"
        left_s = seconds * self.disk_mb / written_mb - seconds
        return f"  {self.title}: {written_mb:,.0f} of about {self.disk_mb:,} MB, {seconds:.0f} s, about {left_s:.0f} s left"


def _written_mb(pid: int) -> float:
    """MB that a process has written so far; 0 where the system does not count them."""
    try:
        counters = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(dict(line.split(": ") for line in counters.splitlines())["wchar"]) / MB
