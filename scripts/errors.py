"""The ways a command of the kit ends early, each with its exit code.

KitError            exit 1   something failed while it ran
├── UsageError      exit 2   a value that was typed is wrong
└── PreflightError  exit 3   this machine cannot do what was asked
    └── NothingRuns          … nor any other case of the same command, so the command ends here
KeyboardInterrupt   exit 130 Ctrl-C
Stopped             exit 143 or 129, by SIGTERM or SIGHUP
"""

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from scripts import INTERRUPTED, STOPPED


class KitError(Exception):
    """The message says what happened and what to type next. It is printed without a traceback."""

    exit_code = 1


class UsageError(KitError):
    exit_code = 2


class PreflightError(KitError):
    exit_code = 3


class NothingRuns(PreflightError):
    pass


class Stopped(SystemExit):
    """A signal other than Ctrl-C stopped the command; a SystemExit, so that code that only cleans up treats it like any other exit."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.words = stopping_words(number)


def stopping_words(number: int) -> str:
    """The line that a command prints when a signal stops it."""
    return INTERRUPTED if number == signal.SIGINT else STOPPED.format(signal.Signals(number).name)


def shown(text: object) -> str:
    """A text that is safe on a terminal: an error may quote names or messages from elsewhere, with characters that move the cursor."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in str(text))


def run_command(command: Callable[[], int | None]) -> None:
    """Run a command and end the process with its exit code. Errors are printed here and nowhere else."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no ± shows ? in its place
    try:
        code = command() or 0
        if sys.stdout:  # None where the user closed it
            sys.stdout.flush()
        sys.exit(code)
    except KitError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _say(INTERRUPTED)
        sys.exit(130)
    except Stopped as stopped:
        _say(stopped.words)
        raise
    except BrokenPipeError:  # a reader such as `head` has enough
        sys.exit(1)
    except OSError as error:
        refusal = _of_the_machine(error)
        if not refusal:
            raise
        _fail(*refusal)
    finally:
        _drop_unwritten()


def _drop_unwritten() -> None:
    """Drop what a full disk or a reader that is gone did not take: Python would try once more at its end, and end with 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(line: str) -> None:
    """Print a line, unless nobody can read it: SIGHUP may come from a terminal that was closed, and the disk of the output may be full."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _fail(message: str, exit_code: int) -> NoReturn:
    _say(f"error: {shown(message)}")
    sys.exit(exit_code)


def _of_the_machine(error: OSError) -> tuple[str, int] | None:
    """(the message, the exit code) for an error of a disk or a file; None for any other error, which is a fault of the kit."""
    file = error.filename or "the output"
    match error.errno:
        case errno.ENOSPC:
            return f"no space left on device ({file}); free some and type the same again", KitError.exit_code
        case errno.EROFS | errno.EDQUOT:
            return f"{file} cannot be written ({error.strerror}); make room or make it writable, and type the same again", KitError.exit_code
        case errno.EACCES | errno.EPERM if error.filename:
            return f"{file}: {error.strerror}; type the same as the user who owns it, or in a clone of your own", PreflightError.exit_code
        case errno.ENAMETOOLONG:
            return f"the name {str(error.filename)[:60]!r}… is too long for a file; type a shorter path", UsageError.exit_code
        case _:
            return None
