"""Tests with a real Docker. Without one they are skipped, loudly; KIT_NEEDS_DOCKER=1 makes that a failure."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from scripts import paths, pins
from scripts.containers import container, gpu_requests
from scripts.errors import PreflightError
from scripts.images import rebuild, render
from scripts.pins import resolve
from tests.fakes import pyxis as fake_pyxis
from tests.fakes import slurm

#: The base of the kit's own images: whoever has built one has it.
BASES = ("python:3.12-slim-bookworm", "python:3.8-slim-bookworm")

PINS = """
[host]
summary = "none"
python = ">=3.11"
exclude_newer = "2026-11-20"
groups = {}
pins = {}

[stack.tiny]
summary = "a test"
engine = "docker"
exclude_newer = "2026-11-20"
cuda = ""
arch_list = []
python = { version = "PYTHON", origin = "chosen", why = "what the base has" }
base = { version = "BASE", origin = "chosen", why = "it is there" }

[stack.tiny.pins]
idna = { version = "3.6", origin = "chosen", why = "small" }

[backend.kit-test]
summary = "a test"
stacks = ["tiny"]
"""

#: idna 3.6 is one small file of pure Python.
LOCK = "idna==3.6 \\\n    --hash=sha256:c05567e9c24a6b9faaa835c4821bad0590fbb9d5779e7caa6e1cc4978e7eb24f\n"


def not_tested(reason: str) -> None:
    """Skip a test in a way that nobody overlooks."""
    if os.environ.get("KIT_NEEDS_DOCKER") == "1":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED: {reason}")


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    try:
        return container.connect()
    except PreflightError as error:
        not_tested(str(error))


@pytest.fixture(scope="session")
def image(client: docker.DockerClient) -> str:
    """An image with a Python in it."""
    for tag in BASES:
        try:
            client.images.get(tag)
            return tag
        except ImageNotFound:
            continue
    try:
        client.images.pull(BASES[0])
        return BASES[0]
    except DockerException as error:
        not_tested(f"no base image: type docker pull {BASES[0]} ({error})")


@pytest.fixture(scope="session")
def cdi_gpus(client: docker.DockerClient) -> None:
    """Eight devices nvidia.com/gpu=0..7, real or simulated."""
    if not {str(index) for index in range(8)} <= gpu_requests.cdi_devices(client.info()):
        not_tested("Docker has no CDI devices nvidia.com/gpu=0 to 7; .ci/engine.sh starts a Docker with simulated ones")


@pytest.fixture
def kit(tmp_path: Path, client: docker.DockerClient, image: str):
    """A kit with one tiny backend, its files rendered; the images it built are removed at the end."""
    (tmp_path / "docker/kit-test/tiny").mkdir(parents=True)
    version = image.partition(":")[2].partition("-")[0]
    (tmp_path / "docker/pins.toml").write_text(PINS.replace("BASE", image).replace("PYTHON", version))
    (tmp_path / "docker/Dockerfile.template").write_text((paths.ROOT / "docker/Dockerfile.template").read_text())
    shutil.copytree(paths.ROOT / "docker/build", tmp_path / "docker/build")
    (tmp_path / "docker/kit-test/tiny/requirements.txt").write_text(LOCK)
    rendered(tmp_path)
    yield tmp_path
    for name in client.images.list("llm-repro/kit-test"):
        client.images.remove(name.id, force=True)


def rendered(root: Path) -> pins.Image:
    resolve.write_all(render.expected(pins.load(root)))
    return pins.load(root).image("kit-test", "tiny")


def differing(client: docker.DockerClient, first: str, second: str) -> list[str]:
    """The differences between two builds, without the folders that the builder leaves out now and then (scripts/images/rebuild.py, PAIRS)."""
    return [line for line in rebuild.compare(client, first, second) if not line.endswith(rebuild.UNCHANGED)]


@pytest.fixture(scope="module")
def slurm_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a process in a job of a real SLURM with a simulated pyxis."""
    with slurm.started(tmp_path_factory.mktemp("slurm") / "cluster") as cluster, fake_pyxis.job(cluster) as variables:
        yield variables


@pytest.fixture(scope="module")
def loaded(image: str, archive: Path) -> set[str]:
    """The addresses of Podmans that have the image."""
    addresses = {os.environ[name] for name in ("CONTAINER_HOST", "KIT_TEST_ROOTLESS") if name in os.environ}
    for address in addresses:
        service = docker.DockerClient(base_url=address, version="auto", timeout=120)
        with archive.open("rb") as stream:
            said = [line.get("stream", "") for line in service.api.load_image(stream)]
        assert image in "".join(said), said
    return addresses
