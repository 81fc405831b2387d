"""Ctrl-C, `kill` and a closed terminal: a command first releases its containers, locks and temporary files."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from scripts.errors import Stopped, stopping_words

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Seconds after which a signal is sent again, if it came where Python would drop its exception.
AGAIN_S = 0.01

#: `timeout` and make send SIGTERM to a command and again to its group, so the same signal within so many seconds of the first is no second wish to stop it.
ONE_WISH_S = 1.0

#: {number of a signal that stopped the command: when, in monotonic seconds}
_stopped_at: dict[int, float] = {}


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Another handler of the stopping signals within the block. An ignored signal (nohup, `&` in a script) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals only to its main thread
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    handled = [number for number, old in before.items() if old is not signal.SIG_IGN]
    try:
        for number in handled:
            signal.signal(number, handler)
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # the terminal may be closed
        os.write(2, f"{stopping_words(number)}\n".encode())
    os._exit(128 + number)


def importing() -> None:
    """Until `imported`, a stopping signal ends the process at once: there is nothing to release yet, and during an import Python drops or replaces some
    exceptions. An ignored signal stays ignored."""
    for number in STOPPING:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, _end)


def imported() -> None:
    """From now on a stopping signal raises an exception, because there are things to release."""
    for number in STOPPING:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    if _would_be_dropped(frame):
        threading.Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    now = time.monotonic()
    if now - _stopped_at.get(number, -ONE_WISH_S) < ONE_WISH_S:
        return  # the command cleans up already
    _stopped_at[number] = now
    raise Stopped(number)


def _would_be_dropped(frame: FrameType | None) -> bool:
    """Python drops exceptions in `__del__`, and drops or replaces some during an import: the command would go on as if nobody had stopped it."""
    while frame:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename.startswith("<frozen importlib."):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Within the block a stopping signal raises an exception, so that `finally` runs; exit codes 130, 143 and 129."""
    _stopped_at.clear()
    with _handled_by(_stop):
        yield


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Within the block stopping signals wait; the first of them takes effect at its end."""
    waiting: list[int] = []
    try:
        with _handled_by(lambda number, frame: waiting.append(number)):
            yield
    finally:
        if waiting:
            signal.raise_signal(waiting[0])
