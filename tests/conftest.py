"""Fixtures that several test files share, the order of the tests, and what is told of those that were skipped."""

import gc
import os
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from scripts import surroundings

# Hundreds of processes start here, and without bytecode each would compile torch and transformers anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# `make test GPU_MODE=cdi` is meant for the tests; the verbs that they start would refuse what they do not read.
os.environ.pop("KIT_TYPED", None)

# Two or three files of tests run at a time; with threads of their own their jobs would wait for each other's, and count that as work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

surroundings.use(os.environ)  # for fixtures of a whole session, which come before those of a test

#: Files whose tests take longest together.
LONGEST = ("test_slurm.py", "test_compiled.py", "test_verified.py", "test_make.py")

FAKES = Path(__file__).resolve().parent / "fakes"

#: The tests of unit/ fill 100 MB of memory at a time with their files.
MEMORY, NEEDED_BYTES = "/dev/shm", 1 << 30


def folder_in_memory() -> str:
    """Where temporary files lie in memory; "" where TMPDIR names another place, memory has no room, or no program may start there.

    Folders that come and go by the thousand take an ext4 disk as much time as the tests: it looks at each deleted inode before it makes another.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return ""
    room = os.statvfs(MEMORY)
    return MEMORY if room.f_bavail * room.f_frsize >= NEEDED_BYTES and not room.f_flag & os.ST_NOEXEC else ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What the collection of tests makes stays to the end: no search for garbage looks through its million objects, neither meanwhile nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Where the tests in unit/ run alone all of their files lie in memory; the files of other tests are too large."""
    if all("unit" in Path(place).parts for place in config.args) and (folder := folder_in_memory()):
        os.environ["TMPDIR"] = tempfile.tempdir = folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The fast tests first, then the browser, real tiny models, and containers; the other way round where several run at a time.

    There the longest files of a folder come first in it, or one process would be at them when the other has nothing left to do.
    """
    order = ("unit", "site", "guest", "images")
    items.sort(key=lambda item: (order.index(item.path.parent.name), item.path.name in LONGEST), reverse=hasattr(config, "workerinput"))


class ByFile(LoadScopeScheduling):
    """Whole test files at a time, for the tests of one share what they set up; never two that use the Docker engine."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        return "images" if "images" in file.parts else str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in sorted({report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())}):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_passed_over() -> None:
    """As after the collection of tests: a report, and the loading of a model, end with `gc.unfreeze()`."""
    if gc.get_freeze_count() < 1000:  # Python 3.12 itself keeps some hundred frozen
        gc.freeze()


@pytest.fixture(autouse=True)
def environment_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests set variables after the command line would have read them, so here the surroundings are those of each moment."""
    monkeypatch.setattr(surroundings, "current", lambda: surroundings.Surroundings(os.environ))


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the simulated libnvidia-ml.so.1: put it on the LD_LIBRARY_PATH of a child process."""
    folder = tmp_path_factory.mktemp("fake-nvml")
    compiler = os.environ.get("CC", "cc")
    library = folder / "libnvidia-ml.so.1"
    try:
        subprocess.run([compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, FAKES / "nvml.c"], check=True)
    except FileNotFoundError:
        pytest.skip("NOT TESTED: the fake GPUs need a C compiler; install gcc")
    return folder
