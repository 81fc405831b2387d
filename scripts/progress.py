"""What the person at the terminal sees while a job runs, from the guest's `@{json}` lines."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

#: Without a terminal the progress of a long run is told so often.
TELL_EVERY_S = 30.0

#: Without a terminal a phase that says nothing shows its time after so long; after TELL_EVERY_S that is how often.
QUIET_S = 4.0


def left(seconds: float) -> str:
    """ "1 h 05 min left", "12 min left", "40 s left"."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s left"
    return f"{minutes // 60} h {minutes % 60:02d} min left" if minutes >= 60 else f"{minutes} min left"


class Steps:
    """How far a command with a known number of steps is, and how long the rest takes if its steps take as long as those before."""

    def __init__(self, total: int) -> None:
        self.total, self.begun, self.began = total, 0, time.monotonic()

    def next(self) -> str:
        """The prefix of the next step's line: "[3 of 15, about 40 s left]"."""
        self.begun += 1
        done = self.begun - 1
        if not done:
            return f"[1 of {self.total}]"
        remaining_s = (time.monotonic() - self.began) / done * (self.total - done)
        return f"[{self.begun} of {self.total}, about {left(remaining_s)}]"


class Heartbeat:
    """Says what goes on, and for how long, where nothing else was said for some seconds. For whoever has no terminal."""

    def __init__(self) -> None:
        self.words, self.since = "", time.monotonic()
        self._changed, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended = True
        self._changed.set()
        self._thread.join()

    def phase(self, words: str) -> None:
        """Something else goes on from now, and a line has just said so."""
        self.words, self.since = words, time.monotonic()
        self._changed.set()

    def _beat(self) -> None:
        wait_s = QUIET_S
        while not self._ended:
            if self._changed.wait(wait_s):
                self._changed.clear()
                wait_s = QUIET_S
            elif self.words:
                seconds = time.monotonic() - self.since
                print(f"  {self.words}, {seconds:.0f} s so far", file=sys.stderr, flush=True)
                wait_s = QUIET_S if seconds < TELL_EVERY_S else TELL_EVERY_S


class JobDisplay:
    """A line of progress for one job; every line of its output also goes to its log file.

    Without a terminal each phase is a line of its own, so that a log of CI reads well.
    """

    def __init__(self, title: str, log: Path | None = None) -> None:
        self.title = title
        self.console = Console(file=sys.stderr)
        self.log = log.open("a", encoding="utf-8") if log else None
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.told_at = 0.0
        self.task = self.progress.add_task(title, total=None)
        self.heartbeat = Heartbeat()

    def __enter__(self) -> "JobDisplay":
        self.progress.start()
        if self.progress.disable:
            self.heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.progress.disable:
            self.heartbeat.stop()
        if self.log:
            self.log.close()

    def line(self, text: str) -> None:
        """One line of the job's output."""
        if self.log:
            self.log.write(text + "\n")
            self.log.flush()
        if text.startswith("@{"):
            with contextlib.suppress(ValueError):
                self._event(json.loads(text[1:]))

    def phase(self, name: str) -> None:
        """The job enters another phase: load, measure, check…"""
        self.progress.update(self.task, description=f"{self.title}: {name}", completed=0, total=None)
        if self.progress.disable:
            print(f"  {self.title}: {name}", file=sys.stderr, flush=True)
            self.heartbeat.phase(f"{self.title}: {name}")

    def _event(self, event: dict) -> None:
        if "phase" in event:
            self.phase(event["phase"])
        elif "total" in event:
            tokens = f", {event['new_tokens']} new token(s)" if "new_tokens" in event else ""
            word = f"{event['run']}{tokens}" if "run" in event else "writing weights"
            done = event.get("done", event.get("shard", 0))
            if "left_s" in event:
                word = f"{event['run']}, {left(event['left_s'])}"
                self._tell(f"{done:,} of {event['total']:,} {word}", done == event["total"])
            self.progress.update(self.task, description=f"{self.title}: {word}", completed=done, total=event["total"])

    def _tell(self, words: str, always: bool) -> None:
        """A line now and then, for whoever has no terminal."""
        if self.progress.disable and (always or time.monotonic() - self.told_at > TELL_EVERY_S):
            self.told_at = time.monotonic()
            print(f"  {self.title}: {words}", file=sys.stderr, flush=True)
            self.heartbeat.phase(self.heartbeat.words)
