"""The ways a command of the kit ends early, each with its exit code.

KitError            exit 1   something failed while it ran
├── UsageError      exit 2   a value that was typed is wrong
└── PreflightError  exit 3   this machine cannot do what was asked
    └── NothingRuns          … nor any other case of the same command, so the command ends here
"""

import errno
import os
import sys
from collections.abc import Callable


class KitError(Exception):
    """The message says what happened and what to type next. It is printed without a traceback."""

    exit_code = 1


class UsageError(KitError):
    exit_code = 2


class PreflightError(KitError):
    exit_code = 3


class NothingRuns(PreflightError):
    pass


def shown(text: object) -> str:
    """A text as a terminal can show it: what an error quotes may be a name or a message of others, with characters that move the cursor."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in str(text))


def run_command(command: Callable[[], int | None]) -> None:
    """Run a command and end the process with its exit code. Errors are printed here and nowhere else."""
    try:
        code = command() or 0
        if sys.stdout:  # None where the user closed it
            sys.stdout.flush()
        sys.exit(code)
    except KitError as error:
        print(f"error: {shown(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # a reader such as `head` has enough; Python flushes once more at its end
        if sys.stdout:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            print(f"error: no space left on device ({error.filename or 'the output'}); free some and type the same again", file=sys.stderr)
            sys.exit(1)
        if error.errno in (errno.EROFS, errno.EDQUOT):
            print(
                f"error: {shown(error.filename or 'the output')} cannot be written ({error.strerror}); make room or make it writable, and type the same again",
                file=sys.stderr,
            )
            sys.exit(1)
        if error.errno in (errno.EACCES, errno.EPERM) and error.filename:
            print(f"error: {shown(error.filename)}: {error.strerror}; type the same as the user who owns it, or in a clone of your own", file=sys.stderr)
            sys.exit(PreflightError.exit_code)
        if error.errno == errno.ENAMETOOLONG:
            print(f"error: the name {str(error.filename)[:60]!r}… is too long for a file; type a shorter path", file=sys.stderr)
            sys.exit(UsageError.exit_code)
        raise
