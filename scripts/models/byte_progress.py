"""Progress of a large file: size, rate and time left, as a bar on a terminal and as occasional lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from scripts.machine.steps import TELL_EVERY_S, left

#: The progress of a smaller file is not shown: the file is done before anybody reads a line about it.
LEAST_SHOWN_BYTES = 1 << 20


class ByteProgress:
    """The progress of the action `words` over `total_bytes`, of which `done_bytes` were done by an earlier process."""

    def __init__(self, words: str, total_bytes: int, done_bytes: int = 0) -> None:
        self.words, self.total_bytes, self.done_bytes, self.before_bytes = words, total_bytes, done_bytes, done_bytes
        self.began = self.shown_at = time.monotonic()
        console = Console(file=sys.stderr)
        self.shown = total_bytes >= LEAST_SHOWN_BYTES
        columns = (TextColumn("  {task.description}"), BarColumn(bar_width=20), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not (console.is_terminal and self.shown))
        self.task = self.bar.add_task(words, total=total_bytes, completed=done_bytes)

    def __enter__(self) -> "ByteProgress":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()
        if self.shown and kind is None:
            self._say()

    def add(self, count: int) -> None:
        """Count `count` more bytes as done."""
        self.done_bytes += count
        self.bar.update(self.task, completed=self.done_bytes)
        if self.bar.disable and self.shown and time.monotonic() - self.shown_at > TELL_EVERY_S:
            self._say()

    def line(self) -> str:
        """ "fetching model.safetensors: 1.2 of 5.0 GB, 110 MB/s, 35 s left"."""
        spent_s = max(time.monotonic() - self.began, 1e-9)
        rate = (self.done_bytes - self.before_bytes) / spent_s
        time_left = left((self.total_bytes - self.done_bytes) / rate) if rate and self.done_bytes < self.total_bytes else f"{spent_s:.0f} s"
        return f"{self.words}: {self.done_bytes / 1e9:.2f} of {self.total_bytes / 1e9:.2f} GB, {rate / 1e6:.0f} MB/s, {time_left}"

    def _say(self) -> None:
        self.shown_at = time.monotonic()
        print(f"  {self.line()}", file=sys.stderr, flush=True)
