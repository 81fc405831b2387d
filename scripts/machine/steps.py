"""Progress in words: how far a command is, and what it does now."""

import contextlib
import sys
import threading
import time

#: Seconds between two progress lines of a long run without a terminal.
TELL_EVERY_S = 30.0

#: Without a terminal a silent phase shows its time after QUIET_S, then after waits that double up to TELL_EVERY_S.
QUIET_S = 4.0


def duration(seconds: float) -> str:
    """ "1 h 05 min", "12 min", "40 s"."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def left(seconds: float) -> str:
    """ "12 min left"."""
    return f"{duration(seconds)} left"


class Steps:
    """How far a command is, and the time left at the mean duration of the steps so far. `total` is None where the number of steps is not known."""

    def __init__(self, total: int | None) -> None:
        self.total, self.begun, self.free, self.began = total, 0, 0, time.monotonic()

    def cost_nothing(self) -> None:
        """Leave the step that has just ended out of the estimate, because its result was there before."""
        self.free += 1

    def next(self) -> str:
        """The prefix of the next step's line: "[3 of 15, about 40 s left]"."""
        self.begun += 1
        if self.total is None:
            return f"[{self.begun}]"
        done = self.begun - 1
        if done == self.free:
            return f"[{self.begun} of {self.total}]"
        remaining_s = (time.monotonic() - self.began) / (done - self.free) * (self.total - done)
        return f"[{self.begun} of {self.total}, about {left(remaining_s)}]"


class Heartbeat:
    """Prints the current phase and its duration after some seconds without other output, for runs without a terminal."""

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
        """A new phase begins, and a line has just announced it."""
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
                with contextlib.suppress(OSError):  # nobody reads it any more
                    print(f"  {self.words}, {seconds:.0f} s so far", file=sys.stderr, flush=True)
                wait_s = min(2 * wait_s, TELL_EVERY_S)
