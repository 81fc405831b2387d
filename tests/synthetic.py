"""Made-up runs for the tests of the report: nothing here was ever measured."""

import copy
import dataclasses
import functools
import itertools
import json
import math
import pickle
import random
from pathlib import Path

from bench.job import Job, Result, to_json
from scripts import articles, stats
from scripts.results import Record

GIB = 1 << 30
PACKAGES = {"torch": "9.9.9", "transformers": "8.8.8", "numpy": "7.7.7"}


def samples(mean_ms: float, spread: float = 0.005, count: int = 10, seed: int = 0) -> list[float]:
    """Timed calls around a mean, the same for the same arguments."""
    draw = random.Random(f"{seed} {mean_ms}")
    return [round(mean_ms * (1 + draw.uniform(-spread, spread)), 6) for _ in range(count)]


def over_calls(values: list[float]) -> stats.Estimate:
    """The mean with its interval over calls: their ratio to calls that all take 1 ms."""
    return stats.ratio(values, [1.0] * stats.LEAST_SAMPLES)


def job(
    case: str,
    count: int = 1,
    *,
    article: str = "inference-tools",
    variant: str = "published",
    stack: str = "current",
    device: str = "cuda",
    scale: str = "full",
    weights: str = "random",
    new_tokens: tuple[int, ...] = (1,),
    timed_runs: int = 10,
    prompt: str = "synthetic",
    recipe: int = 2,
) -> Job:
    return Job(
        id="",
        kind="measure",
        article=article,
        case=case,
        variant=variant,
        backend=case,
        stack=stack,
        device=device,
        device_count=count,
        model={
            "name": "synthetic",
            "architecture": "bloom",
            "shape": "bloomz-7b1",
            "weights": weights,
            "scale": scale,
            "seed": 0,
            **({"recipe": recipe} if recipe > 1 else {}),
            "revision": None,
            "path": "",
        },
        load=loading(article, case, variant, device),
        prompt={"text": prompt, "tokens": 8, "batch_size": 1},
        runs=[{"new_tokens": one, "arguments": {}} for one in new_tokens],
        warmup_runs=2,
        timed_runs=timed_runs,
        tolerance=1e-3,
    )


@functools.cache
def known() -> dict[str, articles.Article]:
    return articles.load_all()


def loading(article: str, case: str, variant: str, device: str) -> dict:
    """The loading arguments of a case that is known, so that its rows answer the question that the case asks now."""
    found = known().get(article)
    of_case = found.case(case) if found and variant in found.variants else None
    return found.load_of(of_case, variant, device) if found and of_case else {"dtype": "float32"}


def check(error: float | None = 2e-4, passed: bool = True) -> dict:
    return {
        "logits_relative_error": error,
        "tolerance": 1e-3,
        "greedy_common_prefix_tokens": 1,
        "greedy_tokens": 1,
        "passed": passed,
        "reason": "" if passed else "synthetic",
    }


def gpu(number: int, name: str = "SYNTHETIC GPU", memory_gib: int = 24) -> dict:
    return {"index": number, "uuid": f"GPU-synthetic-{number}", "name": name, "memory_total_bytes": memory_gib * GIB, "compute_capability": "8.6"}


def host(
    asked: Job,
    *,
    gpu_name: str = "SYNTHETIC GPU",
    memory_gib: int = 24,
    peak_gib: float = 10.0,
    started_at: str = "2026-11-21T04:10:00Z",
    differences: tuple[str, ...] = (),
) -> dict:
    gpus = [gpu(number, gpu_name, memory_gib) for number in range(asked.device_count)] if asked.device == "cuda" else []
    return {
        "engine": "docker",
        "started_at": started_at,
        "wall_s": 12.5,
        "commit": "0" * 40,
        "dirty": False,
        "differences": list(differences),
        "image": {
            "tag": f"llm-repro/{asked.backend}:{asked.stack}-synthetic",
            "id": "sha256:" + "0" * 64,
            "digest": None,
            "pins_id": "0" * 12,
            "stand_in": False,
        },
        "machine": {"cpu": "SYNTHETIC CPU", "cpu_count": 2, "memory_total_bytes": 8 * GIB},
        "driver": {"driver": "999.99", "cuda_driver": "99.9"} if gpus else None,
        "gpus": gpus,
        "gpu_memory": [
            {"uuid": one["uuid"], "index": one["index"], "baseline_bytes": 0, "peak_used_bytes": int(peak_gib * GIB), "peak_by_phase": {}, "samples": 9}
            for one in gpus
        ],
    }


def guest(asked: Job, means_ms: tuple[float, ...], checked: dict | None, spread: float = 0.005, seed: int = 0) -> Result:
    measurements = [
        {
            "new_tokens": run["new_tokens"],
            "cold_ms": mean_ms * 5 if place == 0 else None,
            "warmup_ms": [mean_ms] * asked.warmup_runs,
            "timed_ms": samples(mean_ms, spread, asked.timed_runs, seed),
        }
        for place, (run, mean_ms) in enumerate(zip(asked.runs, means_ms, strict=True))
    ]
    devices = [{"device": f"cuda:{number}", "peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 9 * GIB} for number in range(asked.device_count)]
    return Result(
        id="",
        status="ok",
        load_s=3.21,
        prompt_tokens=8,
        batch_size=1,
        measurements=measurements,
        memory={"devices": devices if asked.device == "cuda" else [], "peak_rss_bytes": 2 * GIB},
        check=checked,
        used={"dtype": "float32"},
        environment={"python": "3.12.0", "packages": PACKAGES, "torch": {"version": "9.9.9"}},
        figures={"cycles": cycles(asked)} if asked.form == "padded-sentences" else {},
    )


def calls_s(answer: Result) -> float:
    """The seconds of all calls of an answer, and of loading."""
    calls_ms = [ms for calls in answer.measurements for ms in (calls["cold_ms"] or 0.0, *calls["warmup_ms"], *calls["timed_ms"])]
    return (answer.load_s or 0.0) + math.fsum(calls_ms) / 1000


def cycles(asked: Job) -> dict[str, int]:
    """What the form `padded-sentences` counts of one call, where no answer ends early."""
    sequences = asked.prompt.get("batch_size") or 1
    tokens = sequences * asked.runs[-1]["new_tokens"]
    return {"sequences": sequences, "counted_tokens": tokens, "real_tokens": tokens, "ranks": 1}


def record(
    asked: Job,
    means_ms: tuple[float, ...] | float = 100.0,
    *,
    status: str = "ok",
    reason: str = "",
    checked: dict | None = None,
    unchecked: bool = False,
    number: int = 1,
    spread: float = 0.005,
    seed: int = 0,
    **facts: object,
) -> Record:
    """A Record of a job; `facts` go to host(). A status other than ok comes without an answer of the guest."""
    means = means_ms if isinstance(means_ms, tuple) else (means_ms,) * len(asked.runs)
    facts_of_host = host(asked, **facts)
    device = (facts_of_host["gpus"][0]["name"] if facts_of_host["gpus"] else "cpu").lower().replace(" ", "-")
    model = asked.model
    parts = [
        asked.article,
        asked.case,
        asked.variant,
        asked.stack,
        f"{model['weights']}-{model['scale']}",
        f"{asked.device}{asked.device_count}",
        device,
        asked.fingerprint(),
    ]
    run_id = f"{'.'.join(parts)}-{number:02d}"
    answer = guest(asked, means, None if unchecked else checked or check() | {"tolerance": asked.tolerance}, spread, seed) if status == "ok" else None
    if answer:
        answer.id = run_id
        facts_of_host["wall_s"] = max(facts_of_host["wall_s"], round(2 * calls_s(answer), 3))
    return Record(run_id, status, dataclasses.replace(asked, id=run_id), facts_of_host, answer, reason)


def repeated(one: Record, count: int = 5, scatter: float = 0.01) -> list[Record]:
    """Runs of the very same job, the given one among them at its times: the others lie around it, up to `scatter` of its times away."""
    runs = []
    whole = pickle.dumps(one)
    for number in range(1, count + 1):
        run = pickle.loads(whole)  # a copy of its own, in a twentieth of copy.deepcopy's time
        place = 2 * (number - 1) / (count - 1) - 1 if count > 1 else 0.0
        for measurement in run.guest.measurements if run.guest else []:
            measurement["timed_ms"] = [ms * math.exp(scatter * place) for ms in measurement["timed_ms"]]
        run.host["started_at"] = f"2026-11-2{number % 10}T04:10:00Z"
        runs.append(dataclasses.replace(run, id=f"{one.id.rsplit('-', 1)[0]}-{number:02d}"))
    return runs


def article_runs() -> list[Record]:
    """A whole table of the first article on made-up GPUs: a failed check, an unsupported row, a repeated run, deviations."""
    controlled = {"variant": "controlled", "new_tokens": (1, 128)}
    return [
        record(job("transformers"), 60.0),
        record(job("layer-parallel", 2), 61.5),
        record(job("tensor-parallel", 2), 40.25, differences=("torch: pinned 9.9.9, found 9.9.8",)),
        record(job("int8"), 90.0, peak_gib=9.5),
        record(job("deepspeed", 2), 12.0, number=1),
        record(job("deepspeed", 2), 12.5, number=2, seed=7, started_at="2026-11-22T04:10:00Z"),
        record(job("bminf"), 700.0, checked=check(0.33, passed=False)),
        record(job("transformers", **controlled), (30.0, 1900.0)),
        record(job("layer-parallel", 2, **controlled), (31.0, 2000.0)),
        record(job("deepspeed", 2, **controlled), (12.0, 900.0)),
        record(job("int8", **controlled), status="oom", reason="CUDA out of memory. Tried to allocate | 1.00 GiB"),
        record(job("bminf", **controlled), status="unsupported", reason="bminf 2.0.1 needs <torch> 1.x"),
        record(job("transformers", device="cpu", scale="tiny"), 5.0),
        record(job("deepspeed", 2, device="cpu", scale="tiny"), status="unsupported", reason="needs an NVIDIA GPU"),
        record(job("bloom-transformers", article="demo", stack="demo", variant="controlled", device="cpu", scale="tiny", new_tokens=(1, 16)), (2.1, 30.0)),
    ]


def write(runs: Path, records: list[Record]) -> None:
    for place, one in enumerate(records):
        folder = runs / one.id
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(to_json(one.job), encoding="utf-8")
        (folder / "result.json").write_text(to_json(_apart(one, place)), encoding="utf-8")


def _apart(one: Record, place: int) -> Record:
    """The run with a first call of its own, by nanoseconds: real runs never have equal times, and a report takes those for copies."""
    run = copy.deepcopy(one)
    for measurement in run.guest.measurements if run.guest else []:
        measurement["timed_ms"][:1] = [ms + place * 1e-6 for ms in measurement["timed_ms"][:1]]
    return run


def probed(one: Record, *, read_us: float = 1000.0, step_ms: float = 4.0, between_ms: float = 10.0, joules: float = 900.0, code: str = "ok") -> Record:
    """The run with what a GPU's probes, token stamps and energy counter would add: 4 GB in `read_us`, 1.1 TFLOP in 1,400 µs."""
    run = copy.deepcopy(one)
    assert run.guest
    device = {"read_bytes": 4_000_000_000, "read_width": 4096, "read_us": [read_us] * 3, "matrix_flop": 1_100_000_000_000, "matrix_us": [1400.0] * 3}
    run.guest.figures |= {
        "roof": {"devices": [{**device, "device": f"cuda:{number}"} for number in range(run.job.device_count)]},
        "products": {"rows": run.job.batch_size, "weight_bytes": 14_000_000_000, "step_us": [1000 * step_ms] * 3},
    }
    longest = run.job.runs[-1]["new_tokens"]
    run.guest.figures["token_times"] = {"new_tokens": longest, "first_ms": [20.0, 21.0, 30.0], "between_ms": [[between_ms] * (longest - 1)] * 3}
    run.host["energy"], run.host["busy"] = [], []
    for measurement in run.guest.measurements:
        seconds = sum(measurement["timed_ms"]) / 1000 + 0.01
        measurement["timed_at"] = [1_700_000_000.0, 1_700_000_000.0 + seconds]
        of_gpu = {"code": code, "seconds": seconds, "joules": joules, "updates": 20, "power_joules": joules * 1.02, "idle_w": 84.0}
        gpus = [{"uuid": one["uuid"], **of_gpu} for one in run.host["gpus"]]
        run.host["energy"].append({"new_tokens": measurement["new_tokens"], "gpus": gpus})
        shares = [{"uuid": one["uuid"], "code": "ok", "samples": 9, "share": 0.5} for one in run.host["gpus"]]
        run.host["busy"].append({"new_tokens": measurement["new_tokens"], "gpus": shares})
    return run


def on_gpus(run: Record, *uuids: str) -> None:
    """The run had the GPUs of these UUIDs in place of its own."""
    for read in (run.host["gpus"], run.host["gpu_memory"]):
        for gpu, uuid in zip(read, uuids, strict=True):
            gpu["uuid"] = uuid


def busy(run: Record, *shares: float | str, new_tokens: int = 1) -> Record:
    """The run, with the share of the time in which a kernel ran on each GPU while it made so many tokens, or the code in its place."""
    gpus = [{"code": share} if isinstance(share, str) else {"code": "ok", "share": share} for share in shares]
    run.host["busy"] = [{"new_tokens": new_tokens, "gpus": gpus}]
    return run


def told(one: Record) -> Record:
    """A probed run with all else that a run on a GPU tells beside its times: the state of the machine, phases, what judged its tokens, packages."""
    run = copy.deepcopy(one)
    assert run.guest
    names = ("import", "load", "prompt", "measure", "check", "answers", "tokens", "limits", "describe")
    seconds = [calls_s(run.guest) if name == "measure" else 1.0 for name in names]
    moments = [1_700_000_000.25 + passed for passed in itertools.accumulate(seconds, initial=0.0)]
    run.guest.phases = {name: [began, ended] for name, began, ended in zip(names, moments, moments[1:], strict=False)}
    times = run.guest.figures["token_times"]
    times |= {"first_ms": [20.0, 21.0, 30.0, 22.0, 25.0], "between_ms": [list(times["between_ms"][0]) for _ in range(5)]}
    run.guest.environment["packages"] = {f"package-{number}": f"{number}.0.1" for number in range(100)}
    run.guest.launch_us = {"before": 9.119296, "after": 6.674176}
    run.guest.used |= {"loop": "synthetic", "cache": "static", "cache_tokens": 256, "graphs": 1}
    assert run.guest.check
    regret, allowed = {"p50": 0.0, "p90": 0.001, "max": 0.035}, {"regret_p90": 0.03, "regret_max": 0.25, "logits_error": 0.065}
    run.guest.check["judged"] = {"passed": True, "reason": "", "regret": regret, "allowed": allowed, "calls": 20, "steps": 129, "not_seen": []}
    ends = {"before": 660.5, "after": 1980.5, "least": 1980.25, "most": 1980.75}
    of_gpu = {name: {**ends} for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")}
    run.host["conditions"] = {
        "marks": [],
        "disturbed": [],
        "busy_cores_before": 0.25,
        "busy_cores_after": 0.5,
        "pressure": {"cpu": 0.0001, "memory": 0.0},
        "gpus": [{"uuid": one["uuid"], **of_gpu, "throttled": {}, "samples": 49, "foreign_pids": []} for one in run.host["gpus"]],
    }
    for sampled in run.host["gpu_memory"]:
        sampled["peak_by_phase"] = {name: 15_352_004_608 + place for place, name in enumerate(names)}
    return run


def write_many(runs: Path, records: list[Record], count: int) -> None:
    """`count` runs, as many of each record, each with times of its own: of calls, between tokens, and of the machine's state."""
    draw, text_of = random.Random(count), [to_json(one) for one in records]

    def scattered(times: list[float]) -> list[float]:
        return [time * draw.uniform(0.95, 1.05) for time in times]

    for place in range(count):
        one = records[place % len(records)]
        run = json.loads(text_of[place % len(records)])
        run["id"] = run["job"]["id"] = run["guest"]["id"] = f"{one.id.rsplit('-', 1)[0]}-{place // len(records) + 1:02d}"
        figures, measurements = run["guest"]["figures"], run["guest"]["measurements"]
        for measurement in measurements:
            measurement["timed_ms"] = scattered(measurement["timed_ms"])
            began, _ = measurement["timed_at"]
            measurement["timed_at"] = [began, began + sum(measurement["timed_ms"]) / 1000 + 0.01]
        figures["token_times"]["between_ms"] = [scattered(call) for call in figures["token_times"]["between_ms"]]
        for name, phase in run["guest"]["phases"].items():
            run["guest"]["phases"][name] = [moment + place for moment in phase]
        for gpu in run["host"]["conditions"]["gpus"]:
            gpu["power_w"] = {name: watts * draw.uniform(0.95, 1.05) for name, watts in gpu["power_w"].items()}
        folder = runs / run["id"]
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(run), encoding="utf-8")
