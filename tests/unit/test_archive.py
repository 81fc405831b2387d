"""scripts/images/archive.py without Docker: how the saving of images ends."""

import errno
import os
import resource
import subprocess
import sys
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


def test_what_a_killed_command_left_of_an_archive_goes_with_the_next_one_of_its_name(docker_save, tmp_path):
    left = [tmp_path / "archives" / f".partial-{name}" for name in ("a.oci.tar.zst.000", "a.oci.tar.zst.011", "b.oci.tar.zst.000")]
    for path in left:
        path.write_text("half")
    docker_save("echo whole")
    assert sorted((tmp_path / "archives").iterdir()) == [left[2], tmp_path / "archives/a.oci.tar.zst"], "another command may be writing b"


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


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of two commits with a change that is not committed, of a user who has hooks and another name for remotes."""
    folder = tmp_path / "home of alice"
    (tmp_path / "template/hooks").mkdir(parents=True)
    (tmp_path / "template/hooks/post-checkout").write_text("#!/bin/sh\n# alice\n")
    (tmp_path / "gitconfig").write_text(
        f"[init]\n\ttemplateDir = {tmp_path}/template\n[clone]\n\tdefaultRemoteName = alice\n[user]\n\tname = alice\n\temail = alice@example.org\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_COMMITTER_{name}", raising=False)
        monkeypatch.delenv(f"GIT_AUTHOR_{name}", raising=False)
    folder.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for text in ("first", "second"):
        (folder / "file").write_text(text)
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "--quiet", f"--message={text}"], check=True)
    (folder / "file").write_text("not committed")
    return folder


def test_the_kit_of_an_archive_names_no_place_and_nobody_from_whom_it_came(tmp_path, clone):
    with tarfile.open(offline.keep_kit(tmp_path, clone)) as packed:
        members = packed.getmembers()
        texts = [packed.extractfile(member).read() for member in members if member.isfile()]
        config = packed.extractfile(f"{offline.FOLDER}/.git/config").read()
    assert b"remote" not in config and not [text for text in texts if b"alice" in text or str(tmp_path).encode() in text]
    ours = tarfile.TarInfo("a")
    ours.uid, ours.gid, ours.uname, ours.gname = 1000, 1001, "alice", "people"  # root may run this test
    for member in (*members, offline._of_nobody(ours)):
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", ""), "git reads it where root unpacks it"


def test_the_kit_of_an_archive_is_the_newest_commit_alone_and_whole(tmp_path, clone):
    with tarfile.open(offline.keep_kit(tmp_path, clone)) as packed:
        packed.extractall(tmp_path / "there")
    git = ["git", "-c", "safe.directory=*", "-C", str(tmp_path / "there" / offline.FOLDER)]

    def said(*words):
        done = subprocess.run([*git, *words], capture_output=True, text=True, check=True)
        return (done.stdout + done.stderr).split("\n")[:-1]

    assert (tmp_path / "there" / offline.FOLDER / "file").read_text() == "second"
    assert said("log", "--format=%s") == ["second"] and said("status", "--porcelain") == [] and said("fsck") == []


def test_a_disk_that_is_full_leaves_the_kit_of_an_earlier_archive(tmp_path, clone):
    (tmp_path / offline.KIT).write_text("earlier")
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            offline.keep_kit(tmp_path, clone)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert (tmp_path / offline.KIT).read_text() == "earlier" and not list(tmp_path.glob(".partial-*"))


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """The calls of a program in place of Python, which notes its words and fails where they hold the word of the file `fails`."""
    program, noted = tmp_path / "python", tmp_path / "noted"
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\ncase "$*" in *"$(cat {tmp_path}/fails)"*) echo one >&2; echo no index >&2; exit 1;; esac\n')
    program.chmod(0o755)
    (tmp_path / "fails").write_text("nothing of this")
    monkeypatch.setattr(offline.sys, "executable", str(program))
    return lambda: [line.split() for line in noted.read_text().splitlines()]


def test_the_tools_of_each_python_are_fetched_as_wheels_by_their_hashes(tmp_path, pip):
    assert offline.keep_tools(LOADED, tmp_path / "archives", ("3.11", "3.13")) == tmp_path / "archives" / "tools"
    assert (tmp_path / "archives/tools").is_dir()
    calls = pip()
    assert [words[:3] for words in calls] == [["-m", "pip", "download"]] * 4
    asked = [(words[words.index("--python-version") + 1], words[words.index("--requirement") + 1]) for words in calls]
    assert asked == [(version, str(LOADED.host_lock(group))) for version in ("3.11", "3.13") for group in ("installer", "run")]
    fixed = "--require-hashes --no-deps --only-binary :all: --implementation cp"
    assert all(fixed in " ".join(words) and words[words.index("--dest") + 1] == str(tmp_path / "archives/tools") for words in calls)
    assert all({"--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_17_x86_64", "--platform=linux_x86_64"} <= set(words) for words in calls)


def test_without_a_version_the_tools_are_those_of_this_python(tmp_path, pip):
    offline.keep_tools(LOADED, tmp_path)
    assert {words[words.index("--python-version") + 1] for words in pip()} == {f"{sys.version_info.major}.{sys.version_info.minor}"}


def test_tools_that_cannot_be_fetched_are_told_with_their_python_and_end_the_fetching(tmp_path, pip):
    (tmp_path / "fails").write_text("3.12")
    with pytest.raises(KitError, match=r"^the tools for Python 3\.12 could not be fetched: no index; type the same again .* or another version in PYTHONS$"):
        offline.keep_tools(LOADED, tmp_path, ("3.12", "3.13"))
    assert len(pip()) == 1
