"""The engine `host`: a job as a child process of this one, in an interpreter that is already there.

For the demo, and for machines without Docker. Nothing is isolated, so the result lists every difference between the
interpreter's packages and the pins.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.job import Job, Result, to_json, write_whole
from scripts import surroundings
from scripts.containers import process, restrictions
from scripts.containers.container import Outcome
from scripts.errors import KitError, NothingRuns, UsageError
from scripts.machine import cores, processes, temporary_folders
from scripts.machine.gpus import Gpu
from scripts.paths import ROOT
from scripts.pins import Image
from scripts.run.engines import demo_environments, nsight
from scripts.run.options import Options

#: What a job may see of this process's environment; no tokens, no proxies, no user's settings.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "CUDA_HOME", "TORCH_EXTENSIONS_DIR", "TMPDIR", surroundings.THREADS)

#: The longest path of a job's own temporary files, in bytes: the path of a socket has 107, of which vLLM's take 37 for "/" and a UUID.
LONGEST_PATH = 70


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
            if self.asked.python_host:
                raise UsageError(
                    f"PYTHON_HOST is {self.asked.python_host!r} with STACK={self.image.stack}, which brings its own interpreter; leave one of them out"
                )
            self.python = demo_environments.ensure(self.image.environment)
        else:
            # Backends need different versions of the same libraries, so {backend} in PYTHON_HOST gives each its own interpreter.
            typed = self.asked.python_host
            self.python = Path((typed or sys.executable).replace("{backend}", self.image.backend))
            if typed:
                must_have_torch(self.python, UsageError)
            else:
                must_have_torch(self.python, NothingRuns, f", or {self._without_an_interpreter()}")

    def _without_an_interpreter(self) -> str:
        """What to type in the same command where this machine has no interpreter with torch. The demo's own interpreter has torch for a CPU."""
        if self.asked.device == "cpu" and self.image.backend in demo_environments.backends():
            return f"type STACK={demo_environments.STACK}, which brings its own"
        return "leave ENGINE out for the pinned image in Docker"

    def guest_path(self, path: Path, work: Path) -> str:
        return str(path)

    def run(self, job: Job, work: Path, on_line: Callable[[str], None], module: str = "bench") -> Outcome:
        """Run a job in `module`, the guest itself or one of its instruments."""
        write_whole(work / "job.json", to_json(job))
        command = [str(self.python), "-m", module, str(work / "job.json"), str(work / "result.json")]
        if self.wrapper and job.kind == "profile":
            command = nsight.command(list(self.wrapper), str(work), command)
        return run(Path(command[0]), command[1:], ROOT, [gpu.uuid for gpu in self.gpus], self.asked.timeout_s, on_line, self.cores)

    def owns(self, pid: int) -> bool | None:
        """Does a process of this machine descend from this one? None where that is unknown."""
        return processes.descends_from(pid, os.getpid())

    def differences(self, result: Result | None) -> list[str]:
        """Where the interpreter's packages differ from the pins."""
        if result is None:
            return []
        installed = result.environment.get("packages")
        if not installed:
            return ["the guest names no packages"]
        locked = self.image.locked()
        if self.image.engine == "host":
            locked = {name: version for name, version in locked.items() if name in installed or name in self.image.pins}
        return differences(installed, locked)


def environment(gpu_uuids: list[str]) -> dict[str, str]:
    """The environment of a job's process: offline, unbuffered, the chosen GPUs only."""
    of_machine = surroundings.current()
    passed = of_machine.only(PASSED) | (of_machine.between_gpus if gpu_uuids else {})
    fixed = restrictions.ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids)}
    del fixed["PYTHONDONTWRITEBYTECODE"]  # meant for a read-only root; on the host every job would compile torch and transformers anew
    return passed | fixed


def run(python: Path, command: list[str], folder: Path, gpu_uuids: list[str], timeout_s: float, on_line: Callable[[str], None], near: str = "") -> Outcome:
    """Run `python command` in `folder`, its output line by line to `on_line`; every process that it started ends with it, and its temporary files go,
    unless TMPDIR is so long that sockets have no room below a folder in it.

    `near` are the cores that it is kept on, "" for all. Raises KitError where there is no such program.
    """
    if not shutil.which(folder / python if python.parent.name else python):
        raise KitError(f"{python} does not start ({os.strerror(errno.ENOENT)}); type PYTHON_HOST=/path/to/python")

    def start(own: Path) -> Outcome:  # a job that is killed removes nothing itself, and kernels are large
        temporary = {"TMPDIR": str(own)} if len(os.fsencode(own)) <= LONGEST_PATH else {}
        return process.run([str(python), *command], folder, environment(gpu_uuids) | temporary, timeout_s, on_line, near)

    return process.with_folder(temporary_folders.OF_HOST, start)


def must_have_torch(python: Path, error_type: type[KitError], otherwise: str = "") -> None:
    """Raise an error of this type where an interpreter does not start or lacks torch. Nothing is imported: that would take seconds.

    A path is taken from the kit's folder, as a job takes it; a bare name is looked up in PATH. `otherwise` is what the error proposes beside another
    interpreter.
    """
    question = "import importlib.util as u, sys; sys.exit(None in map(u.find_spec, ('torch', 'transformers')))"
    try:
        done = subprocess.run([str(ROOT / python if python.parent.name else python), "-c", question], capture_output=True, env=environment([]), cwd="/")
    except OSError as error:
        raise error_type(f"PYTHON_HOST is {str(python)!r}, which does not start ({error.strerror}); type PYTHON_HOST=/path/to/python") from error
    if done.returncode != 0:
        raise error_type(f"{python} has no torch and transformers; type PYTHON_HOST=/path/to/python of one that has{otherwise}")


def differences(installed: dict[str, str], locked: dict[str, str]) -> list[str]:
    """One line for each package whose version is not the locked one; a build's local label ("+cpu") does not count."""
    lines = []
    for name, pinned in locked.items():
        version = installed.get(name)
        if version is None:
            lines.append(f"{name}: pinned {pinned}, not installed")
        elif version.split("+")[0] != pinned.split("+")[0]:
            lines.append(f"{name}: pinned {pinned}, found {version}")
    return lines
