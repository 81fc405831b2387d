"""One case from the plan to a stored result."""

import contextlib
import dataclasses
import functools
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import forms
from bench.job import Job
from scripts import pins, results
from scripts.articles import Article, Case
from scripts.errors import KitError, UsageError
from scripts.machine import gpus
from scripts.models import article_models, hub, store
from scripts.pins import Image
from scripts.results import Record, marks
from scripts.run import checkpoints, engines, host_facts, jobs, measurement, preflight, run_folders
from scripts.run.engines import Engine, demo_environments
from scripts.run.options import Options


@dataclasses.dataclass(frozen=True)
class Planned:
    """A case to run in one variant, on a stack that is already decided; `batch_size` None is the article's.

    `profiler` is torch or nsys where one call is profiled instead of measured.
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

    @property
    def image(self) -> Image:
        """The image of its backend on its stack; raises UsageError where there is none."""
        return pins.load().image(self.case.backend, self.stack)


def device_count(planned: Planned, options: Options) -> int:
    """How many devices the case runs on: as typed, else as the article did."""
    return len(options.gpu_ids) if options.gpu_ids else options.gpus or planned.case.gpus


def most_gpus(cases: Sequence[Planned], options: Options) -> int:
    """How many GPUs suffice for each of the cases, run one after another; 0 on a CPU."""
    return 0 if options.device == "cpu" else max(device_count(case, options) for case in cases)


def perform(planned: Planned, options: Options, repeat: int = 1) -> Record:
    """Run a case and store its result. Where `repeat` runs are stored already, the newest is returned, unless FORCE=1.

    Raises PreflightError or KitError where nothing could be measured: then nothing is stored either.
    """
    asked_at, runs = time.monotonic(), options.runs
    with gpus_of(planned, options) as chosen:
        image = planned.image
        job, prefix = question(planned, options, host_facts.devices(chosen))
        refuse_unwritable(runs)
        host_facts.stated_commit()  # a wrong KIT_COMMIT is refused now, not when the weights are made

        def measured() -> Record | None:
            return None if options.force else results.enough(prefix, repeat, runs, jobs.prefix_of, lambda record: counts(record, options))

        earlier = measured()
        if not earlier:
            if not options.force:
                run_folders.refuse_twice(prefix, runs)
            engine = engines.choose(image, chosen, options, planned.profiler)
            refuse_impossible(planned, job, engine, runs)
            engine.prepare()
            with run_folders.claimed(prefix, runs, measured, anew=options.force) as folder:
                if isinstance(folder, Path):
                    return measurement.measure(measurement.Ready(planned.title, job, prefix, engine, asked_at, anew=options.force), folder)
                earlier = folder
        print("  measured before; FORCE=1 measures it again", file=sys.stderr)
        return earlier


def counts(record: Record, options: Options) -> bool:
    """Does a stored run count as one of those asked for? A run beside others (JOBS) judges nothing, so it does not count as a run alone.

    Nor does a run count that ran out of the host's memory, or of any memory on a disturbed machine: a repeat may end otherwise.
    """
    if record.host.get("shared_with"):
        return bool(options.shared_with or options.jobs > 1)
    return record.status != "oom" or marks.ran_out_by_itself(record)


def question(planned: Planned, options: Options, seen: Mapping[str, Any]) -> tuple[Job, str]:
    """(the job without its id and the paths of its files, the prefix of its runs' ids); `seen` is what the host sees of the machine."""
    job = _job(planned, options)
    return job, jobs.run_prefix(job, planned.image.pins_id, options.engine, seen)


def gpus_of(planned: Planned, options: Options, examined: bool = False) -> contextlib.AbstractContextManager[list[gpus.Gpu]]:
    """The GPUs that the case runs on, held for a `with` block; none on a CPU.

    Where there is no GPU, the error proposes `make demo`, but not for a case that is profiled, `examined` by an instrument or without a model, as those
    of the calibration: the demo does none of these.
    """
    if options.device == "cpu":
        return contextlib.nullcontext([])
    count = None if options.gpu_ids else device_count(planned, options)
    of_this_case = examined or planned.profiler or not forms.loads(forms.find(planned.case.form))
    instead = demo_environments.in_place_of_gpus(planned.case.backend) if of_this_case else "make demo"
    return gpus.select(count, options.gpu_ids, options.allow_busy, instead)


def _job(planned: Planned, options: Options) -> Job:
    target = jobs.Target(planned.stack, options.device, device_count(planned, options), options.weights, options.scale)
    typed = jobs.Typed(planned.batch_size, options.items, options.timed_runs)
    job = jobs.measuring_job(planned.article, planned.case, planned.variant, target, typed)
    if options.weights == "hub" and measurement.loads_model(job):
        name = job.model["name"]
        commit = _commit_for_plan(name, options) if options.plan else store.commit_of(article_models.find(name), options.models, options.model_path)
        job = dataclasses.replace(job, model={**job.model, "revision": commit})
    return jobs.profile_job(job, planned.profiler) if planned.profiler else job


@functools.cache  # each row of a plan asks, and each question waits for a hub that does not answer
def _commit_for_plan(name: str, options: Options) -> str:
    """The commit of a model, or "" with a note where nobody tells it: a plan starts nothing, so it reads no weights and works without a network too."""
    try:
        return store.commit_of_plan(article_models.find(name), options.models, options.model_path)
    except hub.CannotFetch as error:
        print(f"note: this plan counts no stored run with the weights of {name}, whose commit is unknown: {error}", file=sys.stderr)
        return ""


def refuse_unwritable(runs: Path) -> None:
    """Fail before measuring, not after: UsageError where RUNS is no folder and cannot be made, KitError where it takes no file."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=runs, buffering=0) as probe:  # without a name, so that a killed runner leaves none
            probe.write(b"\0" * 65536)
    except OSError as error:
        kind = KitError if runs.is_dir() else UsageError
        fault = f"the results' folder {runs} cannot be written ({error.strerror})"
        raise kind(f"{fault}, allowed is a folder that can be written; type RUNS=/another/folder") from error


def refuse_impossible(planned: Planned, job: Job, engine: Engine, runs: Path) -> None:
    """Raise PreflightError, or KitError, for all that this machine lacks for the job."""
    parameters = planned.article.model_of(planned.case).get("parameters", 0) if job.model["scale"] == "full" else 0
    cuda_driver = (gpus.driver() or {}).get("cuda_driver", "") if engine.gpus else ""
    machine = preflight.this_machine(engine.gpus, cuda_driver, engine.models, runs)
    # The host engine's torch and kernels are not the pinned ones; the guest finds out what they can run.
    shown = dataclasses.replace(engine.image, arch_list=("compute_30",), cuda="", options={}) if engine.name == "host" else engine.image
    weights_bytes = checkpoints.still_to_come_bytes(job.model, engine.models, engine.asked.model_path) if parameters else 0
    if weights_bytes is None:
        weights_bytes = 2 * parameters  # all of them may be missing
    image_bytes = preflight.IMAGE_BYTES if engine.name == "docker" and not engine.is_built() else 0
    preflight.check(preflight.problems(job, shown, parameters, machine, weights_bytes + image_bytes))
