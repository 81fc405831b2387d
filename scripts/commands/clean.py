"""python -m scripts.commands.clean: refuse `make clean` while a command of the kit runs from this folder. The Makefile runs it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from scripts import surroundings
from scripts.errors import PreflightError, run_command
from scripts.machine import locks
from scripts.paths import ROOT

#: Held by every command of the kit, beside each other. It lies in the tools' environment, so it goes with it.
IN_USE = ROOT / ".venv" / ".in-use"


@contextlib.contextmanager
def not_in_use(path: Path = IN_USE) -> Iterator[None]:
    """Within it no command of the kit begins with the tools. Raises PreflightError where one runs: it would lose its interpreter."""
    lock = None
    with contextlib.suppress(OSError):  # no such folder, or a disk without locks
        lock = locks.take(path, locks.FOR_EVERYBODY)
        if not lock:
            raise PreflightError(f"a command of the kit runs from {path.parents[1]}; wait for its end, or end it, and type the same again")
    with lock or contextlib.nullcontext():
        yield


def main() -> None:
    with not_in_use():
        pass


if __name__ == "__main__":
    surroundings.use(os.environ)
    run_command(main)
