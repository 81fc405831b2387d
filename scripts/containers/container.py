"""One job in one container: create it, watch it, remove it in every case.

A runner that is killed outright leaves its container behind; the next runner removes it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import surroundings
from scripts.containers import docker_errors, gpu_requests, restrictions
from scripts.containers.docker_library import docker
from scripts.machine import locks, signals
from scripts.machine.gpus import Gpu
from scripts.machine.lines import Lines

#: The most chunks of output that wait to be read. A job that prints faster than the runner reads has to wait, so memory stays bounded.
WAITING_CHUNKS = 256

RUN_LABEL, OWNER_LABEL, RUNNER_LABEL = "org.llm-repro.run", "org.llm-repro.owner", "org.llm-repro.runner"


@dataclass(frozen=True)
class Outcome:
    """How a job's process ended; times in seconds since the epoch. `exit_code` is 128 + n where signal n ended it."""

    exit_code: int
    oom_killed: bool
    timed_out: bool
    started_at: float
    finished_at: float


class Ended(Exception):
    """The cause of the exception of a signal that came once the job had ended; `outcome` is the job's."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("the job had ended")
        self.outcome = outcome


def until_ended(run: Callable[[], Outcome]) -> tuple[Outcome, BaseException | None]:
    """(how a job ended, the signal that stopped the command once the job had ended, or None). A signal that ended the job is raised."""
    try:
        return run(), None
    except (KeyboardInterrupt, SystemExit) as stop:
        if not isinstance(stop.__cause__, Ended):
            raise
        return stop.__cause__.outcome, stop


def connect() -> docker.DockerClient:
    """A client of the Docker at DOCKER_HOST, else of the current `docker context`, as for builds. Raises PreflightError."""
    variables = surroundings.current().variables
    host = variables.get("DOCKER_HOST")
    try:
        if host:
            return docker.from_env(timeout=60, environment=dict(variables))
        context = docker.ContextAPI.get_context(variables.get("DOCKER_CONTEXT"))
        host = (context and context.Host) or "unix:///var/run/docker.sock"
        return docker.DockerClient(base_url=host, version="auto", timeout=60)
    except (docker.errors.DockerException, OSError, ValueError) as error:  # ValueError for a malformed address
        raise docker_errors.unreachable(error, host or "its usual address") from error


def _this_runner() -> str:
    """The label of containers that a sweep may remove: this user's on this machine, because only their locks can be tried."""
    return f"{platform.node()}:{os.getuid()}"


def sweep(client: docker.DockerClient) -> list[str]:
    """Remove the containers whose runner is dead, and return the ids of their runs."""
    removed = []
    filters: dict[str, str | list[str] | bool] = {"label": f"{RUNNER_LABEL}={_this_runner()}"}
    for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
        owner = Path(container.labels[OWNER_LABEL])
        if owner.parent == locks.folder():
            with locks.taken_over(owner) as is_dead:
                if is_dead:
                    _remove(container)
                    removed.append(container.labels[RUN_LABEL])
    return removed


def is_ours(client: docker.DockerClient, pid: int, proc: Path = Path("/proc")) -> bool | None:
    """Does a process of this machine run in a container that this process made? None where that cannot be told."""
    try:
        named = re.findall("[0-9a-f]{64}", (proc / str(pid) / "cgroup").read_text())
        labels = client.containers.get(named[-1]).labels if named else {}  # the last: an engine may run in a container itself
    except docker.errors.NotFound:
        return False
    except (OSError, docker.errors.DockerException):
        return None
    return Path(labels.get(OWNER_LABEL, "")).name.startswith(_owner_name())


def _owner_name() -> str:
    """The prefix of the names of the locks of this process's containers."""
    return f"runner-{os.getpid()}-"


@contextlib.contextmanager
def _owner() -> Iterator[Path]:
    """A lock that this process holds while its container exists; it tells a sweep that the runner lives."""
    path = locks.folder() / f"{_owner_name()}{uuid.uuid4().hex[:8]}.lock"
    with locks.held(path, locks.FOR_THIS_USER):
        yield path


def run(
    client: docker.DockerClient,
    image_tag: str,
    command: Sequence[str],
    *,
    run_id: str,
    folders: restrictions.Folders,
    gpus: Sequence[Gpu] = (),
    cores: str = "",
    timeout_s: float,
    memory_bytes: int | None = None,
    gpu_mode: str = "auto",
    memlock: bool = False,
    loosened: str = "",
    on_line: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run `command` in a fresh container of an image, its output line by line to `on_line`.

    `memory_bytes` limits its memory, /tmp included. `cores` are the processor cores that it stays on, "" for all. `loosened` is the
    one of `restrictions.LOOSENABLE` that the container is without, "" for none. Raises KitError with the next command; the container is
    removed in every case. A signal that comes while the container of a job that has ended is removed has `Ended` as its cause.
    """
    with docker_errors.answering(run_id):
        info = client.info()
        device_requests = gpu_requests.requests(client, gpus, gpu_mode)
    settings = restrictions.settings(info["MemTotal"], memory_bytes, memlock, cores) | restrictions.without(loosened)
    settings |= _of_job(info, folders, gpus) | {"device_requests": device_requests}
    with _owner() as owner, signals.raised():
        labels = {RUN_LABEL: run_id, OWNER_LABEL: str(owner), RUNNER_LABEL: _this_runner()}
        container = outcome = None
        try:
            with signals.held_back():
                container = client.containers.create(image_tag, list(command), labels=labels, **settings)
            outcome = _watch(container, timeout_s, on_line)
            return outcome
        except docker.errors.APIError as error:
            raise docker_errors.explain(error, image_tag) from error
        except docker_errors.silence() as error:
            raise docker_errors.gone(run_id) from error
        finally:
            if container:
                clean_up(functools.partial(_remove, container), outcome)


def _of_job(info: Mapping[str, Any], folders: restrictions.Folders, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """The settings of one job's container: its user, its folders, its variables. Raises PreflightError for a folder that the job cannot read."""
    user = restrictions.user(info, folders.work)
    restrictions.refuse_missing(folders.read_only)
    restrictions.refuse_unreadable(user, folders.read_only)
    of_machine = surroundings.current().inside(on_gpus=bool(gpus))
    return {"user": user, "mounts": folders.mounts(), "environment": restrictions.ENVIRONMENT | of_machine}


def _watch(container: docker.models.containers.Container, timeout_s: float, on_line: Callable[[str], None]) -> Outcome:
    """Start a container and follow it until it ends or its time is up."""
    stream = container.attach(stream=True, logs=False)  # before the start: otherwise the first lines are lost
    started_at, started_monotonic = time.time(), time.monotonic()
    deadline = started_monotonic + timeout_s
    container.start()
    timed_out = False
    try:
        for line in _lines(stream, deadline):
            on_line(line)
        container.wait(timeout=max(0.1, deadline - time.monotonic()))
    except (TimeoutError, *docker_errors.silence()):
        if time.monotonic() < deadline:
            raise
        timed_out = True
        with contextlib.suppress(docker.errors.APIError):  # the container may have just ended
            container.kill()
        container.wait(timeout=60)
    finished_at = started_at + time.monotonic() - started_monotonic  # the clock may be set meanwhile
    container.reload()
    state = container.attrs["State"]
    return Outcome(state["ExitCode"], state["OOMKilled"], timed_out, started_at, finished_at)


def _lines(stream: Iterator[bytes], deadline: float) -> Iterator[str]:
    """Whole lines from a stream of chunks. Raises TimeoutError at the deadline (monotonic seconds)."""
    lines = Lines()
    for chunk in _chunks(stream, deadline):
        yield from lines.feed(chunk)
    yield from lines.rest()


def _chunks(stream: Iterator[bytes], deadline: float) -> Iterator[bytes]:
    """The chunks of a stream, which a thread reads, because the stream itself has no time limit. Raises TimeoutError at the deadline."""
    chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=WAITING_CHUNKS)
    reader_left = threading.Event()

    def put(chunk: bytes | None) -> None:
        while not reader_left.is_set():
            with contextlib.suppress(queue.Full):
                chunks.put(chunk, timeout=0.2)
                return

    def read() -> None:
        try:
            for chunk in stream:  # to its end: Docker cannot remove a container whose output is stuck
                put(chunk)
        except Exception:  # a broken stream counts as ended; the caller asks Docker whether the job has ended
            pass
        finally:
            put(None)

    threading.Thread(target=read, name="container-output", daemon=True).start()
    try:
        while True:
            try:
                chunk = chunks.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            if time.monotonic() > deadline:  # a job that always prints never leaves the queue empty
                raise TimeoutError
            if chunk is None:
                return
            yield chunk
    finally:
        reader_left.set()


def clean_up(action: Callable[[], object], outcome: Outcome | None) -> None:
    """Clean up after a job; a signal waits until that is done, and takes the outcome of a job that had ended along."""
    try:
        with signals.held_back():
            action()
    except (KeyboardInterrupt, SystemExit) as stop:
        if outcome:
            raise stop from Ended(outcome)
        raise


def _remove(container: docker.models.containers.Container) -> None:
    """Remove a container, running or not, and wait until it is gone. Where Docker does not answer, the next sweep removes it."""
    try:
        for _ in range(50):
            try:
                container.remove(force=True, v=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if "already in progress" not in str(error):
                    raise docker_errors.not_removed(container.short_id, str(error.explanation)) from error
            time.sleep(0.1)
    except docker_errors.silence():
        return
    raise docker_errors.not_removed(container.short_id, "it is still there")
