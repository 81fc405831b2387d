"""Where a job runs: in a container of its image (`docker`) or in an interpreter of this machine (`host`).

Both engines offer the same: `prepare()`, `guest_path(path)`, `run(job, work, on_line)`, the facts for the result, and the `cores` near
the GPUs, on which the job is kept.
"""

import collections
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import docker

from bench.job import InvalidDocument, Job, Result, to_json, write_whole
from scripts.containers import container, docker_errors
from scripts.containers.container import Outcome
from scripts.errors import KitError, NothingRuns, PreflightError, UsageError
from scripts.images import build
from scripts.machine import cores, permissions, processes
from scripts.machine.gpus import Gpu
from scripts.models import links
from scripts.paths import ROOT
from scripts.pins import Image
from scripts.results import answers
from scripts.run.engines import demo_environments, host, nsight
from scripts.run.options import Options


class DockerEngine:
    """A job in a fresh container of the pinned image, with every restriction of the runner."""

    name = "docker"

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options) -> None:
        self.image, self.gpus, self.asked, self.models = image, gpus, asked, asked.models
        self.cores = cores.near(gpus) or ("" if gpus else cores.own())
        self.facts: dict[str, Any] | None = None
        try:
            self.client = container.connect()
        except NothingRuns as error:
            without = "ENGINE=host PYTHON_HOST=/path/to/python with torch and transformers" if gpus else "make demo, which runs tiny models on the CPU"
            raise NothingRuns(f"{error}; or do without Docker: type {without}") from error

    def is_built(self) -> bool:
        with docker_errors.answering("a look for its image"):
            return build.exists(self.client, self.image.tag)

    def prepare(self) -> None:
        """Clear what dead runners left, build the image unless it is there."""
        with docker_errors.answering("the preparation of its image"):
            _sweep(self.client)
            build.build(self.image, self.asked.wheels)
            permissions.make(self.models)
            self.facts = build.image_facts(self.client, self.image)

    def guest_path(self, path: Path, work: Path) -> str:
        """Where the guest finds a file that lies under the models or the job's own folder."""
        if path.is_relative_to(work):
            return f"/run/job/{path.relative_to(work)}"
        return f"/models/{path.relative_to(self.models)}"

    def run(self, job: Job, work: Path, on_line: Callable[[str], None]) -> Outcome:
        write_whole(work / "job.json", to_json(job))
        return container.run(
            self.client,
            self.image.tag,
            ["python3", "-m", "bench", "/run/job/job.json", "/run/job/result.json"],
            run_id=job.id,
            work_dir=work,
            bench_dir=ROOT / "bench",
            models_dir=self.models,
            linked_dirs=self._linked_dirs(job),
            gpus=self.gpus,
            cores=self.cores,
            timeout_s=self.asked.timeout_s,
            gpu_mode=self.asked.gpu_mode,
            memlock=self.asked.memlock,
            on_line=on_line,
        )

    def owns(self, pid: int) -> bool | None:
        """Is a process of this machine in a container of this runner? None where that cannot be told."""
        return container.is_ours(self.client, pid)

    def _linked_dirs(self, job: Job) -> list[Path]:
        """Where the files of the job's model lie that the models' folder only has links to."""
        place = Path(job.model["path"])
        return links.sources(self.models / place.relative_to("/models")) if place.is_relative_to("/models") else []

    def differences(self, result: Result | None) -> list[str]:
        """None: the image was asked for its versions when it was built, and its tag names its pins."""
        return []


class HostEngine:
    """A job in an interpreter of this machine: the demo's own, or PYTHON_HOST.

    `wrapper` is a profiler's command, which goes before the interpreter's.
    """

    name = "host"
    facts = None

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options, wrapper: Sequence[str] = ()) -> None:
        self.image, self.gpus, self.asked, self.models, self.wrapper = image, gpus, asked, asked.models, wrapper
        self.cores = cores.near(gpus)

    def is_built(self) -> bool:
        return True

    def prepare(self) -> None:
        if self.image.engine == "host":
            self.python = demo_environments.ensure(self.image.environment)
        else:
            # Backends need different versions of the same libraries, so {backend} in it leads each to its own interpreter.
            typed = self.asked.python_host
            self.python = Path((typed or sys.executable).replace("{backend}", self.image.backend))
            host.must_have_torch(self.python, UsageError if typed else PreflightError)

    def guest_path(self, path: Path, work: Path) -> str:
        return str(path)

    def run(self, job: Job, work: Path, on_line: Callable[[str], None]) -> Outcome:
        write_whole(work / "job.json", to_json(job))
        command = [str(self.python), "-m", "bench", str(work / "job.json"), str(work / "result.json")]
        if self.wrapper and job.kind == "profile":
            command = nsight.command(list(self.wrapper), str(work), command)
        return host.run(Path(command[0]), command[1:], ROOT, [gpu.uuid for gpu in self.gpus], self.asked.timeout_s, on_line, self.cores)

    def owns(self, pid: int) -> bool | None:
        """Is a process of this machine below this one? None where it is not there to be asked."""
        return processes.descends_from(pid, os.getpid())

    def differences(self, result: Result | None) -> list[str]:
        """Where the interpreter's packages differ from the pins."""
        installed = result.environment.get("packages", {}) if result else {}
        locked = self.image.locked()
        if self.image.engine == "host":
            locked = {name: version for name, version in locked.items() if name in installed or name in self.image.pins}
        return host.differences(installed, locked) if installed else []


Engine = DockerEngine | HostEngine


def sweep(asked: Options) -> None:
    """Remove the containers that killed runners left, also where nothing is left to measure. Without a Docker that answers there are none to see."""
    if asked.engine == "docker":
        with contextlib.suppress(KitError), docker_errors.answering("a sweep"):
            _sweep(container.connect())


def _sweep(client: docker.DockerClient) -> None:
    for run_id in container.sweep(client):
        print(f"note: removed the container that a killed runner left: {run_id}", file=sys.stderr)


def choose(image: Image, gpus: list[Gpu], asked: Options, profiler: str = "") -> Engine:
    """The engine that was asked for; a stack that lives on the host has no image to run in a container."""
    if image.engine == "host" and asked.engine == "docker":
        raise UsageError(f"STACK={image.stack} has no images; try ENGINE=host")
    wrapper = nsight.wrapper(asked.engine) if profiler == "nsys" else ()
    if asked.engine == "docker":
        return DockerEngine(image, gpus, asked)
    return HostEngine(image, gpus, asked, wrapper)


def answer(job: Job, work: Path, outcome: Outcome, gpus: Sequence[Gpu] = (), resumed: bool = False) -> tuple[Result | None, str, str]:
    """(guest's result or None, status, reason) of a job that has ended, however it did.

    The result comes through the door (scripts/results/answers.py); where it contradicts its job or what the host saw, the job failed.
    """
    wall_s = outcome.finished_at - outcome.started_at
    if outcome.timed_out:
        return None, "timeout", f"stopped after {wall_s:.0f} s; type TIMEOUT_S= for more"
    result, reason = None, ""
    try:
        result = answers.read(work / "result.json")
        reason = answers.disagreement(job, result, answers.Seen(outcome.exit_code, wall_s, [gpu.memory_total_bytes for gpu in gpus], resumed))
    except FileNotFoundError:
        reason = f"the guest ended with {answers.exit_words(outcome.exit_code)} and wrote no result; its log says why"
    except (InvalidDocument, OSError) as error:
        reason = f"the guest's result cannot be read: {error}"
    else:
        reason = f"the guest's result is refused: {reason}" if reason else ""
    if outcome.oom_killed and (reason or result is None or result.status != "ok"):
        return None, "oom", "the kernel killed it: it needed more host memory than there was"
    if reason or result is None:
        return None, "failed", reason
    return result, result.status, result.reason


def must_answer(engine: Engine, job: Job, work: Path, on_line: Callable[[str], None]) -> Result:
    """The result of a helping job (weights, reference), which has to be ok; KitError otherwise."""
    last_lines: collections.deque[str] = collections.deque(maxlen=15)

    def keep(line: str) -> None:
        last_lines.append(line)
        on_line(line)

    result, status, reason = answer(job, work, engine.run(job, work, keep), engine.gpus)
    if status != "ok" or result is None:
        tail = "\n".join(line for line in last_lines if not line.startswith("@"))
        raise KitError(f"the {job.kind} job ended with {status}: {reason}\n{tail}".rstrip())
    return result
