"""scripts/images/archive.py without Docker: how the saving of images ends."""

import errno
import os
import resource
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts import pins
from scripts.commands.line import command_line
from scripts.errors import KitError, PreflightError, UsageError
from scripts.images import archive, build, offline, pieces

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


@pytest.mark.parametrize(
    ("script", "words"), [("echo no such image >&2; exit 1", "no such image"), ("echo half; exit 3", "exit code 3"), ("echo half; kill -9 $$", "exit code -9")]
)
def test_a_docker_that_fails_is_told_by_its_reason_and_leaves_no_archive(docker_save, tmp_path, script, words):
    with pytest.raises(KitError, match=f"^docker save failed: {words}; "):
        docker_save(script)
    assert list((tmp_path / "archives").iterdir()) == []


def test_an_engine_without_its_command_line_says_what_to_install(docker_save, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="`docker` command is missing: install"):
        docker_save("echo whole")
    assert list((tmp_path / "archives").iterdir()) == []


def test_an_archive_whose_docker_ended_well_has_its_name(docker_save, tmp_path):
    assert docker_save("echo whole") == [tmp_path / "archives/a.oci.tar.zst"]


@pytest.mark.parametrize(
    ("backends", "names"),
    [
        ("deepspeed,layer-parallel", ["deepspeed:hopper", "layer-parallel:hopper"]),
        ("deepspeed,deepspeed", ["deepspeed:hopper"]),
        (None, [image.name for image in LOADED.images("hopper")]),
    ],
    ids=["two", "one twice", "all"],
)
def test_the_images_of_the_typed_backends_are_archived(tmp_path, monkeypatch, backends, names):
    archived: list[str] = []
    monkeypatch.setattr(archive, "archive", lambda where, images, *parts: archived.extend(image.name for image in images))
    words = ["archive", "--stack", "hopper", "--archives", str(tmp_path), *(["--backend", backends] if backends else [])]
    assert CliRunner().invoke(command_line, words, catch_exceptions=False).exit_code == 0
    assert archived == names


def test_a_wrong_name_among_the_backends_is_told_with_the_ones_that_there_are(tmp_path):
    with pytest.raises(UsageError, match="there is no backend 'deepsped', allowed are .*; try deepspeed;"):
        CliRunner().invoke(command_line, ["archive", "--backend", "deepspeed,deepsped", "--archives", str(tmp_path)], catch_exceptions=False)


def test_half_a_file_of_an_archive_that_was_cut_off_has_no_checksum(tmp_path):
    for name in ("kit.tar", ".partial-kit.tar"):
        (tmp_path / name).write_text("half")
    archive.write_sums(tmp_path)
    assert list(archive.read_sums(tmp_path)) == ["kit.tar"]


def test_a_disk_that_is_full_leaves_the_list_of_checksums_as_it_was(tmp_path):
    (tmp_path / "tools").mkdir()
    for number in range(20):
        (tmp_path / f"tools/{number}.whl").write_text("")
    archive.write_sums(tmp_path)
    before, (_, most) = archive.read_sums(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "tools/new.whl").write_text("")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            archive.write_sums(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert archive.read_sums(tmp_path) == before


def test_the_kit_of_an_archive_names_no_place_from_which_it_came(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path)]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message=one"]):
        subprocess.run([*git, *words], check=True)
    with tarfile.open(offline.keep_kit(tmp_path, tmp_path)) as packed:
        config = packed.extractfile(f"{offline.FOLDER}/.git/config").read().decode()
    assert "remote" not in config and str(tmp_path) not in config
