"""What the person at the terminal sees while a job runs, from the guest's `@{json}` lines."""

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from scripts.machine.bounded_log import BoundedLog
from scripts.machine.steps import TELL_EVERY_S, Heartbeat, left
from scripts.run import cost

#: The phases that are shown. A guest may send any name, and a terminal would obey some characters in it.
PHASES = ("", *cost.PHASES, *cost.CALLS, *cost.OF_HELPERS)

#: Lines of progress that are shown of a job: an honest one shows fewer than 25,000 in a week, and a guest may report without end.
MOST_LINES = 50_000

Word = Annotated[str, msgspec.Meta(max_length=40)]
Number = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class Event(msgspec.Struct):
    """A report of the guest's progress (bench/actions.py `say`); a line of another shape goes only into the log."""

    phase: Word = ""
    run: Word = ""
    done: Number | None = None
    shard: Number = 0
    total: Number = 0
    new_tokens: Number | None = None
    left_s: Annotated[float, msgspec.Meta(ge=0, le=10**9)] | None = None

    def __post_init__(self) -> None:
        if self.phase not in PHASES or not self.run.isprintable():
            raise ValueError("no phase of the kit's, or a word that a terminal cannot show")


_EVENTS = msgspec.json.Decoder(Event)


class JobDisplay:
    """A line of progress for one job; every line of its output also goes to its log file.

    Without a terminal each phase is a line of its own, so that a log of CI reads well. Where the terminal or the reader of these lines is gone, or their
    disk is full, the job goes on, because its measurement would be lost.
    """

    def __init__(self, title: str, log: Path | None = None) -> None:
        self.title = title
        self.console = Console(file=sys.stderr)
        self.log = BoundedLog(log) if log else None
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.log_failed = False
        self.told_at, self.lines = 0.0, 0
        self.task = self.progress.add_task(title, total=None)
        self.heartbeat = Heartbeat()

    def __enter__(self) -> "JobDisplay":
        self.progress.start()
        if self.progress.disable:
            self.heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.progress.stop()
        if self.progress.disable:
            self.heartbeat.stop()
        if self.log:
            with contextlib.suppress(OSError):  # closing may have to write the log's shorter form, on a full disk
                self.log.close()

    def line(self, text: str) -> None:
        """One line of the job's output."""
        with contextlib.suppress(OSError):
            self._log(text)
            if text.startswith("@{"):
                with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):  # no event of the kit's
                    self._event(_EVENTS.decode(text[1:]))

    def _log(self, text: str) -> None:
        """Write a line into the log as long as that works: a failing log must not end the measurement."""
        if self.log and not self.log_failed:
            try:
                self.log.line(text)
            except OSError as error:
                self.log_failed = True
                print(f"note: the log of {self.title} cannot be written ({error.strerror}) and ends here; the job goes on", file=sys.stderr)

    def phase(self, name: str) -> None:
        """The job enters another phase: load, measure, check…"""
        self.progress.update(self.task, description=f"{self.title}: {name}", completed=0, total=None)
        if self.progress.disable:
            self._show(name)
            self.heartbeat.phase(f"{self.title}: {name}")

    def _event(self, event: Event) -> None:
        if event.phase:
            self.phase(event.phase)
        elif event.total:
            tokens = f", {event.new_tokens} new token(s)" if event.new_tokens is not None else ""
            word = f"{event.run}{tokens}" if event.run else "writing weights"
            done = event.shard if event.done is None else event.done
            if event.left_s is not None:
                word = f"{event.run}, {left(event.left_s)}"
                self._tell(f"{done:,} of {event.total:,} {word}", done == event.total)
            self.progress.update(self.task, description=f"{self.title}: {word}", completed=done, total=event.total)

    def _tell(self, words: str, always: bool) -> None:
        """A line at most every TELL_EVERY_S, for runs without a terminal."""
        if self.progress.disable and (always or time.monotonic() - self.told_at > TELL_EVERY_S):
            self.told_at = time.monotonic()
            self._show(words)
            self.heartbeat.phase(self.heartbeat.words)

    def _show(self, words: str) -> None:
        self.lines += 1
        if self.lines <= MOST_LINES:
            print(f"  {self.title}: {words}", file=sys.stderr, flush=True)
