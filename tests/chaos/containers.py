"""The campaign in containers: a copy of the kit whose guest measures nothing, its image, an engine that may be restarted."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound, NotFound

from scripts.containers import container
from scripts.errors import KitError
from tests.chaos import guest
from tests.chaos.oracle import LEFT, Breach
from tests.chaos.place import BACKENDS, ROOT, Place

#: Images with a Python, of which the fake images are further names.
BASES = ("python:3.12-slim-bookworm", "python:3.8-slim-bookworm")


def lacking() -> str:
    """Why nothing can run in containers here, or ""."""
    try:
        client = container.connect()
        _base(client)
    except (KitError, DockerException) as error:
        return str(error).splitlines()[0]
    return ""


def _base(client: docker.DockerClient) -> str:
    for tag in BASES:
        with contextlib.suppress(ImageNotFound):
            client.images.get(tag)
            return tag
    raise KitError(f"no image with a Python is there; type docker pull {BASES[0]}")


def copy_kit(folder: Path) -> Path:
    """A copy of the kit whose guest is the fake one. Its pins have an id of their own, so its images are nobody else's."""
    kit = folder / "kit"
    for name in ("scripts", "bench", "docker"):
        shutil.copytree(ROOT / name, kit / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "Makefile", kit)
    (kit / ".venv").symlink_to((ROOT / ".venv").resolve())
    for lock in (kit / "scripts/requirements").iterdir():
        os.utime(lock, (0, 0))  # or make would take the tools of the linked environment for older than their locks
    shutil.copy2(guest.__file__, kit / "bench" / "__main__.py")
    (kit / "docker" / "build" / "chaos.txt").write_text(secrets.token_hex(8))
    return kit


@contextlib.contextmanager
def images(kit: Path, host: str = "") -> Iterator[None]:
    """The images of a copied kit, which are another name of a base image, until the end of the block."""
    client = docker.DockerClient(base_url=host) if host else container.connect()
    code = f"from scripts import pins; print(*[pins.load().image(backend, 'current').tag for backend in {list(BACKENDS.values())!r}])"
    tags = subprocess.run([sys.executable, "-c", code], cwd=kit, capture_output=True, text=True, check=True).stdout.split()
    base = client.images.get(_base(client))
    for tag in tags:
        base.tag(tag)
    try:
        yield
    finally:
        with contextlib.suppress(DockerException):
            for tag in tags:
                client.images.remove(tag)


def _ours(place: Place) -> list[docker.models.containers.Container]:
    client = docker.DockerClient(base_url=place.more["DOCKER_HOST"]) if "DOCKER_HOST" in place.more else container.connect()
    there = client.containers.list(all=True, filters={"label": container.OWNER_LABEL}, ignore_removed=True)
    return [one for one in there if one.labels[container.OWNER_LABEL].startswith(str(place.locks))]


def left(place: Place) -> list[Breach]:
    """Containers of a place that the next command did not remove."""
    breaches = [(LEFT, f"the container of {one.labels[container.RUN_LABEL]}") for one in _ours(place)]
    remove(place)
    return breaches


def remove(place: Place) -> int:
    """Remove the containers of a place as somebody else would; how many there were."""
    count = 0
    for one in _ours(place):
        with contextlib.suppress(NotFound, DockerException):
            one.remove(force=True)
            count += 1
    return count


class OwnEngine:
    """A Docker engine that belongs to the campaign alone, with the base image of another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.host = folder, f"unix://{folder}/docker.sock"
        self.start()
        client = container.connect()
        docker.DockerClient(base_url=self.host).images.load(client.images.get(_base(client)).save(named=True))

    @staticmethod
    def lacking() -> str:
        return "" if os.geteuid() == 0 and shutil.which("dockerd") else "it needs root and dockerd, for an engine of its own"

    def start(self) -> None:
        environment = os.environ | {"ENGINE_DIR": str(self.folder)}
        done = subprocess.run([ROOT / ".ci/engine.sh", "start"], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"error: {done.stderr}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        pid = int((self.folder / "pid").read_text())
        os.kill(pid, number)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def restart(self, number: int) -> None:
        self.stop(number)
        (self.folder / "pid").unlink(missing_ok=True)
        self.start()

    def end(self) -> None:
        """Stop it; nothing of it is left but its folder."""
        client = docker.DockerClient(base_url=self.host)
        for one in client.containers.list(all=True):
            with contextlib.suppress(DockerException):
                one.remove(force=True)
        self.stop()
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in sorted((path for path in mounts if path.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
