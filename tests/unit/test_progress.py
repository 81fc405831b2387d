"""What a person without a terminal sees of a long run: how far it is and what is left, now and then."""

import json
import os
import re
import time

import pytest

from scripts import paths
from scripts.machine import steps
from scripts.run import cost, progress


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s left"), (59.4, "59 s left"), (90, "2 min left"), (3599, "1 h 00 min left"), (7500, "2 h 05 min left")]
)
def test_what_is_left_is_told_in_words(seconds, words):
    assert progress.left(seconds) == words


def test_items_are_told_at_once_then_every_half_minute_and_at_the_end(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.JobDisplay("a job") as display:
        for done, at in ((64, 1000.0), (128, 1010.0), (192, 1031.0), (10_000, 1032.0)):
            now[0] = at
            display.line("@" + json.dumps({"run": "items", "done": done, "total": 10_000, "new_tokens": 256, "left_s": 600.0 if done < 10_000 else 0.0}))
    told = [line for line in capsys.readouterr().err.splitlines() if "items" in line]
    assert told == ["  a job: 64 of 10,000 items, 10 min left", "  a job: 192 of 10,000 items, 10 min left", "  a job: 10,000 of 10,000 items, 0 s left"]


@pytest.mark.parametrize(
    "event",
    [
        {"phase": 5},
        {"phase": ["load"]},
        {"phase": "[/nothing]"},
        {"phase": "a\nb"},
        {"phase": "x" * (1 << 20)},
        {"run": "timed", "done": "1", "total": 2},
        {"run": "timed", "done": 1, "total": -2},
        {"run": {}, "total": 1},
        {"run": "items", "done": 1, "total": 2, "left_s": 1e300},
        {"run": "items", "total": 10**30},
        {"left_s": None, "total": [1]},
        [1],
        None,
    ],
)
def test_an_event_of_a_wrong_type_is_a_line_of_the_log_and_never_an_error(tmp_path, monkeypatch, event):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws as on a terminal
    with progress.JobDisplay("a job [/x]", tmp_path / "log.txt") as display:
        line = "@{" + json.dumps(event).removeprefix("{")
        display.line(line)
        display.progress.refresh()
    assert (tmp_path / "log.txt").read_text() == line + "\n"


@pytest.mark.parametrize("line", ["@{", '@{"total": NaN}', '@{"total": 1e400}', "@{" * 10_000, '@{"run": "\\ud800", "total": 1}'])
def test_a_line_that_only_begins_like_an_event_is_a_line_of_the_log(tmp_path, line):
    with progress.JobDisplay("a job", tmp_path / "log.txt") as display:
        display.line(line)
    assert (tmp_path / "log.txt").read_text() == line + "\n"


def test_a_log_that_cannot_be_written_ends_with_a_note_and_the_job_goes_on(tmp_path, capsys):
    with progress.JobDisplay("a job", tmp_path / "log.txt") as display:
        display.line("before")
        display.log._file.close()
        display.log._file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", buffering=0)
        display.line("on a full disk")
        display.line('@{"phase": "measure"}')
    told = capsys.readouterr().err
    assert told.count("note: the log of a job cannot be written (No space left on device) and ends here; the job goes on") == 1
    assert "a job: measure" in told and (tmp_path / "log.txt").read_text() == "before\n"


@pytest.fixture
def full():
    """A stream on a full disk, as are those of a terminal or a reader that is gone."""
    with open("/dev/full", "w", buffering=1) as stream:
        yield stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_a_job_goes_on_where_its_progress_cannot_be_shown_any_more(tmp_path, monkeypatch, full, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)  # rich draws as on a terminal
    with progress.JobDisplay("a job", tmp_path / "log.txt") as display, monkeypatch.context() as later:
        later.setattr(progress.sys, "stderr", full)
        display.console.file = full
        display.line('@{"phase": "measure"}')
        display.line('@{"run": "items", "done": 1, "total": 2, "left_s": 1}')
        display.log._file.close()  # its disk is the same
        display.log._file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", buffering=0)
        display.line("the last")
    assert (tmp_path / "log.txt").read_text().count("@{") == 2


def test_a_guest_that_reports_without_end_fills_no_terminal_and_no_log_of_ci(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "MOST_LINES", 10)
    with progress.JobDisplay("a job", tmp_path / "log.txt") as display:
        for _ in range(10):
            display.line('@{"phase": "measure"}')
            display.line('@{"run": "items", "done": 1, "total": 1, "left_s": 0}')
    assert capsys.readouterr().err.count("\n") == 10
    assert (tmp_path / "log.txt").read_text().count("\n") == 20


def test_the_time_of_a_silent_phase_is_told_again_once_it_can_be_shown(monkeypatch, capsys, full):
    monkeypatch.setattr(steps, "QUIET_S", 0.01)
    heartbeat = steps.Heartbeat()
    with monkeypatch.context() as later:
        later.setattr(steps.sys, "stderr", full)
        heartbeat.start()
        heartbeat.phase("measure")
        time.sleep(0.1)
    time.sleep(0.3)
    heartbeat.stop()
    assert "measure, 0 s so far" in capsys.readouterr().err


def phases_by(method):
    """The names of the phases that the guest runs, or only stamps."""
    return re.findall(rf'phases\.{method}\(\s*"(\w+)"', (paths.ROOT / "bench/__main__.py").read_text() + (paths.ROOT / "bench/actions.py").read_text())


def test_every_phase_of_the_guest_has_its_time_told():
    assert {*phases_by("run"), *phases_by("stamp")} == {*cost.CALLS, *cost.PHASES, *cost.OF_HELPERS}


def test_every_phase_that_the_guest_announces_is_shown(capsys):
    announced = phases_by("run")
    with progress.JobDisplay("a job") as display:
        for name in announced:
            display.line("@" + json.dumps({"phase": name}))
    told = capsys.readouterr().err.splitlines()
    assert {"import", "load", "measure", "judge", "weights"} <= set(announced) and told == [f"  a job: {name}" for name in announced]


@pytest.mark.parametrize("word", ["\x9b2J", "\u202egnp.exe", "\u2066a", "\x1b[2J", "x" * 60, "another phase"])
def test_a_phase_that_the_kit_does_not_know_never_reaches_the_terminal(capsys, word):
    with progress.JobDisplay("a job") as display:
        display.line("@" + json.dumps({"phase": word}))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("word", ["\x9b2J", "\u202egnp.exe", "\u2066a", "\x1b[2J", "x" * 60])
def test_a_word_that_a_terminal_cannot_show_in_a_line_never_reaches_it(capsys, word):
    with progress.JobDisplay("a job") as display:
        display.line("@" + json.dumps({"run": word, "done": 1, "total": 1, "left_s": 0}))
    assert capsys.readouterr().err == ""
