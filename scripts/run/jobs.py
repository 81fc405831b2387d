"""From a case of an article to the job that the guest gets."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bench.job import Job
from bench.models import weights
from scripts import articles
from scripts.articles import Article, Case
from scripts.names import slug
from scripts.pins import models as model_pins
from scripts.results import Record
from scripts.results.machine_kind import MachineKind

SEED = 0


@dataclasses.dataclass(frozen=True)
class Target:
    """Where and on what a case runs."""

    stack: str
    device: str
    device_count: int
    weights: str
    scale: str


@dataclasses.dataclass(frozen=True)
class Typed:
    """Typed values, which replace the article's own."""

    batch_size: int | None = None
    items: int | None = None
    timed_runs: int | None = None


def _model(article: Article, case: Case, target: Target) -> dict[str, Any]:
    """The job's model without its path, which is known once the weights are there."""
    named = article.model_of(case)
    model = {**{key: named.get(key) for key in ("name", "architecture", "shape")}, "revision": _revision(named["name"], target.weights)}
    random = {"seed": SEED, "recipe": weights.RECIPE} if target.weights == "random" else {"seed": None}
    return {**model, "weights": target.weights, "scale": target.scale, **random, "path": ""}


def _revision(name: str, weights_of: str) -> str | None:
    """The pinned commit of real weights, "" where no pin has one: the runner then fills in the commit.

    Random weights take nothing from the hub. Jobs of pinned models say "main", as the first jobs did, so that their fingerprints stay the same.
    """
    pin = model_pins.load().get(name)
    if weights_of == "hub":
        return pin.commit if pin else ""
    return "main" if pin else None


def dtype_of(load: Mapping[str, Any]) -> str:
    """The dtype whose tolerance and bounds judge a job's output: int8 where the job asks for quantized weights."""
    return "int8" if load.get("quantization") else str(load["dtype"])


def measuring_job(article: Article, case: Case, variant: str, target: Target, typed: Typed = Typed()) -> Job:
    """The job that measures a case, with the article's batch size, items and timed calls unless others are typed.

    Its id, the model's path and the reference's are filled in when it runs.
    """
    load = article.load_of(case, variant, target.device)
    prompt = article.prompt_of(case)
    protocol = article.protocol_of(case)
    options = article.options_of(case, variant, target.scale)
    if typed.items and "items" in options:
        options["items"] = typed.items
    if typed.batch_size:
        prompt["batch_size"] = typed.batch_size
    if target.weights == "hub":
        prompt["tokens"] = None  # the model's own tokenizer counts
    return Job(
        id="",
        kind="measure",
        article=article.slug,
        case=case.name,
        variant=variant,
        backend=case.backend,
        stack=target.stack,
        device=target.device,
        device_count=target.device_count,
        model=_model(article, case, target),
        load=load,
        prompt=prompt,
        runs=article.runs_of(case, variant, target.scale),
        warmup_runs=protocol["warmup_runs"],
        timed_runs=typed.timed_runs or protocol["timed_runs"],
        tolerance=articles.tolerances()[dtype_of(load)]["value"],
        form=case.form,
        options=options,
    )


def profile_job(job: Job, profiler: str) -> Job:
    """The job that profiles one call of what a measuring job times, through plain `generate`; nothing is checked."""
    return dataclasses.replace(job, kind="profile", form="generate", options={"profiler": profiler}, tolerance=None)


def reference_job(job: Job) -> Job:
    """The job that computes the right answer for a measuring job: plain transformers, float32, greedy, one sequence."""
    return dataclasses.replace(
        job,
        kind="reference",
        id="reference",
        backend="transformers",
        load={"dtype": "float32"},
        prompt={**job.prompt, "batch_size": 1},
        tolerance=None,
        form="generate",
        options={},
    )


def reference_key(job: Job) -> str:
    """12 hex digits over what decides the right answer: the weights, the prompt, how many tokens, and the stack.

    Not the batch size: every row of a batch is the same sequence.
    """
    return _digits(job.model_without_path, {**job.prompt, "batch_size": 1}, job.most_new_tokens, job.stack)


def _digits(*facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def judge_job(job: Job, dtype: str, floors: dict[str, float]) -> Job:
    """The job that judges the tokens of a measuring job's timed calls, which ran in `dtype` (int8 for quantized weights)."""
    plain = dtype if dtype != "int8" else "float16" if job.device == "cuda" else "float32"
    return dataclasses.replace(reference_job(job), kind="judge", id="judge", options={"dtype": plain, "floors": floors})


def readings_key(job: Job) -> str:
    """12 hex digits over what decides how the reference reads tokens: the weights and the stack."""
    return _digits(job.model_without_path, job.stack)


def run_prefix(job: Job, pins_id: str, engine: str, seen: Mapping[str, Any]) -> str:
    """A run's id up to its number: readable, and different for runs that differ in anything that decides their numbers.

    `seen` is what the host sees of its machine, as in a record's host, because the kind of machine decides too; {} where no machine is chosen yet.
    A batch shows as `b8`; one sequence shows nothing.
    """
    kind = dataclasses.astuple(MachineKind.of(seen, job.device))
    fingerprint = hashlib.sha256(" ".join((job.fingerprint(), pins_id, engine, *kind)).encode()).hexdigest()[:12]
    gpus = seen.get("gpus") or []
    device_model = gpus[0]["name"] if gpus else "cpu" if job.device == "cpu" else ""
    weights = f"{job.model['weights']}-{job.model['scale']}"
    batch = [f"b{job.batch_size}"] if job.batch_size != 1 else []
    profiled = ["profile"] if job.kind == "profile" else []
    parts = [job.article, job.case, job.variant, *profiled, *batch, job.stack, weights, f"{job.device}{job.device_count}", slug(device_model), fingerprint]
    return ".".join(parts)


def prefix_of(record: Record) -> str:
    """The prefix that a stored run would have today, on the kind of machine that measured it: an earlier kit gave its id another hash."""
    return run_prefix(record.job, record.host.get("pins_id") or "", record.host["engine"], record.host)
