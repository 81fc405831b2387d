"""python -m scripts.commands.clean: refuse `make clean` while a command of the kit runs from this folder. The Makefile runs it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from scripts import surroundings
from scripts.errors import PreflightError, run_command
from scripts.machine import locks
from scripts.paths import ROOT

#: The lock that all commands of the kit hold together. It lies in the tools' environment, and is removed with it.
IN_USE = ROOT / ".venv" / ".in-use"


@contextlib.contextmanager
def not_in_use(path: Path = IN_USE) -> Iterator[None]:
    """Hold the lock of the tools alone within the block. Raises PreflightError where a command of the kit runs: it would lose its interpreter."""
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
