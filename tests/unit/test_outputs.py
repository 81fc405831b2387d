"""The answers of a long run: whole lines count, and the host carries them from a run that was killed to the next one."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measuring.answers_file import NAME, Outputs
from scripts import results
from scripts.run import resume
from tests.synthetic import job, record


@pytest.fixture
def file(tmp_path):
    kept = Outputs(tmp_path, "abc")
    kept.add({"ms": 1.0, "items": [[0, 3, "a"], [1, 2, "b\n"]]})
    kept.add({"ms": 2.0, "items": [[2, 1, "ü"]]})
    kept.close()
    return tmp_path / NAME


def again(file, fingerprint="abc"):
    opened = Outputs(file.parent, fingerprint)
    opened.close()
    return opened


def test_what_was_answered_is_there_after_a_restart(file):
    assert again(file).done() == {0, 1, 2} and again(file).resumed
    assert [batch["ms"] for batch in again(file).batches] == [1.0, 2.0]


def test_an_answer_with_half_a_character_is_kept(tmp_path):
    kept = Outputs(tmp_path, "abc")
    kept.add({"ms": 1.0, "items": [[0, 1, "\ud83d"]]})
    kept.close()
    assert again(tmp_path / NAME).batches[0]["items"] == [[0, 1, "\ud83d"]]


def test_a_first_run_goes_on_from_nothing(tmp_path):
    opened = again(tmp_path / NAME)
    assert opened.done() == set() and not opened.resumed
    assert not again(tmp_path / NAME).resumed  # nothing but the first line is there


def test_a_file_cut_at_any_byte_has_whole_batches_only_and_can_be_gone_on_with(file):
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        lines = whole[:length].count(b"\n")
        opened = Outputs(file.parent, "abc")
        assert opened.done() == [set(), set(), {0, 1}, {0, 1, 2}][lines]
        opened.add({"ms": 3.0, "items": [[9, 1, ""]]})
        opened.close()
        assert again(file).done() == opened.done() and 9 in again(file).done()


def test_what_follows_a_damaged_line_is_answered_again(file):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"\xff\xfe\n" + lines[2])
    assert again(file).done() == set()


def test_the_answers_to_another_job_do_not_count(file):
    assert again(file, "other").done() == set()
    assert json.loads(file.read_text().splitlines()[0]) == {"job": "other"}


def test_of_several_ranks_the_first_alone_writes_and_all_know_the_answers(file, monkeypatch):
    ranks = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        ranks.append(Outputs(file.parent, "abc"))
    for rank in ranks:
        assert rank.resumed and rank.done() == {0, 1, 2}
        rank.add({"ms": 3.0, "items": [[3, 1, ""]]})
        rank.close()
        assert rank.done() == {0, 1, 2, 3}
    monkeypatch.delenv("RANK")
    assert [batch["ms"] for batch in again(file).batches] == [1.0, 2.0, 3.0]


@pytest.fixture
def runs(tmp_path):
    """A folder of runs of one job, and a function that adds one: with a result of that status, or as a kill left it."""

    def add(number, status=None, answers="answers"):
        one = record(job("int8"), status=status or "ok", reason="synthetic", number=number)
        folder = tmp_path / f"run-{number:02d}"
        (folder / "work").mkdir(parents=True)
        (folder / "work" / NAME).write_text(answers)
        if status:
            results.store(folder, dataclasses.replace(one, id=folder.name))
        return folder

    return add


def end(folder):
    resume.keep(folder / "work")
    assert not (folder / "work" / NAME).exists()
    (folder / "work").rmdir()


def begin(folder):
    (folder / "work" / NAME).unlink()
    if resume.hand_over("run", folder.parent, folder / "work"):
        assert (folder / "work" / NAME).stat().st_mode & 0o777 == 0o666, "a container's user goes on writing it"
    return (folder / "work" / NAME).read_text() if (folder / "work" / NAME).exists() else None


@pytest.mark.parametrize("status", [None, "timeout", "failed"])
def test_a_run_that_came_to_no_end_hands_its_answers_to_the_next(runs, status):
    first, second = runs(1, status), runs(2)
    end(first)
    assert begin(second) == "answers"
    assert not (first / NAME).exists(), "moved, so that no answer is in two files"


def test_a_run_that_is_done_keeps_its_answers(runs):
    first, second = runs(1, "ok"), runs(2)
    end(first)
    assert begin(second) is None and (first / NAME).exists()


def test_a_run_that_is_still_going_keeps_its_answers(runs):
    first, second = runs(1), runs(2)
    assert begin(second) is None and (first / "work" / NAME).exists()


def test_the_latest_answers_count(runs):
    first, second, third = runs(1, answers="old"), runs(2, answers="new"), runs(3)
    end(first)
    end(second)
    assert begin(third) == "new" and (first / NAME).exists()


def test_a_work_folder_without_answers_is_no_error(tmp_path):
    resume.keep(tmp_path / "none")
    resume.hand_over("run", tmp_path, tmp_path / "none")


#: Ends a run in a process whose files cannot grow beyond 100 bytes: a copy of the answers fails there, as on a full disk.
WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from scripts.run import resume, run_folders
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
folder = Path(sys.argv[1])
"""
ENDS = {"its end": "resume.keep(folder / 'work')", "a sweep": "print(list(run_folders.sweep_unfinished(folder.parent)))"}


def end_without_room(folder, lines):
    """What a process without room says while it ends a run or sweeps a dead one."""
    command = [sys.executable, "-c", WITHOUT_ROOM + lines, str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("lines", ENDS.values(), ids=ENDS)
def test_answers_that_no_disk_has_room_to_copy_are_carried_on_all_the_same(runs, lines):
    first = runs(1, answers="answers" * 100)
    (first / "job.json").write_text("{}")
    (first / ".lock").touch()
    assert end_without_room(first, lines) == ""
    assert not (first / "work" / NAME).exists()
    assert begin(runs(2)) == "answers" * 100


def test_what_took_the_place_of_answers_without_room_is_refused_where_the_guest_does_not_reach_it(tmp_path, capsys):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / NAME).symlink_to("/etc/hostname")
    resume._rename(tmp_path / "work" / NAME, tmp_path / NAME)
    assert "is a symbolic link; a regular file is allowed; a later run does not use these answers" in capsys.readouterr().err
    assert not (tmp_path / NAME).is_symlink() and Path("/etc/hostname").exists()
