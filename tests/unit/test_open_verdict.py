"""What becomes of measured times where the judge after them cannot do its work: whole commands with a guest that answers in milliseconds."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.chaos.place import BOUND_S, HOST, ROOT, Place
from tests.fakes.tiny_kit import HALF_WRITTEN

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place", ROOT, HOST, 1)


def results_of(place: Place) -> list[dict]:
    """The results, in the order of their numbers."""
    return [json.loads(path.read_text()) for path in sorted(place.runs.glob("*/result.json"))]


def test_a_judge_that_dies_leaves_a_failed_row_with_its_times_and_the_same_command_measures_again(place):
    place.teach("judge: end=SIGSEGV")
    command = place.start()
    assert command.wait(BOUND_S[HOST]) == 1, command.text()
    (first,) = results_of(place)
    assert first["status"] == "failed" and first["reason"].startswith("its tokens were not judged: the judge job ended")
    assert first["guest"]["measurements"][0]["timed_ms"] and "judged" not in first["guest"]["check"]
    place.unteach()
    command = place.start()
    assert command.wait(BOUND_S[HOST]) == 0, command.text()
    assert [one["status"] for one in results_of(place)] == ["failed", "ok"]
    assert results_of(place)[1]["guest"]["check"]["judged"]["passed"]


def test_a_command_that_is_stopped_while_it_judges_keeps_what_was_measured(place):
    place.teach("judge: pause_s=20")
    command = place.start()
    deadline = time.monotonic() + BOUND_S[HOST]
    while not list(place.runs.glob("*/tokens.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    command.signal(signal.SIGINT, group=False)
    assert command.wait(BOUND_S[HOST]) == 130, command.text()
    (only,) = results_of(place)
    assert (only["status"], only["reason"]) == ("failed", "its tokens were not judged: the command was stopped")
    assert only["guest"]["measurements"][0]["timed_ms"]


def test_a_result_names_the_commit_that_ran_and_not_one_that_was_made_meanwhile(place, tmp_path):
    kit = tmp_path / "kit"
    subprocess.run(["git", "clone", "-q", ROOT, kit], check=True)
    git = ["git", "-C", kit, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for code in ("scripts", "bench"):  # as they are here, committed or not
        shutil.copytree(ROOT / code, kit / code, dirs_exist_ok=True, ignore=shutil.ignore_patterns(HALF_WRITTEN))
    subprocess.run([*git, "commit", "-q", "--all", "--allow-empty", "-m", "the code of today"], check=True)
    place.kit = kit
    place.teach("measure: pause_s=3")
    before = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    command = place.start()
    assert place.until("the job", command), command.text()
    (kit / os.fsdecode(b"\xff name of an untracked file")).touch()
    subprocess.run([*git, "config", "core.quotePath", "false"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "meanwhile"], check=True)
    assert command.wait(BOUND_S[HOST]) == 0, command.text()
    assert [one["host"]["commit"] for one in results_of(place)] == [before]
