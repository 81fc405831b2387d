"""Ctrl-C, `kill` and a closed terminal: a command first releases its containers, locks and temporary files."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from scripts import INTERRUPTED

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: After so long a signal is sent again that came where no exception leads out.
AGAIN_S = 0.01


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


def _end(*_: object) -> None:
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(130)


def importing() -> None:
    """Ctrl-C ends the process at once, until `imported`: nothing is there to be released, and in an import Python drops some exceptions, or makes others of
    them. An ignored signal stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def imported() -> None:
    """Ctrl-C is an exception again: from now on there are things to release."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:
    if _would_be_dropped(frame):
        threading.Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _would_be_dropped(frame: FrameType | None) -> bool:
    """Python drops an exception of `__del__`, and in an import some or makes others of them: the command would go on as if nobody had stopped it."""
    while frame:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename.startswith("<frozen importlib."):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Within the block a stopping signal is an exception, so that `finally` runs; exit codes 130, 143 and 129."""
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
