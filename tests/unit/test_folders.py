"""scripts/machine/permissions.py: what a careful umask would keep from a container's user."""

import os
import stat

import pytest

from scripts.machine import permissions


@pytest.fixture(autouse=True)
def careful():
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_that_is_made_can_be_read_by_everyone_and_one_that_was_there_stays_as_it_is(tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    permissions.make(private / "models" / "random")
    permissions.make(private / "models" / "random")
    assert [mode(path) for path in (private, private / "models", private / "models" / "random")] == [0o700, 0o755, 0o755]


def test_all_that_is_in_a_folder_is_opened(tmp_path):
    (tmp_path / "checkpoint" / "shards").mkdir(parents=True)
    (tmp_path / "checkpoint" / "shards" / "weights").write_text("")
    permissions.open_to_all(tmp_path / "checkpoint")
    assert [mode(tmp_path / name) for name in ("checkpoint", "checkpoint/shards", "checkpoint/shards/weights")] == [0o755, 0o755, 0o644]


def test_a_file_and_a_link_that_leads_nowhere_are_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "a disk that is not mounted")
    (tmp_path / "link").symlink_to(tmp_path)
    ways = {name: permissions.in_the_way(tmp_path / name) for name in ("file", "file/a", "nowhere", "nowhere/a", "link", "link/a", ".", "a/b")}
    file, nowhere = f"{tmp_path}/file is a file", f"{tmp_path}/nowhere is a link that leads nowhere"
    assert {name: words for name, words in ways.items() if words} == {"file": file, "file/a": file, "nowhere": nowhere, "nowhere/a": nowhere}
