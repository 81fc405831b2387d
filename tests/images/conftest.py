"""Tests with a real Docker. Without one they are skipped, loudly; KIT_NEEDS_DOCKER=1 makes that a failure."""

import os

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from scripts import container, gpu_requests
from scripts.errors import PreflightError

#: The base of the kit's own images: whoever has built one has it.
BASES = ("python:3.12-slim-bookworm", "python:3.8-slim-bookworm")

_missing: set[str] = set()


def not_tested(reason: str) -> None:
    """Skip a test in a way that nobody overlooks."""
    if os.environ.get("KIT_NEEDS_DOCKER") == "1":
        pytest.fail(reason)
    _missing.add(reason)
    pytest.skip(f"NOT TESTED: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in sorted(_missing):
        terminalreporter.write_line(f"NOT TESTED with containers: {reason}", red=True, bold=True)


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
    """Eight devices nvidia.com/gpu=0..7, real or make-believe."""
    if not {str(index) for index in range(8)} <= gpu_requests.cdi_devices(client.info()):
        not_tested("Docker has no CDI devices nvidia.com/gpu=0 to 7; .ci/engine.sh starts a Docker with make-believe ones")
