"""A run of a machine whose clock was ahead is told to who makes the report, and no page depends on the day."""

import datetime
import shutil
from pathlib import Path

import pytest

from scripts.report import document
from scripts.results import ahead
from tests import synthetic
from tests.synthetic import job, record

NOW = datetime.datetime(2026, 11, 21, 4, 0, tzinfo=datetime.UTC)


def began(*moments: str) -> list:
    return [record(job("int8"), number=number, started_at=moment) for number, moment in enumerate(moments, 1)]


def test_a_run_that_began_in_the_future_is_named_with_both_moments() -> None:
    past, future = began("2026-11-20T04:00:00Z", "2028-01-01T00:00:00Z")
    told = ahead.note([future, past], NOW)
    assert told.startswith(f"note: {future.id} began at 2028-01-01T00:00:00Z, and the time is now 2026-11-21T04:00:00Z: this run stays the latest of its row")


def test_of_several_the_first_is_named_and_the_others_are_counted() -> None:
    runs = began("2028-01-02T00:00:00Z", "2028-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
    assert f"note: {runs[1].id} began at 2028-01-01T00:00:00Z, and 2 other runs in the future too, and the time is now " in ahead.note(runs, NOW)


def test_clocks_that_differ_by_less_than_an_hour_are_no_matter() -> None:
    assert ahead.note(began("2026-11-21T03:59:59Z", "2026-11-21T05:00:00Z"), NOW) == ""
    assert ahead.note(began("2026-11-21T05:00:01Z"), NOW)


def test_the_note_stands_beside_the_report_and_in_none_of_its_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.write(tmp_path / "runs", began("2026-11-20T04:00:00Z"))
    document.write(tmp_path / "runs", tmp_path)
    assert " began at " not in capsys.readouterr().err
    shutil.rmtree(tmp_path / "runs")
    synthetic.write(tmp_path / "runs", began("9000-01-01T00:00:00Z"))
    document.write(tmp_path / "runs", tmp_path)
    assert " began at 9000-01-01T00:00:00Z, and the time is now " in capsys.readouterr().err
    assert not any("stays the latest" in path.read_text() for path in tmp_path.glob("*.*"))
