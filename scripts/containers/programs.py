"""Programs that end by themselves and whose output the kit reads."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.errors import KitError, NothingRuns


def call(
    command: Sequence[str], environment: Mapping[str, str], instead: str, timeout_s: float | None = None, folder: Path = Path("/")
) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, its output kept. `instead` is the next command of a user who cannot start the program.

    Raises NothingRuns where the program cannot be started, KitError where it takes longer than `timeout_s`.
    """
    try:
        return subprocess.run(
            command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except OSError as error:
        raise NothingRuns(f"{command[0]} cannot be started ({error.strerror}); {instead}") from error
    except subprocess.TimeoutExpired as error:
        word = next((word for word in command[1:] if not word.startswith("-")), command[-1])
        raise KitError(f"{command[0]} has not answered `{word}` within {timeout_s:.0f} s; see what the same command says in a terminal") from error


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a failed command said, or its exit code."""
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[-1] if said else f"exit code {done.returncode}"
