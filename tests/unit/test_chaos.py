"""The campaign of faults itself: its draws follow from the seed, and its oracle sees each breach."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import campaign, faults, guest, oracle
from tests.chaos.place import BOUND_S, HOST, ROOT, Place


def names(seed: str, count: int) -> list[str]:
    return [fault.kind.name for fault in campaign.drawn(seed, count, faults.KINDS)]


def test_a_seed_draws_the_same_faults_and_another_seed_others() -> None:
    assert names("a", 60) == names("a", 60) != names("b", 60)
    first, again = (campaign.drawn("a", 5, faults.KINDS)[2].draw().random() for _ in range(2))
    assert first == again


def test_every_kind_is_tried_where_there_are_faults_enough_and_the_bound_holds() -> None:
    assert set(names("a", len(faults.KINDS))) == {kind.name for kind in faults.KINDS}
    assert len(names("a", 7)) == 7 and len(names("a", 500)) == 500


def test_all_manners_that_are_drawn_are_of_the_language() -> None:
    words = {"write": guest.WRITING, "print": guest.PRINTING, "leave": guest.LEAVING, "end": guest.ENDING}
    seen: dict[str, set[str]] = {word: set() for word in words}
    for number in range(2000):
        for kind in faults.KINDS:
            for manners in guest.parse_manners(kind.manners(random.Random(number))).values():
                for word in words.keys() & manners.keys():
                    assert manners[word] in words[word]
                    seen[word].add(manners[word])
    assert {word: set(allowed) - seen[word] for word, allowed in words.items()} == {word: set() for word in words}, "each is drawn at times"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place after an honest run."""
    place = Place(tmp_path_factory.mktemp("chaos") / "place", ROOT, HOST, 1)
    command = place.start()
    assert command.wait(BOUND_S[HOST]) == 0, command.text()
    return place


def result_of(place: Place) -> Path:
    (path,) = place.runs.glob("*/result.json")
    return path


def change_times(place: Place) -> None:
    fields = json.loads(result_of(place).read_text())
    fields["guest"]["measurements"][0]["timed_ms"][0] *= 1.5
    result_of(place).write_text(json.dumps(fields))


def cut(place: Place) -> None:
    result_of(place).write_text(result_of(place).read_text()[:300])


def breaches(place: Place, before: dict[Path, bytes], output: str = "") -> set[str]:
    found = oracle.lost(before) + oracle.false(place) + oracle.left(place) + oracle.promised(output) + oracle.tracebacks(output)
    return {category for category, _ in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        (lambda place: None, set()),
        (lambda place: result_of(place).unlink(), {oracle.LOST}),
        (change_times, {oracle.LOST, oracle.FALSE}),
        (cut, {oracle.LOST, oracle.FALSE}),
        (lambda place: (result_of(place).parent / ".lock").touch(), {oracle.LEFT}),
        (lambda place: (result_of(place).parent / "work").mkdir(), {oracle.LEFT}),
        (lambda place: (place.models / ".work-x").mkdir(), {oracle.LEFT}),
        (lambda place: (place.runs / "a-01").mkdir(), {oracle.LEFT}),
        (lambda place: (place.tmp / "scratch").touch(), {oracle.LEFT}),
    ],
    ids=["nothing", "result gone", "another time", "half a result", "lock", "work", "models' work", "empty run", "temporary file"],
)
def test_the_oracle_sees_each_breach_and_no_other(honest: Place, tmp_path: Path, damage: Callable, seen: set) -> None:
    place = Place(tmp_path / "place", ROOT, HOST, 1)
    for name in ("runs", "models"):
        shutil.copytree(honest.folder / name, place.folder / name, dirs_exist_ok=True)
    before = oracle.stored(place)
    damage(place)
    assert breaches(place, before) == seen


@pytest.mark.slow
def test_the_oracle_holds_a_command_to_what_it_said(honest: Place) -> None:
    promise = "\n".join(line for line in next(honest.folder.glob("output-*")).read_text().splitlines() if line.endswith("result.json"))
    assert promise and breaches(honest, {}, promise) == set()
    assert breaches(honest, {}, promise.replace("-01/", "-07/")) == {oracle.LOST}
    assert breaches(honest, {}, "Traceback (most recent call last):\n  …") == {oracle.TRACEBACK}


@pytest.mark.slow
def test_a_process_that_a_command_leaves_is_seen_and_ended(honest: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "GONE_WITHIN_S", 0.2)
    process = subprocess.Popen(["sleep", "60"], env=honest.environment, start_new_session=True)
    assert oracle.soon(honest.processes, 10), "a process that has just started shows no environment for a moment"
    (breach,) = oracle.processes_left(honest)
    assert breach == (oracle.LEFT, "a process: sleep 60 ") and process.wait(10) == -9
    assert oracle.processes_left(honest) == []
