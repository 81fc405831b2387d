"""Run an instrument on a case, in the image and with the weights of the case's runs, and store its findings.

The instruments of bench/instruments run in the image, in a process of their own; restrictions_cost.py runs on the host, around several such processes.

An instrument's process does not write where it measured, so the kit does: the job, the image, the machine and its GPUs, the commit.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.instruments import fitting
from bench.job import InvalidDocument, Job, to_json, write_whole
from scripts import results
from scripts.containers.container import Outcome, until_ended
from scripts.errors import KitError, UsageError
from scripts.machine import locks, signals, temporary_folders
from scripts.paths import ROOT
from scripts.results import answers, door
from scripts.run import checkpoints, engines, host_facts, measurement, restrictions_cost, runner
from scripts.run.engines import Engine
from scripts.run.options import Options
from scripts.run.progress import JobDisplay
from scripts.run.runner import Planned

#: The lock held while a reading gets its number, so that two commands on the same case do not replace each other's reading.
CLAIM = "instruments.lock"


@functools.cache
def names() -> Sequence[str]:
    """The instruments that examine one job: the guest's, whose first lines say so, and the host's."""
    files = (ROOT / "bench/instruments").glob("*.py")
    of_guest = [file.stem for file in files if re.search(rf"-m bench\.instruments\.{file.stem} JOB \[?OUT\b", file.read_text(encoding="utf-8"))]
    return tuple(sorted([*of_guest, restrictions_cost.NAME]))


def examine(name: str, planned: Planned, options: Options) -> Path:
    """Let an instrument examine a case, print its output, and return the file of its findings, in `instruments` beside the folder of results.

    Raises KitError where it fails. What it had found until then is stored first, also where the command is stopped.
    """
    asked_at, title = time.monotonic(), f"{name} on {planned.title}"
    folder = options.runs.parent / "instruments"
    with runner.gpus_of(planned, options, examined=True) as chosen, temporary_folders.made(temporary_folders.OF_INSTRUMENTS) as around:
        image = planned.image
        job, prefix = runner.question(planned, options, host_facts.devices(chosen))
        _refuse_without_model(job)
        _refuse_unfit(name, planned, job, options)
        runner.refuse_unwritable(folder)
        host_facts.stated_commit()  # a wrong KIT_COMMIT is refused now, not when the weights are made
        engine = engines.choose(image, chosen, options)
        runner.refuse_impossible(planned, job, engine, folder)
        engine.prepare()
        work, said = around / "work", _Said()
        work.mkdir()
        with JobDisplay(title) as display:
            job = dataclasses.replace(job, id=f"{name}-{prefix}")
            if name not in fitting.WITHOUT_WEIGHTS:
                job = measurement.with_checkpoint(job, engine, work, display.line)
            display.phase("examine")
            reading = _Reading(name, job, engine, host_facts.at_start(engine, asked_at) | {"between_gpus": host_facts.between_gpus(engine)}, folder)
            try:
                ended = _run(reading, work, said, display.phase)
            finally:
                said.show()
    if ended.status != "ok" or not ended.stored:
        raise KitError(f"{title} {ended.words}")
    return ended.stored


def _refuse_unfit(name: str, planned: Planned, job: Job, options: Options) -> None:
    """Raise UsageError for a job that the instrument does not examine, NothingRuns where the host's instrument lacks the engine that it needs."""
    of_host = name == restrictions_cost.NAME
    if reason := restrictions_cost.refusal(job, planned.image, options) if of_host else fitting.refusal(name, job):
        raise UsageError(f"{name} does not examine {planned.title}: {reason}")
    if of_host:
        restrictions_cost.must_connect(options)


def _refuse_without_model(job: Job) -> None:
    """Raise UsageError for a case that loads no model: an instrument would examine a model that no run of the case loads."""
    if not measurement.loads_model(job):
        raise UsageError(f"CASES is {job.case!r}, which loads no model; an instrument needs a case that loads one; try CASES=deepspeed ARTICLE=inference-tools")


class _Said:
    """The last lines that an instrument said, as a terminal can show them."""

    def __init__(self) -> None:
        self.lines: collections.deque[str] = collections.deque(maxlen=engines.SHOWN_LINES)

    def line(self, text: str) -> None:
        if not text.startswith("@{") and "\r" not in text.strip():  # neither reports of progress, nor a library's bar, which redraws its line
            self.lines.append(answers.one_line(text))

    def show(self) -> None:
        for line in self.lines:
            print(line, flush=True)


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The facts stored beside an instrument's findings; `host` holds what is known when its process starts."""

    instrument: str
    job: Job
    engine: Engine
    host: dict[str, Any]
    folder: Path


@dataclasses.dataclass(frozen=True)
class _Ended:
    """How an instrument ended: `status` as of a run, `words` to print after its name, and the file of its findings, None without one."""

    status: str
    words: str
    stored: Path | None = None


def _run(reading: _Reading, work: Path, said: _Said, enter: Callable[[str], None]) -> _Ended:
    """Run an instrument and store what it found, however its process ends: also where a signal stops the command, or the engine fails."""
    outcome, stopped, ended = None, None, _Ended("failed", f"did not end: {measurement.STOPPED}")
    try:
        outcome, stopped = _outcome(reading, work, said, enter)
        ended = _ended(outcome, reading.engine.asked.timeout_s)
    except KitError as error:
        ended = _Ended("failed", f"did not end: {error}")
        raise
    finally:
        with signals.held_back():  # what was found is stored before the command stops
            ended = _store(reading, work, outcome, ended)
        if ended.stored and (stopped or not outcome):
            print(f"note: the findings of {reading.instrument}{'' if outcome else ' so far'} are in {ended.stored}", file=sys.stderr)
    if stopped:
        raise stopped
    return ended


def _outcome(reading: _Reading, work: Path, said: _Said, enter: Callable[[str], None]) -> tuple[Outcome, BaseException | None]:
    """Run the instrument, one of the guest's in one process of the engine, the host's own around several: `until_ended` says what it returns."""
    if reading.instrument == restrictions_cost.NAME and isinstance(reading.engine, engines.contained.DockerEngine):
        return restrictions_cost.examine(reading.engine, reading.job, work, said.line, enter), None  # the end of one of its processes is not its own
    return until_ended(lambda: reading.engine.run(reading.job, work, said.line, module=f"bench.instruments.{reading.instrument}"))


def _ended(outcome: Outcome, timeout_s: int) -> _Ended:
    if outcome.timed_out:
        return _Ended("timeout", f"was stopped after {timeout_s} s; type TIMEOUT_S={2 * timeout_s} for more")
    if outcome.exit_code and outcome.oom_killed:
        return _Ended("oom", "was killed by the kernel: it needed more host memory than there was")
    if outcome.exit_code:
        return _Ended("failed", f"ended with {answers.exit_words(outcome.exit_code)}")
    return _Ended("ok", "ended with exit code 0")


def _store(reading: _Reading, work: Path, outcome: Outcome | None, ended: _Ended) -> _Ended:
    """Store what an instrument found and how it ended, because the answer of a failed process may be incomplete.

    An answer that is refused becomes no reading; its file is kept where the door lets it in.
    """
    told = {
        "instrument": reading.instrument,
        "job": dataclasses.asdict(checkpoints.without_places(reading.job, reading.engine.models)),
        "host": reading.host | (host_facts.when(outcome) if outcome else {}),
        "status": ended.status,
        "reason": "" if ended.status == "ok" else answers.one_line(ended.words),
    }
    try:
        found = door.parse(door.read(work / "result.json"))
        if not isinstance(found, dict):
            raise door.Refused("result.json holds no object")
    except FileNotFoundError:
        return dataclasses.replace(ended, words=f"{ended.words} and wrote no answer")
    except (InvalidDocument, OSError) as error:
        kept = _kept_rejected(reading, work)
        return dataclasses.replace(ended, words=f"{ended.words}, and its answer is refused: {error}{f'; it stays as {kept}' if kept else ''}")
    text = to_json({**told, "found": found})
    with _next(reading) as path:
        try:
            write_whole(path, text)
        except OSError as error:
            raise results.kept_elsewhere(path, text, error) from error
    return dataclasses.replace(ended, stored=path, words=f"{ended.words}; its findings so far are in {path}")


def _kept_rejected(reading: _Reading, work: Path) -> Path | None:
    with _next(reading, ".rejected") as path:
        with contextlib.suppress(InvalidDocument, OSError):
            if door.keep(work / "result.json", path):
                return path
    return None


@contextlib.contextmanager
def _next(reading: _Reading, kind: str = "") -> Iterator[Path]:
    """The path with the next free number, for a block that writes the file; earlier readings stay."""
    with locks.held(locks.folder() / CLAIM, locks.FOR_THIS_USER):
        names = (f"{reading.job.id}-{number:02d}{kind}.json" for number in itertools.count(1))
        yield next(path for path in (reading.folder / name for name in names) if not path.exists())
