"""One case from the plan to a stored result."""

import contextlib
import dataclasses
import datetime
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import forms
from bench.job import Job, Result, to_json, write_whole
from scripts import engines, gpus, jobs, locks, models, nsight, outputs, pins, preflight, results
from scripts.articles import Article, Case
from scripts.container import Outcome
from scripts.errors import KitError
from scripts.options import Options
from scripts.progress import JobDisplay
from scripts.results import Record

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Planned:
    """A case to run in one variant, on a stack that is already decided; `batch_size` None is the article's.

    `profiler` is torch or nsys where one call is to be profiled in place of being measured.
    """

    article: Article
    case: Case
    variant: str
    stack: str
    batch_size: int | None = None
    profiler: str = ""

    @property
    def title(self) -> str:
        batch = f", batch {self.batch_size}" if self.batch_size else ""
        profiled = f", profiled by {self.profiler}" if self.profiler else ""
        return f"{self.article.slug}/{self.case.name} ({self.variant}, {self.stack}{batch}{profiled})"


def device_count(planned: Planned, options: Options) -> int:
    """How many devices the case runs on: as typed, else as the article did."""
    return len(options.gpu_ids) if options.gpu_ids else options.gpus or planned.case.gpus


def perform(planned: Planned, options: Options, runs: Path) -> Record:
    """Run a case and store its result; one that is there already is returned, unless FORCE=1.

    Raises PreflightError or KitError where nothing could be measured: then nothing is stored either.
    """
    asked_at = time.monotonic()
    with contextlib.ExitStack() as stack:
        chosen = []
        if options.device == "cuda":
            chosen = stack.enter_context(gpus.select(ids=options.gpu_ids) if options.gpu_ids else gpus.select(count=device_count(planned, options)))
        image = pins.load().image(planned.case.backend, planned.stack)
        target = jobs.Target(planned.stack, options.device, len(chosen) or device_count(planned, options), options.weights, options.scale)
        typed = jobs.Typed(planned.batch_size, options.items, options.timed_runs)
        job = jobs.measuring_job(planned.article, planned.case, planned.variant, target, typed)
        job = jobs.profile_job(job, planned.profiler) if planned.profiler else job
        prefix = jobs.run_prefix(job, image.pins_id, options.engine, chosen[0].name if chosen else "cpu")
        _writable(runs)
        earlier = results.done(prefix, runs)
        if earlier and not options.force:
            print("  measured before; FORCE=1 measures it again", file=sys.stderr)
            return earlier
        engine = engines.choose(options.engine, image, models.folder(), chosen, options.timeout_s)
        if planned.profiler == "nsys":
            engine.wrapper = nsight.wrapper(options.engine)
        _preflight(planned, job, image, engine, runs)
        engine.prepare()
        return _measure(planned, job, prefix, engine, runs, options, asked_at)


def _writable(runs: Path) -> None:
    """Fail before measuring, not after."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        probe = runs / f".probe-{os.getpid()}"
        try:
            probe.write_bytes(b"\0" * 65536)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise KitError(f"{runs} cannot be written ({error.strerror}): make it writable and free some space, then type the same again") from error


def _preflight(planned: Planned, job: Job, image: pins.Image, engine: engines.Engine, runs: Path) -> None:
    parameters = planned.article.model_of(planned.case).get("parameters", 0) if job.model["scale"] == "full" else 0
    cuda_driver = (gpus.driver() or {}).get("cuda_driver", "") if engine.gpus else ""
    machine = preflight.this_machine(engine.gpus, cuda_driver, models.folder(), runs)
    docker = engine.name == "docker"
    built = docker and engine.is_built()
    # The host engine's torch is not the pinned one; the guest finds out what it can run.
    shown = image if docker else dataclasses.replace(image, arch_list=("compute_30",), cuda="")
    preflight.check(preflight.problems(job, shown, parameters, machine, parameters * 2, docker, built))


def _measure(planned: Planned, job: Job, prefix: str, engine: engines.Engine, runs: Path, options: Options, asked_at: float) -> Record:
    """Make what the job needs, run it with the memory sampler beside it, store what came. `asked_at` is monotonic, in s."""
    run_id = results.next_id(prefix, runs)
    folder = runs / run_id
    work = folder / "work"
    lock = locks.take(_lock_of(folder))
    if lock is None:
        raise KitError(f"{run_id} is being measured by another process; wait for it, then type the same again")
    try:
        work.mkdir(parents=True)
        with lock, JobDisplay(planned.title, folder / "log.txt") as display:
            job = _with_weights(dataclasses.replace(job, id=run_id), engine, work, display)
            write_whole(folder / "job.json", to_json(models.without_places(job)))
            if not options.force:
                outputs.hand_over(prefix, runs, work)
            display.phase("start")
            prepare_s, load_average = time.monotonic() - asked_at, round(os.getloadavg()[0], 2)
            with gpus.MemorySampler(engine.gpus) as sampler:
                outcome = engine.run(job, work, display.line)
        result, status, reason = engines.answer(work, outcome)
        _keep_traces(work, folder)
        record = Record(run_id, status, models.without_places(job), _host_facts(engine, outcome, result, sampler, prepare_s, load_average), result, reason)
        results.store(folder, record)
        return record
    except BaseException:
        if not (folder / "job.json").exists():
            shutil.rmtree(folder, ignore_errors=True)  # nothing was asked of the guest yet
        raise
    finally:
        outputs.keep(work)
        shutil.rmtree(work, ignore_errors=True)


def _keep_traces(work: Path, folder: Path) -> None:
    """What a profiler wrote goes beside the result."""
    for name in nsight.KEPT:
        if (work / name).exists():
            shutil.move(work / name, folder / name)


def _with_weights(job: Job, engine: engines.Engine, work: Path, display: JobDisplay) -> Job:
    """The job with the paths of its checkpoint and of its right answer; as it is where its form loads no model."""
    if job.kind == "measure" and not forms.loads(forms.find(job.form)):
        return job
    if job.model["weights"] == "random":
        checkpoint = models.random_checkpoint(engine, job, display.line)
        model = job.model
    else:
        checkpoint, commit = models.hub_checkpoint(job.model)
        model = {**job.model, "revision": commit}
    job = dataclasses.replace(job, model={**model, "path": engine.guest_path(checkpoint, work)})
    if job.kind == "profile":
        return dataclasses.replace(job, reference=None)
    return dataclasses.replace(job, reference=engine.guest_path(models.reference(engine, job, display.line), work))


def _host_facts(engine: engines.Engine, outcome: Outcome, result: Result | None, sampler: gpus.MemorySampler, prepare_s: float, load_average: float) -> dict:
    began = datetime.datetime.fromtimestamp(outcome.started_at, datetime.UTC)
    commit, dirty = git_state()
    return {
        "engine": engine.name,
        "started_at": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "began": round(outcome.started_at, 3),
        "prepare_s": round(prepare_s, 3),
        "wall_s": round(outcome.finished_at - outcome.started_at, 3),
        "commit": commit,
        "dirty": dirty,
        "pins_id": engine.image.pins_id,
        "image": engine.facts,
        "differences": engine.differences(result),
        "machine": machine() | {"load_average_before": load_average},
        "driver": gpus.driver() if engine.gpus else None,
        "gpus": [
            {key: getattr(gpu, key) for key in ("index", "uuid", "name", "memory_total_bytes", "compute_capability")} for gpu in engine.gpus
        ],
        "gpu_memory": sampler.summary(result.phases if result else {}),
    }


def git_state() -> tuple[str, bool]:
    """(commit, has the code changed since?); the results themselves do not count as changes.

    KIT_COMMIT comes first: it names the commit that a copy of the kit was taken from, of which git knows nothing or, with a repository
    of an older state beside it, the wrong thing.
    """

    typed = os.environ.get("KIT_COMMIT")
    if typed:
        return typed, False

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    if not commit:
        return "unknown", True
    return commit, bool(git("status", "--porcelain", "--", ".", ":!reports"))


def machine() -> dict:
    """This machine without its name: processor, cores, memory."""
    import psutil

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cpu_count": os.cpu_count(), "memory_total_bytes": psutil.virtual_memory().total}


def _lock_of(folder: Path) -> Path:
    """The lock that the runner of a run holds while it lives."""
    return locks.folder() / f"{folder.name}.lock"


def sweep_unfinished(runs: Path) -> Iterator[Path]:
    """Work folders that killed runners left; their runs stay, named as unfinished by the report. Those of living runners stay too."""
    for work in runs.glob("*/work"):
        lock = locks.take(_lock_of(work.parent))
        if lock:
            with lock:
                outputs.keep(work)
                shutil.rmtree(work, ignore_errors=True)
            yield work.parent
