"""A fixture of all tests of the host."""

import tempfile
from collections.abc import Iterator

import pytest

from tests.conftest import folder_in_memory


@pytest.fixture(scope="package", autouse=True)
def temporary_files_in_memory() -> Iterator[None]:
    """The files that the code under test makes for a moment lie in memory, also where other tests run too and each test's own folder is on the disk."""
    with pytest.MonkeyPatch.context() as patched:
        if folder := folder_in_memory():
            patched.setenv("TMPDIR", folder)
            patched.setattr(tempfile, "tempdir", folder)
        yield
