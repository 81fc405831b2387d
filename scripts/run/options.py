"""What was typed after `make bench-…`: every variable, its values and its default."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from scripts.errors import UsageError

CHOICES = {
    "VARIANT": ("published", "controlled"),
    "WEIGHTS": ("hub", "random"),
    "SCALE": ("full", "tiny"),
    "ENGINE": ("docker", "host"),
    "DEVICE": ("cuda", "cpu"),
    "FORCE": ("0", "1"),
    "ALLOW_BUSY": ("0", "1"),
    "PROFILER": ("torch", "nsys"),
}

DEFAULTS = {"VARIANT": "", "WEIGHTS": "hub", "SCALE": "full", "ENGINE": "docker", "DEVICE": "cuda", "FORCE": "0", "ALLOW_BUSY": "0", "PROFILER": "torch"}


@dataclass(frozen=True)
class Options:
    """`gpus` and `gpu_ids` are None, `variant` and `article` empty, where nothing was typed: the case's own then counts."""

    article: str
    variant: str
    stack: str
    weights: str
    scale: str
    engine: str
    device: str
    gpus: int | None
    gpu_ids: list[int] | None
    batch_sizes: list[int] | None
    items: int | None
    timed_runs: int | None
    cases: list[str]
    profiler: str
    force: bool
    timeout_s: float


def _choice(typed: Mapping[str, str], name: str) -> str:
    value = typed.get(name) or DEFAULTS[name]
    if value and value not in CHOICES[name]:
        raise UsageError(f"{name} is {value!r}, allowed are {', '.join(CHOICES[name])}; type for example {name}={CHOICES[name][0]}")
    return value


def _count(typed: Mapping[str, str], name: str) -> int | None:
    value = typed.get(name, "")
    if not value:
        return None
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name} is {value!r}, allowed is a whole number from 1; type for example {name}=2")
    return int(value)


def _numbers(typed: Mapping[str, str], name: str, allowed: str, example: str, least: int = 0) -> list[int] | None:
    value = typed.get(name, "")
    if not value:
        return None
    parts = value.split(",")
    if not all(part.isdecimal() and int(part) >= least for part in parts) or len(set(parts)) != len(parts):
        raise UsageError(f"{name} is {value!r}, allowed are {allowed} with commas; type for example {name}={example}")
    return [int(part) for part in parts]


def parse(typed: Mapping[str, str] = os.environ) -> Options:
    """The options in a set of make variables; raises UsageError for the first wrong one."""
    gpus, gpu_ids = _count(typed, "GPUS"), _numbers(typed, "GPU_IDS", "different GPU numbers", "0,3")
    if gpus and gpu_ids and gpus != len(gpu_ids):
        raise UsageError(f"GPUS is {gpus} and GPU_IDS names {len(gpu_ids)}; type one of them")
    device = _choice(typed, "DEVICE")
    if device == "cpu" and gpu_ids:
        raise UsageError(f"GPU_IDS is {typed['GPU_IDS']!r} with DEVICE=cpu; leave one of them out")
    return Options(
        article=typed.get("ARTICLE", ""),
        variant=_choice(typed, "VARIANT"),
        stack=typed.get("STACK") or "article",
        weights=_choice(typed, "WEIGHTS"),
        scale=_choice(typed, "SCALE"),
        engine=_choice(typed, "ENGINE"),
        device=device,
        gpus=gpus,
        gpu_ids=gpu_ids,
        batch_sizes=_numbers(typed, "BATCH_SIZES", "different whole numbers from 1", "1,8,64", least=1),
        items=_count(typed, "ITEMS"),
        timed_runs=_count(typed, "TIMED_RUNS"),
        cases=[name for name in typed.get("CASES", "").split(",") if name],
        profiler=_choice(typed, "PROFILER"),
        force=_choice(typed, "FORCE") == "1",
        timeout_s=float(_count(typed, "TIMEOUT_S") or 3600),
    )
