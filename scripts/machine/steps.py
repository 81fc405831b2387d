"""How far a command is, and what goes on: the words for whoever waits."""

import sys
import threading
import time

#: Without a terminal the progress of a long run is shown so often.
TELL_EVERY_S = 30.0

#: Without a terminal a phase that says nothing shows its time after so long; after TELL_EVERY_S that is how often.
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
    """How far a command with a known number of steps is, and how long the rest takes if its steps take as long as those before."""

    def __init__(self, total: int) -> None:
        self.total, self.begun, self.free, self.began = total, 0, 0, time.monotonic()

    def cost_nothing(self) -> None:
        """The step that has just ended was done before: it tells nothing of the time of the others."""
        self.free += 1

    def next(self) -> str:
        """The prefix of the next step's line: "[3 of 15, about 40 s left]"."""
        self.begun += 1
        done = self.begun - 1
        if done == self.free:
            return f"[{self.begun} of {self.total}]"
        remaining_s = (time.monotonic() - self.began) / (done - self.free) * (self.total - done)
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
