"""The engines that run a job in a container of its pinned image: Docker, Podman, Apptainer, pyxis. A job sees the same folders in each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.job import Job, Result, to_json, write_whole
from scripts.containers import apptainer, container, docker_errors, podman, pyxis
from scripts.containers.container import Outcome
from scripts.containers.docker_library import docker
from scripts.containers.restrictions import Folders
from scripts.errors import NothingRuns, PreflightError
from scripts.images import build, image_files, sif, squashfs
from scripts.machine import cores, processes
from scripts.machine.gpus import Gpu
from scripts.models import links, place
from scripts.paths import ROOT
from scripts.pins import Image
from scripts.run.engines import demo_environments
from scripts.run.options import Options


def command(module: str) -> list[str]:
    """What a job's container runs: a module of the guest, which reads the job and writes its answer."""
    return ["python3", "-m", module, "/run/job/job.json", "/run/job/result.json"]


class Contained:
    """A job in a fresh container of the pinned image, with every restriction of the runner. Engines override the methods without a body."""

    name: str
    facts: dict[str, Any] | None = None

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options) -> None:
        self.image, self.gpus, self.asked, self.models = image, gpus, asked, asked.models
        self.cores = cores.near(gpus) or cores.own()

    def is_built(self) -> bool:
        """Is the image there?"""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make what a job needs, and learn the facts of the image. Raises KitError with the next command."""
        raise NotImplementedError

    def _start(self, run_id: str, words: Sequence[str], folders: Folders, on_line: Callable[[str], None]) -> Outcome:
        """Run the command `words` in a new container."""
        raise NotImplementedError

    def guest_path(self, path: Path, work: Path) -> str:
        """Where the guest finds a file that lies under the models or the job's own folder."""
        if path.is_relative_to(work):
            return f"/run/job/{path.relative_to(work)}"
        return f"/models/{path.relative_to(self.models)}"

    def run(self, job: Job, work: Path, on_line: Callable[[str], None], module: str = "bench") -> Outcome:
        """Run a job in `module`, the guest itself or one of its instruments."""
        write_whole(work / "job.json", to_json(job))
        return self._start(job.id, command(module), Folders(work, ROOT / "bench", self.models, self._linked_dirs(job)), on_line)

    def owns(self, pid: int) -> bool | None:
        """Does a process of this machine belong to a job of this runner? None where that is unknown."""
        return processes.descends_from(pid, os.getpid())

    def _linked_dirs(self, job: Job) -> list[Path]:
        """The folders of those files of the job's model that the models' folder only links to."""
        place = Path(job.model["path"])
        return links.sources(self.models / place.relative_to("/models")) if place.is_relative_to("/models") else []

    def differences(self, result: Result | None) -> list[str]:
        """No differences: the image's versions were checked when it was built or restored, and its tag names its pins."""
        return []


class DockerEngine(Contained):
    name = "docker"
    loosened = ""  # the restriction of `restrictions.LOOSENABLE` that the next containers run without

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options) -> None:
        super().__init__(image, gpus, asked)
        try:
            self.client = container.connect()
        except NothingRuns as error:
            raise NothingRuns(f"{error}; or do without Docker: type ENGINE=host {self._interpreter()}") from error
        podman.refuse(self.client)

    def _interpreter(self) -> str:
        """What to type for an interpreter with torch: on a CPU the demo's own, where it has the backend."""
        if not self.gpus and self.image.backend in demo_environments.backends():
            return f"STACK={demo_environments.STACK}, which brings its own interpreter"
        return "PYTHON_HOST=/path/to/python with torch and transformers"

    def is_built(self) -> bool:
        with docker_errors.answering("a look for its image"):
            return build.exists(self.client, self.image.tag)

    def prepare(self) -> None:
        """Clear what dead runners left, build the image unless it is there."""
        with docker_errors.answering("the preparation of its image"):
            remove_abandoned(self.client)
            place.make(self.models)
            build.build(self.image, self.asked.wheels)
            self.facts = build.image_facts(self.client, self.image)

    def owns(self, pid: int) -> bool | None:
        return container.is_ours(self.client, pid)

    def _start(self, run_id: str, words: Sequence[str], folders: Folders, on_line: Callable[[str], None]) -> Outcome:
        return container.run(
            self.client,
            self.image.tag,
            words,
            run_id=run_id,
            folders=folders,
            gpus=self.gpus,
            cores=self.cores,
            timeout_s=self.asked.timeout_s,
            gpu_mode=self.asked.gpu_mode,
            memlock=self.asked.memlock,
            loosened=self.loosened,
            on_line=on_line,
        )


class PodmanEngine(DockerEngine):
    """Podman's service, of root or of the user. It builds nothing: the image is the one that Docker built, from its archive."""

    name = "podman"

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options) -> None:
        Contained.__init__(self, image, gpus, asked)
        self.client = podman.connect()

    def prepare(self) -> None:
        """Clear what dead runners left. Raises PreflightError where the image is not there."""
        with docker_errors.answering("a look for its image"):
            remove_abandoned(self.client)
            if not self.is_built():
                raise PreflightError(
                    f"Podman does not have the image {self.image.tag}; type make archive ONLY=images BACKEND={self.image.backend} "
                    f"STACK={self.image.stack} where Docker is, and make restore ENGINE=podman here"
                )
            info = self.client.info()
            if not podman.sets_limits(info):
                print("note: Podman limits neither memory nor cores here: without root it needs cgroups of version 2", file=sys.stderr)
            if self.cores and not podman.chooses_cores(info):
                self.cores = ""
                print("note: Podman keeps no job on its cores here: the controller cpuset is not delegated to this user (docs/clusters.md)", file=sys.stderr)
            place.make(self.models)
            # Podman computes a digest for every image, even for one that came from no registry.
            self.facts = build.image_facts(self.client, self.image) | {"digest": ""}


class FromFile(Contained):
    """An engine without a daemon; its image is a file that `make restore ENGINE=…` made from an archive."""

    kind: image_files.Kind
    run_in: Callable[..., Outcome]

    def is_built(self) -> bool:
        return image_files.find(self.kind, self.image) is not None

    def prepare(self) -> None:
        """Read the image's file. Raises PreflightError where it is missing, or where the engine does not bring the GPUs' driver into a container."""
        self.path, known = image_files.read(self.kind, self.image)
        self.environment = known.environment
        self._try()
        place.make(self.models)
        self.facts = image_files.facts(self.kind, known)

    def _try(self) -> None:
        """Raise PreflightError where the engine does not run the image, or not with these GPUs."""
        raise NotImplementedError

    def _start(self, run_id: str, words: Sequence[str], folders: Folders, on_line: Callable[[str], None]) -> Outcome:
        return self.run_in(
            self.path, self.environment, words, folders=folders, gpus=self.gpus, cores=self.cores, timeout_s=self.asked.timeout_s, on_line=on_line
        )


class ApptainerEngine(FromFile):
    """Apptainer in a user namespace."""

    name = "apptainer"
    kind = sif.KIND
    run_in = staticmethod(apptainer.run)

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options) -> None:
        super().__init__(image, gpus, asked)
        apptainer.program()

    def _try(self) -> None:
        if self.gpus:
            apptainer.require_driver(self.path, self.environment)


class PyxisEngine(FromFile):
    """srun with pyxis, on the node of this process."""

    name = "pyxis"
    kind = squashfs.KIND
    run_in = staticmethod(pyxis.run)

    def __init__(self, image: Image, gpus: list[Gpu], asked: Options) -> None:
        super().__init__(image, gpus, asked)
        pyxis.require()

    def owns(self, pid: int) -> bool | None:
        return None  # a job is a child of SLURM's daemon

    def _try(self) -> None:
        pyxis.unpack(self.path, self.environment, self.gpus)


#: {value of ENGINE: its engine}
CONTAINED: dict[str, type[Contained]] = {engine.name: engine for engine in (DockerEngine, PodmanEngine, ApptainerEngine, PyxisEngine)}

#: {value of ENGINE: a function that connects to it}, for engines whose containers outlive a killed runner.
CLIENTS: dict[str, Callable[[], docker.DockerClient]] = {"docker": container.connect, "podman": podman.connect}


def remove_abandoned(client: docker.DockerClient) -> None:
    """Remove the containers that killed runners left."""
    for run_id in container.sweep(client):
        print(f"note: removed the container that a killed runner left: {run_id}", file=sys.stderr)
