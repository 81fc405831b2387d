"""Fixtures that several test files share."""

import os
import subprocess
from pathlib import Path

import pytest

FAKES = Path(__file__).resolve().parent / "fakes"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests first, then those with real tiny models, then those with containers."""
    order = ("tests", "guest", "images")
    items.sort(key=lambda item: order.index(item.path.parent.name))


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the make-believe libnvidia-ml.so.1: put it on the LD_LIBRARY_PATH of a child process."""
    folder = tmp_path_factory.mktemp("fake-nvml")
    compiler = os.environ.get("CC", "cc")
    library = folder / "libnvidia-ml.so.1"
    try:
        subprocess.run([compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, FAKES / "nvml.c"], check=True)
    except FileNotFoundError:
        pytest.skip("NOT TESTED: the fake GPUs need a C compiler; install gcc")
    return folder
