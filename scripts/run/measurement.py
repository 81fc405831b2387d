"""One run of a job that may start: its weights, its process with samplers beside it, its judge, and the record that is stored."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import forms
from bench.job import Job, Result, to_json, write_whole
from scripts import results
from scripts.containers.container import Outcome, until_ended
from scripts.errors import KitError
from scripts.machine import conditions, gpus, removal, signals, windows
from scripts.results import Record, answers, door
from scripts.run import checkpoints, conversion, engines, host_facts, judging, resume, run_folders
from scripts.run.engines import Engine, nsight
from scripts.run.progress import JobDisplay

#: Why tokens were not judged.
STOPPED = "the command was stopped"


@dataclasses.dataclass(frozen=True)
class Ready:
    """A job that may start, on an engine that is prepared; its run's id begins with `prefix`.

    `asked_at` is when it was asked for, in monotonic seconds; `anew`: do not continue from the answers of an earlier run that was cut off.
    """

    title: str
    job: Job
    prefix: str
    engine: Engine
    asked_at: float
    anew: bool


def measure(ready: Ready, folder: Path) -> Record:
    """Make what the job needs, run it, have its tokens judged, and store the outcome in the run's folder."""
    engine, work = ready.engine, folder / run_folders.WORK
    try:
        work.mkdir()
        with JobDisplay(ready.title, folder / "log.txt") as display:
            job = _with_weights(dataclasses.replace(ready.job, id=folder.name), engine, work, display)
            write_whole(folder / "job.json", to_json(checkpoints.without_places(job, engine.models)))
            resumed = not ready.anew and resume.hand_over(ready.prefix, folder.parent, work)
            display.phase("start")
            at_start = host_facts.at_start(engine, ready.asked_at)
            with _answer_kept(work, folder):
                ran = _watched(engine, job, work, display)
            result, status, reason = engines.answer(job, work, ran.outcome, engine.gpus, resumed)
            if result is None:
                answers.keep_rejected(work, folder)
            judged = Judged(0.0, STOPPED, ran.stopped) if ran.stopped else _judged(engine, job, result, work, display)
        with signals.held_back():  # what was measured is stored before the command stops
            facts = at_start | _seen(engine, ran, result) | host_facts.at_end(engine, ran.outcome, result, ran.sampler, ran.seconds, judged.seconds)
            if judged.why_not and status == "ok":  # any other status stands, because nobody judges its tokens
                status, reason = "failed", f"its tokens were not judged: {judged.why_not}"
            record = Record(folder.name, status, checkpoints.without_places(job, engine.models), facts, result, reason)
            results.store(folder, record)
            _keep_traces(work, folder)
        if judged.stopped:
            raise judged.stopped
        return record
    except BaseException:
        if not (folder / "job.json").exists():
            removal.remove(folder)  # nothing was asked of the guest yet
        raise
    finally:
        resume.keep(work)
        removal.remove(work)


@contextlib.contextmanager
def _answer_kept(work: Path, folder: Path) -> Iterator[None]:
    """If the engine fails within the block, keep an answer that the guest had already written beside job.json; the error says so."""
    try:
        yield
    except KitError as error:
        if answers.keep_rejected(work, folder):
            raise type(error)(f"{error}. The guest had written an answer; the answer does not count and is kept as {folder / answers.REJECTED}") from error
        raise


@dataclasses.dataclass(frozen=True)
class Ran:
    """How a job ended, in how many seconds, what was sampled beside it, and the signal that stopped the command once the job had ended."""

    outcome: Outcome
    seconds: float
    sampler: gpus.MemorySampler
    watch: conditions.Watch
    stopped: BaseException | None = None


def _watched(engine: Engine, job: Job, work: Path, display: JobDisplay) -> Ran:
    """Run the job with the samplers of memory and conditions beside it. A signal that comes once the job has ended loses nothing of it."""
    ran = None
    try:
        with (
            gpus.MemorySampler(engine.gpus) as sampler,
            conditions.Watch(engine.gpus, engine.cores, owns=engine.owns, shared_with=engine.asked.shared_with) as watch,
        ):
            began = time.monotonic()
            outcome, stopped = until_ended(lambda: engine.run(job, work, display.line))
            ran = Ran(outcome, time.monotonic() - began, sampler, watch, stopped)
    except (KeyboardInterrupt, SystemExit) as error:
        if ran is None:
            raise
        return dataclasses.replace(ran, stopped=error)
    return ran


@dataclasses.dataclass(frozen=True)
class Judged:
    """The judge's seconds, why there is no verdict, and the signal that stopped it, kept because the measurement is stored first."""

    seconds: float
    why_not: str = ""
    stopped: BaseException | None = None


def _judged(engine: Engine, job: Job, result: Result | None, work: Path, display: JobDisplay) -> Judged:
    """Have the tokens of the timed calls judged; the verdict goes into the result's check."""
    began, why_not, stopped = time.monotonic(), "", None
    try:
        judging.judge(engine, job, result, work, display.line)
    except judging.NotJudged as error:
        why_not = str(error)
    except (KeyboardInterrupt, SystemExit) as error:
        why_not, stopped = STOPPED, error
    return Judged(time.monotonic() - began, why_not, stopped)


def _seen(engine: Engine, ran: Ran, result: Result | None) -> dict[str, Any]:
    """What the watch saw during the guest's calls."""
    of_calls = windows.of_calls(result.measurements, result.figures.get("longer") or []) if result else []
    return {
        "conditions": ran.watch.summary(result.phases.get("measure") if result else None),
        "shared_with": engine.asked.shared_with,
        "energy": ran.watch.energy(of_calls),
        "busy": ran.watch.busy(of_calls),
    }


def _keep_traces(work: Path, folder: Path) -> None:
    """Move a profiler's files beside the result; a guest's trace that the door refuses is named and left out."""
    for name in nsight.KEPT:
        try:
            door.move(work / name, folder / name)
        except (door.Refused, OSError) as error:
            print(f"note: {error}; it is not kept", file=sys.stderr)


def loads_model(job: Job) -> bool:
    return job.kind != "measure" or forms.loads(forms.find(job.form))


def with_checkpoint(job: Job, engine: Engine, work: Path, on_line: Callable[[str], None]) -> Job:
    """The job with the path of its weights, which are made or fetched where they are not there."""
    if job.model["weights"] == "random":
        checkpoint = checkpoints.random_checkpoint(engine, job, on_line)
        model = job.model
    else:
        checkpoint, model = conversion.hub_checkpoint(job.model, engine.asked, on_line)
    return dataclasses.replace(job, model={**model, "path": engine.guest_path(checkpoint, work)})


def _with_weights(job: Job, engine: Engine, work: Path, display: JobDisplay) -> Job:
    """The job with the paths of its checkpoint and of its right answer; as it is where its form loads no model."""
    if not loads_model(job):
        return job
    job = with_checkpoint(job, engine, work, display.line)
    if job.kind == "profile":
        return dataclasses.replace(job, reference=None)
    return dataclasses.replace(job, reference=engine.guest_path(checkpoints.reference(engine, job, display.line), work))
