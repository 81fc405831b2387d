"""reports/runs: one folder per run, written once, read by the report.

Runs with ENGINE=host lie in reports/without-containers/runs, trials (tiny models, or a CPU) in reports/trials/runs, which git ignores.

A run's folder is named by its id, "<prefix>-<NN>", and holds job.json (what was asked) and result.json (a Record: what
came out). result.json is written whole or not at all and never again; a folder without one is a run that did not finish.
"""

import contextlib
import dataclasses
import datetime
import gc
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.job import SCHEMA, STATUSES, InvalidDocument, Job, Result, job_of, result_of, to_json, write_whole
from scripts.errors import KitError, UsageError
from scripts.paths import ROOT
from scripts.results import compact, consistency, copies, door, shapes

RUNS = ROOT / "reports" / "runs"
#: Runs by an interpreter of the machine in place of a pinned image; they have a report of their own.
WITHOUT_CONTAINERS = ROOT / "reports" / "without-containers" / "runs"
TRIALS = ROOT / "reports" / "trials" / "runs"
#: Statuses that a repeat would give again; a run that failed or ran out of time is tried again.
DONE = ("ok", "oom", "unsupported")

#: Parts of a result of which thousands of runs have only a few different ones: of the job, the host's facts and the guest's answer.
_SHARED_OF_JOB = ("model", "load", "prompt", "runs", "options", "reference")
_SHARED_OF_HOST = ("gpus", "driver", "image", "differences", "commit")
_SHARED_OF_GUEST = ("environment", "compat", "used")


@dataclasses.dataclass(frozen=True)
class Record:
    """One result.json: the Job, what the guest answered (None when it never did), and what the host saw, as scripts/results/shapes.py has it.

    `host`, and the values in the job and the guest's result, are plain data that was checked: keys of a newer kit stay in them.
    """

    id: str
    status: str
    job: Job
    host: dict[str, Any]
    guest: Result | None = None
    reason: str = ""
    schema: int = SCHEMA

    @property
    def id_without_number(self) -> str:
        """What the ids of a row's runs begin with, as its kit wrote them."""
        return self.id.rpartition("-")[0]

    @property
    def number(self) -> int:
        return int(self.id.rsplit("-", 1)[1])

    @property
    def figures(self) -> dict[str, Any]:
        """What the form measured beside the calls; {} where the guest told nothing."""
        return self.guest.figures if self.guest else {}


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A path under the runs folder that is no result, and why; a file beside the runs' folders is no run."""

    path: Path
    reason: str
    is_run: bool = True


def runs_for(scale: str, device: str, engine: str) -> Path:
    """The default folder of a run: trials, and runs without containers, lie apart from the results that the first report shows."""
    if scale == "tiny" or device == "cpu":
        return TRIALS
    return WITHOUT_CONTAINERS if engine == "host" else RUNS


def report_of(runs: Path) -> Path:
    """The folder of the report on a folder of runs: the parent of `runs`; for another name a new one beside it, because the parent may be anything."""
    return runs.parent if runs.name == RUNS.name else runs.with_name(f"{runs.name}-report")


def where_shown(runs: Path) -> str:
    """The command that writes the report on a folder of runs, and the report's path."""
    return f"type make report{_typed(runs)} to see it in {_from_here(report_of(runs) / 'REPORT.md')}"


def any_run(runs: Path) -> bool:
    """Does a folder hold at least one run, finished or not, damaged or not?"""
    return any(os.path.lexists(runs / name / file) for name in _folders(runs) for file in ("job.json", "result.json"))


def no_run_in(name: str, typed: str, folder: Path) -> UsageError:
    """The error for a variable whose folder holds no run; the folder `runs` within it may hold some."""
    better = f"{folder / 'runs'}" if any_run(folder / "runs") else f"reports/runs, or type {measuring_into(folder)}, which puts a run there"
    return UsageError(f"{name} is {typed!r}, which holds no run; try {name}={better}")


def measuring_into(runs: Path) -> str:
    """A command that puts a run into a folder of results."""
    return f"make bench-layer-parallel{_typed(runs)}"


def must_hold_runs(runs: Path) -> None:
    """UsageError where RUNS leads to no folder, or to one without a run: a report on it would show nothing."""
    if not runs.is_dir():
        other = "/folder/of/results" if runs == RUNS else "reports/runs"
        raise UsageError(f"RUNS is {str(runs)!r}, which is not a folder; type {measuring_into(runs)}, which makes it, or RUNS={other}")
    if not any_run(runs):
        raise no_run_in("RUNS", str(runs), runs)


def _typed(runs: Path) -> str:
    """ " RUNS=…" as it is typed after a target; "" for a folder that the kit takes by default."""
    return "" if runs in (RUNS, WITHOUT_CONTAINERS) else f" {shlex.quote(f'RUNS={_from_here(runs)}')}"


def _from_here(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def store(folder: Path, record: Record) -> Path:
    """Write result.json into a run's folder and return its path.

    Where that cannot be done the record is kept in a temporary folder, and the KitError says where it is and what to
    type. A result that exists is never replaced: KitError too.
    """
    path = folder / "result.json"
    text = _storable(record)
    if path.exists():
        raise KitError(f"{path} exists and is never overwritten; FORCE=1 runs the case again under the next number")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise kept_elsewhere(path, text, error) from error
    return path


def _storable(record: Record) -> str:
    """A record as JSON. Text that is no UTF-8, as among the host's facts, is replaced, so that it does not cost the measurement."""
    return to_json(record).encode(errors="replace").decode()


def kept_elsewhere(path: Path, text: str, error: OSError) -> KitError:
    """Keep what was measured in a temporary folder, because its file cannot be written; the returned error says where it is and what to type."""
    why = f"cannot write {path}: {error.strerror or error}"
    for shelter in (_temporary_folder, lambda: "/dev/shm"):
        try:
            kept = _kept_in(shelter(), text)
        except OSError:
            continue
        folder, source, target = (shlex.quote(str(part)) for part in (path.parent, kept, path))
        return KitError(f"{why}; the result is kept at {kept}, bring it in with: mkdir -p {folder} && cp {source} {target}")
    sys.stdout.write(text)  # no disk takes it: the terminal is the last place where it is not lost
    return KitError(f"{why}, and no temporary folder takes the result either; the result is printed above, save it as {path}")


def _kept_in(shelter: str, text: str) -> Path:
    """Write a result into a new folder in `shelter`, and remove the folder where it has no room."""
    folder = Path(tempfile.mkdtemp(prefix="llm-repro-", dir=shelter))
    try:
        write_whole(folder / "result.json", text)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder / "result.json"


def _temporary_folder() -> str:
    tempfile.tempdir = None  # look again: the folder found earlier may be the one that is full now
    return tempfile.gettempdir()


def load(folder: Path) -> Record:
    """The Record of a run's folder; raises InvalidDocument or OSError. A run that ended well and contradicts itself is damaged: verdicts would rest on it."""
    record = whole(folder)
    contradiction = next(consistency.problems(record), "") if record.status == "ok" else ""
    _expect(not contradiction, f"damaged result.json: {contradiction}")
    return record


def whole(folder: Path) -> Record:
    """As `load`, for a run whose parts may contradict each other."""
    try:
        record = record_of(door.parse(door.read(folder / "result.json")))
    except FileNotFoundError:
        raise InvalidDocument("no result.json: the run has not finished, or its runner was killed") from None
    if record.id != folder.name:
        raise InvalidDocument(f"result.json is of run {record.id[:255]}, not of this folder")
    return record


def load_all(runs: Path) -> tuple[list[Record], list[Skipped]]:
    """Every result under the runs folder, and what else lies there, both in the order of their names."""
    records: list[Record] = []
    skipped: list[Skipped] = []
    with _no_garbage_collection():
        for name in _folders(runs):
            folder = runs / name
            try:
                records.append(load(folder))
            except (InvalidDocument, OSError) as error:
                skipped.append(Skipped(folder, str(error)))
    skipped += [Skipped(runs / name, "a file in place of a run's folder", is_run=False) for name in _names(runs, folders=False)]
    return records, sorted(skipped, key=lambda skip: skip.path.name)


def load_runs(runs: Path) -> tuple[list[Record], list[Skipped]]:
    """As load_all, with each copy of another result among the skipped: reports and comparisons count runs."""
    records, skipped = load_all(runs)
    copied = dict(copies.of((record.id, record.guest) for record in records))
    skipped += [Skipped(runs / name, f"{why}; a copy is no run") for name, why in copied.items()]
    return [record for record in records if record.id not in copied], sorted(skipped, key=lambda skip: skip.path.name)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Thousands of records are read and kept: looking through them for garbage takes a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def existing(prefix: str, runs: Path) -> list[str]:
    """The ids of the runs "<prefix>-<NN>", finished or not, in the order of their numbers."""
    numbered = [(name, name[len(prefix) + 1 :]) for name in _folders(runs) if name.startswith(prefix + "-")]
    return [name for name, number in sorted(numbered, key=lambda pair: (len(pair[1]), pair[1])) if number.isascii() and number.isdecimal()]


def next_number(prefix: str, runs: Path) -> int:
    """The number of the next run with this prefix; numbers start at 1, and a run that did not finish has used its own."""
    ids = existing(prefix, runs)
    return int(ids[-1].rsplit("-", 1)[1]) + 1 if ids else 1


def ended(prefix: str, runs: Path, prefix_of: Callable[[Record], str] | None = None) -> Iterator[Record]:
    """The runs with this prefix that came to their end, the latest first; `prefix_of` is as for `enough`."""
    yield from _ended(reversed(existing(prefix, runs)), runs)
    yield from _of_earlier_kits(prefix, runs, prefix_of)


def ended_like(readable: str, runs: Path) -> Iterator[Record]:
    """The runs that came to their end and whose ids begin with this prefix without a hash: the same row under any pins, in no order of time."""
    yield from _ended([name for name in _folders(runs) if name.startswith(readable + ".")], runs)


def enough(
    prefix: str, count: int, runs: Path, prefix_of: Callable[[Record], str] | None = None, counts: Callable[[Record], bool] = lambda record: True
) -> Record | None:
    """The latest run with this prefix where `count` of them came to their end, or None. Runs that ran out of memory, or are unsupported, are not repeated.

    An id keeps the hash that its kit gave it. `prefix_of` says which prefix a stored run would have today, so that a run which an
    earlier kit wrote under another hash counts too if its job is the very same. Runs for which `counts` is False are ignored.
    """
    latest = None
    for number, record in enumerate(filter(counts, ended(prefix, runs, prefix_of)), 1):
        latest = latest or record
        if number == count or latest.status != "ok":
            return latest
    return None


def _of_earlier_kits(prefix: str, runs: Path, prefix_of: Callable[[Record], str] | None) -> Iterator[Record]:
    """The runs of another hash that would have this prefix today, the latest first; a hash says nothing of the order."""
    if prefix_of:
        same, readable = set(existing(prefix, runs)), prefix.rpartition(".")[0] + "."
        alike = [name for name in _folders(runs) if name.startswith(readable) and name not in same]
        found = [record for record in _ended(alike, runs) if prefix_of(record) == prefix]
        yield from sorted(found, key=lambda record: (record.host["started_at"], record.number), reverse=True)


def _ended(names: Iterable[str], runs: Path) -> Iterator[Record]:
    """The runs among these that came to their end."""
    for name in names:
        try:
            record = load(runs / name)
        except (InvalidDocument, OSError):
            continue
        if record.status in DONE:
            yield record


def _folders(runs: Path) -> list[str]:
    return _names(runs, folders=True)


def _names(runs: Path, folders: bool) -> list[str]:
    """The names of the folders, or of the files, under the runs folder, sorted; hidden files are the kit's own."""
    try:
        with os.scandir(runs) as entries:
            return sorted(entry.name for entry in entries if _is_folder(entry) == folders and not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"RUNS is {str(runs)!r}, which cannot be read ({error.strerror}), allowed is a folder that you may read; try RUNS={RUNS}") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False too for what cannot be followed, such as a link to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _expect(condition: object, message: str) -> None:
    if not condition:
        raise InvalidDocument(message)


def record_of(fields: object) -> Record:
    if not isinstance(fields, dict):
        raise InvalidDocument("expected a JSON object")
    schema = fields.get("schema")
    _expect(schema in (1, SCHEMA) and not isinstance(schema, bool), f"schema is {schema!r:.60}, this kit reads 1 and {SCHEMA}")
    unknown = sorted(set(fields) - {field.name for field in dataclasses.fields(Record)})
    _expect(not unknown, f"unknown field {unknown[0] if unknown else ''!r:.60}")
    shapes.check(fields, shapes.Record)
    job = job_of(compact.with_shared(fields["job"], *_SHARED_OF_JOB))
    host = compact.with_shared(fields["host"], *_SHARED_OF_HOST)
    _expect_a_span(host)
    _expect(job.kind != "profile" or job.options.get("profiler"), "a profile's job names no profiler")
    guest = None if fields.get("guest") is None else _guest(fields["guest"])
    record = Record(**{**fields, "job": job, "host": host, "guest": guest, "schema": SCHEMA})
    _expect(record.status in STATUSES, f"status is {record.status!r}, allowed are {', '.join(STATUSES)}")
    _expect(record.status == "ok" or record.reason, f"status {record.status} without a reason")
    if record.status == "ok":
        _expect_measured(job, guest)
    return record


def _expect_a_span(host: Mapping[str, Any]) -> None:
    """The job's beginning and its end must be moments of the calendar, because pages and bundles tell both."""
    began, wall_s = host["started_at"], host.get("wall_s") or 0
    try:
        datetime.datetime.fromisoformat(began) + datetime.timedelta(seconds=wall_s)
    except (ValueError, OverflowError) as error:
        raise InvalidDocument(f"started_at is {began!r} with wall_s {wall_s:g}, allowed are moments of the calendar: {error}") from None


def _expect_measured(job: Job, guest: Result | None) -> None:
    if guest is None:
        raise InvalidDocument("status ok without an answer of the guest")
    timed = [measurement["timed_ms"] for measurement in guest.measurements]
    # A form may measure other things than calls.
    _expect(job.kind != "measure" or ((timed or guest.figures) and all(timed)), "status ok without a timed call")


def _guest(fields: dict[str, Any]) -> Result:
    figures = compact.with_packed_times(fields.get("figures") or {})
    return result_of({**compact.with_shared(fields, *_SHARED_OF_GUEST), "figures": figures})
