"""What must be true after a fault, and after the command that follows it; each breach is a line of its category."""

import re
from dataclasses import dataclass
from pathlib import Path

from bench.job import InvalidDocument
from scripts import results
from scripts.machine import locks
from scripts.results import Record, door
from scripts.results.store import record_of
from tests.chaos import guest
from tests.chaos.place import GPU, REAL, ROOT, Place, soon

LOST, FALSE, LEFT, HUNG, TRACEBACK, STUCK = CATEGORIES = ("results lost", "false results", "left behind", "hung", "tracebacks", "next command failed")

#: Seconds in which the processes of an ended command must be gone.
GONE_WITHIN_S = 20.0

#: What no command may leave once the next one has ended; all under a place.
LEFTOVERS = (
    "runs/.claim.lock",
    "runs/.probe-*",
    "runs/*/work",
    "runs/*/.lock",
    "runs/**/.partial-*",
    "models/.lock*",
    "models/.work-*",
    "models/**/.partial-*",
    "locks/*.lock",
)

#: The lock of the kit's own repository, which a killed git leaves behind, and the seconds in which a git that lives has ended.
GITS_LOCK = ROOT / ".git" / "index.lock"
GIT_ENDS_WITHIN_S = 5.0

#: A result that could not be stored, and torch's own cache.
ALLOWED_IN_TMP = ("llm-repro-", "torchinductor_")

Breach = tuple[str, str]

#: Where a guest computes with a real model.
REAL_MODELS = (REAL, GPU)


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code (None where it was ended), its output, and the rows that it stored."""

    code: int | None
    output: str
    rows: list[Record]

    @property
    def how(self) -> list[str]:
        """The status of each row; without a row, that of the helping job which the output names."""
        named = re.search(r"error: the \w+ job ended with (\w+): ", self.output)
        return [record.status for record in self.rows] or [named[1] if named else "no row"]


def stored(place: Place) -> dict[Path, bytes]:
    """Every stored result."""
    return {path: path.read_bytes() for path in place.runs.glob("*/result.json")}


def lost(before: dict[Path, bytes]) -> list[Breach]:
    """Stored results that are gone or changed."""
    return [(LOST, f"{path} is gone or changed") for path, content in before.items() if not path.is_file() or path.read_bytes() != content]


def promised(output: str) -> list[Breach]:
    """The output names results as stored or kept: each must be there, whole."""
    breaches = []
    for name in re.findall(r"^  (/\S+/result\.json)$", output, re.M) + re.findall(r"the result is kept at (\S+/result\.json)", output):
        try:
            record_of(door.parse(door.read(Path(name))))
        except (InvalidDocument, OSError) as error:
            breaches.append((LOST, f"{name} was promised: {error}"))
    return breaches


def false(place: Place) -> list[Breach]:
    """Rows that say ok and are not what an honest guest answered; files that are half a result."""
    breaches = []
    for path in sorted(place.runs.glob("*/result.json")):
        try:
            record = results.load(path.parent)
        except (InvalidDocument, OSError) as error:
            breaches.append((FALSE, f"{path}: {error}"))
            continue
        # Not the judge's verdict: it compares times, and a campaign keeps the machine busy.
        if record.status == "ok" and record.guest and place.engine in REAL_MODELS and not _logits_right(record.guest.check or {}):
            breaches.append((FALSE, f"{path}: a real model's output is not right: {record.guest.check}"))
        if record.status == "ok" and record.guest and place.engine not in REAL_MODELS:
            times = {calls["new_tokens"]: calls["timed_ms"] for calls in record.guest.measurements}
            honest = {run["new_tokens"]: [guest.honest_ms(record.id, run["new_tokens"])] * record.job.timed_runs for run in record.job.runs}
            if times != honest:
                breaches.append((FALSE, f"{path}: a row with times that no honest guest gave"))
    return breaches


def _logits_right(check: dict[str, float]) -> bool:
    return check.get("logits_relative_error", 1.0) <= check.get("tolerance", 0.0)


def dishonest(manners: dict[str, str]) -> bool:
    """Must a measuring job with these manners give no row that is ok?"""
    return manners.get("write", "good") not in guest.HONEST_WRITING or manners.get("end", "exit-0") not in guest.HONEST_ENDING


def statuses(place: Place) -> dict[str, str]:
    """{run: status} of the readable results."""
    return {record.id: record.status for record in results.load_all(place.runs)[0]}


def rows_since(place: Place, before: dict[Path, bytes]) -> list[Record]:
    """The readable results that were not there before."""
    there = {path.parent.name for path in before}
    return [record for record in results.load_all(place.runs)[0] if record.id not in there]


def processes_left(place: Place) -> list[Breach]:
    if soon(lambda: not place.processes(), GONE_WITHIN_S):
        return []
    names = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200] for pid in place.processes()]
    place.end_processes()
    return [(LEFT, f"a process: {name}") for name in names]


def left(place: Place) -> list[Breach]:
    """Locks, work folders and halves of files that the next command did not remove, and runs of which nothing was asked."""
    found = {path for pattern in LEFTOVERS for path in place.folder.glob(pattern) if not _free_gpu(path)}
    found |= {folder for folder in place.runs.iterdir() if folder.is_dir() and not any((folder / name).exists() for name in ("job.json", "result.json"))}
    found |= {path for path in place.tmp.iterdir() if not path.name.startswith(ALLOWED_IN_TMP)}
    if not soon(lambda: not GITS_LOCK.exists(), GIT_ENDS_WITHIN_S):
        found.add(GITS_LOCK)
    return [(LEFT, str(path)) for path in sorted(found)]


def _free_gpu(path: Path) -> bool:
    """Is this the lock of a GPU that nobody holds? Its file stays until the next command, however a command ends."""
    if not path.name.startswith(("GPU-", "MIG-")) or path.suffix != ".lock":
        return False
    lock = locks.take(path)
    if lock:
        lock.close()
    return lock is not None


def tracebacks(output: str, through: str = "") -> list[Breach]:
    """A traceback in the output; with `through`, only one that names a file there: the kit quotes the last lines of a real helping job that failed."""
    position = output.find("Traceback (most recent call last)")
    return [] if position < 0 or f'File "{through}' not in output[position:] and through else [(TRACEBACK, output[position:][-1500:])]
