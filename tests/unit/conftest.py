"""Fixtures of tests of the host."""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import articles
from tests.conftest import folder_in_memory


@pytest.fixture(scope="package", autouse=True)
def temporary_files_in_memory() -> Iterator[None]:
    """The files that the code under test makes for a moment lie in memory, also where other tests run too and each test's own folder is on the disk."""
    with pytest.MonkeyPatch.context() as patched:
        if folder := folder_in_memory():
            patched.setenv("TMPDIR", folder)
            patched.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """A command that a script starts with `&` ignores Ctrl-C, and so would a test that sends it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that gives the kit an article whose file has a mistake: one more, or one of its own."""
    folder = tmp_path / "kit" / "articles"
    shutil.copytree(articles.ARTICLES, folder)
    shutil.copy(articles.ARTICLES.parent / "tolerances.toml", folder.parent)

    def write(slug: str = "mine", text: str = "slug = ") -> None:
        (folder / f"{slug}.toml").write_text(text)
        monkeypatch.setattr(articles.model, "ARTICLES", folder)
        for function in (articles.model.load, articles.model.load_all, articles.model.slugs):
            monkeypatch.setattr(function, "__defaults__", (folder,))

    return write
