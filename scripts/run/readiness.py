"""Is this machine ready? `make doctor` asks before any case is chosen, with a finding each for GPUs, stacks, engine, memory and disk.

`scripts/run/preflight.py` asks the same for one case, once its image and its weights are known.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.reasons import first_line
from scripts import articles, pins
from scripts.articles import Article
from scripts.containers import container, docker_errors, gpu_requests, podman
from scripts.containers.docker_library import docker
from scripts.errors import KitError
from scripts.images import build
from scripts.machine import allocation, gpus, permissions
from scripts.machine.gpus import Gpu
from scripts.run import preflight
from scripts.units import GIB

#: The programs by which Docker gives GPUs to containers where no CDI spec names them.
TOOLKIT = ("nvidia-container-runtime-hook", "nvidia-container-runtime")

#: The article of the command that `make doctor` proposes.
FIRST = "inference-tools"


@dataclasses.dataclass(frozen=True)
class Finding:
    """`about`: what was checked; `found`: what is there; `remedy`: what to do where that prevents a run on GPUs, else ""."""

    about: str
    found: str
    remedy: str = ""

    @property
    def line(self) -> str:
        return f"{'no' if self.remedy else 'ok'}  {self.about:<8}  {'; '.join(filter(None, (self.found, self.remedy)))}"


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The usable GPUs (allowed, free, of one compute capability, with code in some stack), the finding about all GPUs, the stacks of the usable ones."""

    usable: Sequence[Gpu]
    finding: Finding
    stacks: Mapping[str, str] = dataclasses.field(default_factory=dict)


def look(models: Path, runs: Path, mistakes: Sequence[KitError] = ()) -> tuple[list[Finding], str]:
    """(all findings, in the order in which a run needs them; the command to type next). `mistakes` are errors in articles' files."""
    found = _gpus()
    findings = [found.finding, *([_of_stacks(found.stacks)] if found.usable else []), _engine(found.usable), *_room(models, runs)]
    findings += [Finding("articles", "", str(mistake)) for mistake in mistakes]
    if mistakes:  # every other command may need the article
        return findings, f"make doctor, once {'this file is' if len(mistakes) == 1 else 'these files are'} corrected"
    if any(finding.remedy for finding in findings):
        return findings, "make demo, which needs neither a GPU nor Docker"
    stack = found.stacks[FIRST]
    return findings, f"make bench-{_backend(found.usable[0], stack)} GPUS={_count(found.usable)} STACK={stack} WEIGHTS=random"


def _backend(gpu: Gpu, stack: str) -> str:
    """The backend to begin with: DeepSpeed where the kernels compiled for it run on this GPU."""
    kernels = pins.load().image("deepspeed", stack).kernels_arch_list
    return "deepspeed" if preflight.runs_on(gpu.compute_capability, kernels) else "layer-parallel"


def _gpus() -> Gpus:
    try:
        present, given, driver = gpus.list_gpus(), gpus.given(), gpus.driver() or {}
        use = {gpu.uuid: gpus.foreign_use(gpu) for gpu in given}
    except KitError as error:
        return Gpus([], Finding("GPUs", "", str(error)))
    if not present:
        return Gpus([], Finding("GPUs", "this machine shows no NVIDIA GPU", "install its driver, so that `nvidia-smi` lists the GPU"))
    if not given:
        return Gpus([], Finding("GPUs", "", str(allocation.refuse_none("GPUS"))))
    stacks = {capability: stacks_of(capability, driver.get("cuda_driver", "")) for capability in dict.fromkeys(gpu.compute_capability for gpu in given)}
    with_code = [gpu for gpu in given if any(stacks[gpu.compute_capability].values())]
    alike = [gpu for gpu in with_code if gpu.compute_capability == with_code[0].compute_capability]
    usable = [gpu for gpu in alike if not use[gpu.uuid]]
    told = [f"{gpu.index} {gpu.name} {gpu.memory_total_bytes / GIB:.0f} GiB" for gpu in given]
    found = f"{', '.join(told)}; driver {driver.get('driver')}, CUDA up to {driver.get('cuda_driver')}"
    apart = [f"GPU {gpu.index} {use[gpu.uuid] or 'is left out: no stack has code for this GPU and the others'}" for gpu in given if gpu not in usable]
    finding = Finding("GPUs", "; ".join([found, *apart]), _remedy(with_code, usable))
    return Gpus(usable, finding, stacks[usable[0].compute_capability] if usable else {})


def _remedy(with_code: Sequence[Gpu], usable: Sequence[Gpu]) -> str:
    if not with_code:
        return "no stack has code that these GPUs and their driver run; docker/README.md tells the GPUs and the CUDA of each stack"
    if not usable:
        return "stop what uses them, or type ALLOW_BUSY=1"
    if FIRST not in articles.without_mistakes():  # its file says how large its model is
        return ""
    return "" if _count(usable) else f"the model of {FIRST} does not fit them; type SCALE=tiny"


def _count(usable: Sequence[Gpu]) -> int:
    """How many GPUs to ask for: two, as in the article, or as few as hold the model; 0 where all together cannot hold it."""
    weights_bytes = 2 * articles.find(FIRST).model["parameters"]
    smallest_bytes = min(gpu.memory_total_bytes for gpu in usable)
    fitting = [count for count in range(1, len(usable) + 1) if preflight.share_bytes(weights_bytes, count) <= smallest_bytes]
    return 2 if 2 in fitting else min(fitting, default=0)


def stacks_of(capability: str, cuda_driver: str) -> dict[str, str]:
    """{article with claims: the stack in which it runs on GPUs of this compute capability, "" for none}."""
    loaded = pins.load()
    return {slug: _stack_of(article, capability, cuda_driver, loaded) for slug, article in articles.without_mistakes().items() if article.claims}


def _stack_of(article: Article, capability: str, cuda_driver: str, loaded: pins.Pins) -> str:
    """The stack nearest to an article's libraries whose torch has code for these GPUs and whose CUDA their driver runs; "" for none."""
    ports = [name for name, stack in loaded.stacks.items() if stack.get("port_of") == article.stack]
    for name in (article.stack, *ports, "current"):
        stack = loaded.stacks[name]
        if preflight.runs_on(capability, tuple(stack["arch_list"])) and preflight.driver_runs(cuda_driver, stack["cuda"]):
            return name
    return ""


def _of_stacks(stacks: Mapping[str, str]) -> Finding:
    return Finding("stacks", ", ".join(f"{slug} STACK={stack}" if stack else f"{slug} none" for slug, stack in stacks.items()))


def _engine(usable: Sequence[Gpu]) -> Finding:
    """Docker, its builder, and how it gives GPUs to containers."""
    try:
        client = container.connect()
        podman.refuse(client)
        with docker_errors.answering("a look at Docker"):
            info, version = client.info(), client.version().get("Version")
        build.require_buildx()
    except KitError as error:
        return Finding("Docker", "", f"{error}; other engines: docs/clusters.md")
    except docker.errors.DockerException as error:
        return Finding("Docker", "", f"Docker fails ({first_line(str(error))}); see its log")
    way = _way_of_gpus(info, usable) if usable else ""
    found = f"Docker {version} with buildx" + (f", which gives GPUs by {way}" if way else "")
    return Finding("Docker", found, docker_errors.NO_TOOLKIT if usable and not way else "")


def _way_of_gpus(info: Mapping[str, Any], usable: Sequence[Gpu]) -> str:
    if gpu_requests.cdi_names(gpu_requests.cdi_devices(info), usable):
        return "CDI"
    return "the NVIDIA Container Toolkit" if "nvidia" in (info.get("Runtimes") or {}) or any(map(shutil.which, TOOLKIT)) else ""


def _room(models: Path, runs: Path) -> list[Finding]:
    """Memory and disk for the largest model of the articles in float16, and for one image."""
    known = [model for article in articles.without_mistakes().values() for model in (article.model, *article.models.values())]
    weights_bytes = 2 * max((model.get("parameters", 0) for model in known), default=0)
    machine, needed_bytes = preflight.this_machine([], "", models, runs), weights_bytes + preflight.IMAGE_BYTES
    memory = f"{machine.memory_available_bytes / GIB:.0f} GiB are free, loading needs about {weights_bytes / GIB:.0f}"
    disk = f"{machine.models_free_bytes / GIB:.0f} GiB are free, a model and its image need about {needed_bytes / GIB:.0f} if they are not there yet"
    return [
        *(
            Finding(name, "", f"{there} in place of a folder; type {name}=/another/folder")
            for name, folder in (("MODELS", models), ("RUNS", runs))
            if (there := permissions.in_the_way(folder))
        ),
        Finding("memory", memory, "close other programs" if machine.memory_available_bytes < weights_bytes else ""),
        Finding("disk", disk, "; ".join(preflight.disk_problems(machine, needed_bytes))),
    ]
