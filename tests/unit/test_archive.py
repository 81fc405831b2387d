"""scripts/images/archive.py without Docker: how the saving of images ends."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import pins
from scripts.errors import KitError
from scripts.images import archive, build, pieces

LOADED = pins.load()
ENDLESS = 'echo $$ > "$0.pid"; exec cat /dev/zero'


@pytest.fixture
def docker_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Path]]:
    """Saves an image with a `docker` command that does what it is told."""
    monkeypatch.setattr(build, "exists", lambda client, tag: False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "bin").mkdir()
    (tmp_path / "archives").mkdir()

    def save(script: str) -> list[Path]:
        (tmp_path / "bin/docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/docker").chmod(0o755)
        return archive.save_images(None, [LOADED.images()[0]], tmp_path / "archives", "a.oci.tar.zst")

    return save


@pytest.mark.timeout(20)
@pytest.mark.parametrize("cause", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=["full disk", "Ctrl-C"])
def test_what_ends_the_writing_of_an_archive_is_told_as_it_is_and_docker_is_ended(docker_save, tmp_path, monkeypatch, cause):
    def write(self: pieces.Writer, data: bytes) -> int:
        raise cause

    monkeypatch.setattr(pieces.Writer, "write", write)
    with pytest.raises(type(cause)) as told:
        docker_save(ENDLESS)
    assert told.value is cause
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "bin/docker.pid").read_text()), 0)
    assert list((tmp_path / "archives").iterdir()) == []


@pytest.mark.parametrize(("script", "words"), [("echo no such image >&2; exit 1", "no such image"), ("echo half; exit 3", "exit code 3")])
def test_a_docker_that_fails_is_told_by_its_reason_and_leaves_no_archive(docker_save, tmp_path, script, words):
    with pytest.raises(KitError, match=f"^docker save failed: {words}; "):
        docker_save(script)
    assert list((tmp_path / "archives").iterdir()) == []


def test_an_archive_whose_docker_ended_well_has_its_name(docker_save, tmp_path):
    assert docker_save("echo whole") == [tmp_path / "archives/a.oci.tar.zst"]
