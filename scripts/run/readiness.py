"""Is this machine ready? Asked by `make doctor` before any case is chosen: GPUs, stacks, engine, memory, disk, a finding each.

`scripts/run/preflight.py` asks the same of one case, once its image and its weights are known.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import articles, pins
from scripts.containers import container, docker_errors, gpu_requests
from scripts.errors import KitError
from scripts.images import build
from scripts.machine import gpus
from scripts.machine.gpus import Gpu
from scripts.run import preflight
from scripts.units import GIB

#: The programs by which Docker gives GPUs to containers where no CDI spec names them.
TOOLKIT = ("nvidia-container-runtime-hook", "nvidia-container-runtime")


@dataclass(frozen=True)
class Finding:
    """What was looked at, what is there, and what to do where that stands in the way of a run on GPUs; "" where it does not."""

    about: str
    found: str
    remedy: str = ""

    @property
    def line(self) -> str:
        return f"{'no' if self.remedy else 'ok'}  {self.about:<8}  {'; '.join(filter(None, (self.found, self.remedy)))}"


def look(models: Path, runs: Path) -> tuple[list[Finding], str]:
    """(all findings, in the order in which a run needs them; the command to type next)."""
    present, of_gpus = _gpus()
    stacks = _stacks(present) if present else {}
    findings = [of_gpus, *([_of_stacks(stacks)] if present else []), _engine(present), *_room(models, runs)]
    if any(finding.remedy for finding in findings):
        return findings, "make demo, which needs neither a GPU nor Docker"
    return findings, f"make bench-deepspeed GPUS={min(2, len(present))} STACK={stacks['inference-tools']} WEIGHTS=random"


def _gpus() -> tuple[list[Gpu], Finding]:
    try:
        present, driver = gpus.given(), gpus.driver() or {}
        busy = [f"GPU {gpu.index} {use}" for gpu in present if (use := gpus.foreign_use(gpu))]
    except KitError as error:
        return [], Finding("GPUs", "", str(error))
    if not present:
        return [], Finding("GPUs", "this machine shows no NVIDIA GPU", "install the driver, and see what `nvidia-smi` says; without a GPU type make demo")
    names = ", ".join(f"{gpu.index} {gpu.name} {gpu.memory_total_bytes / GIB:.0f} GiB" for gpu in present)
    found = f"{names}; driver {driver.get('driver')}, CUDA up to {driver.get('cuda_driver')}"
    all_busy = "; ".join(busy) + "; stop what uses them, or type ALLOW_BUSY=1" if len(busy) == len(present) else ""
    return present, Finding("GPUs", found if all_busy else "; ".join([found, *busy]), all_busy)


def stack_of(article: articles.Article, present: Sequence[Gpu], cuda_driver: str, loaded: pins.Pins) -> str:
    """The stack nearest to an article's libraries whose torch these GPUs and their driver run; "" for none."""
    ports = [name for name, stack in loaded.stacks.items() if stack.get("port_of") == article.stack]
    for name in (article.stack, *ports, "current"):
        stack = loaded.stacks[name]
        has_code = all(preflight.runs_on(gpu.compute_capability, tuple(stack["arch_list"])) for gpu in present)
        if has_code and (not stack["cuda"] or not cuda_driver or int(cuda_driver.split(".")[0]) >= int(stack["cuda"].split(".")[0])):
            return name
    return ""


def _stacks(present: Sequence[Gpu]) -> dict[str, str]:
    """{article with claims: the stack in which it runs on these GPUs, "" for none}."""
    loaded, cuda_driver = pins.load(), (gpus.driver() or {}).get("cuda_driver", "")
    return {slug: stack_of(article, present, cuda_driver, loaded) for slug, article in articles.load_all().items() if article.claims}


def _of_stacks(stacks: Mapping[str, str]) -> Finding:
    found = ", ".join(f"{slug} STACK={stack}" for slug, stack in stacks.items() if stack)
    missing = [slug for slug, stack in stacks.items() if not stack]
    return Finding("stacks", found, f"no stack has code that these GPUs and their driver run ({', '.join(missing)}); update the driver" if missing else "")


def _engine(present: Sequence[Gpu]) -> Finding:
    """Docker, its builder, and how it gives GPUs to containers."""
    try:
        client = container.connect()
        with docker_errors.answering("a look at Docker"):
            info, version = client.info(), client.version().get("Version")
        build.require_buildx()
    except KitError as error:
        return Finding("Docker", "", f"{error}; other engines: docs/clusters.md")
    way = _way_of_gpus(info, present) if present else ""
    found = f"Docker {version} with buildx" + (f", which gives GPUs by {way}" if way else "")
    no_way = next(told for words, told in docker_errors.KNOWN if words == "could not select device driver")
    return Finding("Docker", found, no_way if present and not way else "")


def _way_of_gpus(info: dict[str, Any], present: Sequence[Gpu]) -> str:
    if gpu_requests.cdi_names(gpu_requests.cdi_devices(info), present):
        return "CDI"
    return "the NVIDIA Container Toolkit" if "nvidia" in (info.get("Runtimes") or {}) or any(map(shutil.which, TOOLKIT)) else ""


def _room(models: Path, runs: Path) -> Iterator[Finding]:
    """Memory and disk for the largest model of the articles in float16, and for one image."""
    known = [model for article in articles.load_all().values() for model in (article.model, *article.models.values())]
    weights_bytes = 2 * max(model.get("parameters", 0) for model in known)
    machine = preflight.this_machine([], "", models, runs)
    for about, free_bytes, needed_bytes, needs, remedy in (
        ("memory", machine.memory_available_bytes, weights_bytes, "loading needs", "close other programs"),
        ("disk", machine.models_free_bytes, weights_bytes + preflight.IMAGE_BYTES, "a model and its image need", "type MODELS=/another/disk or `make clean`"),
    ):
        found = f"{free_bytes / GIB:.0f} GiB are free, {needs} about {needed_bytes / GIB:.0f}"
        yield Finding(about, found, remedy if free_bytes < needed_bytes else "")
