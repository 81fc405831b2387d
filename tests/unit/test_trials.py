"""Trials on tiny models or a CPU stay apart from the results that the committed report shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import results
from scripts.commands.line import invoke
from scripts.errors import UsageError
from scripts.report import document
from scripts.run.options import Options
from tests import committed, reports
from tests.typed import chosen

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("scale", "device", "engine", "folder"),
    [
        ("tiny", "cuda", "docker", results.TRIALS),
        ("full", "cpu", "host", results.TRIALS),
        ("full", "cuda", "docker", results.RUNS),
        ("full", "cuda", "apptainer", results.RUNS),
        ("full", "cuda", "host", results.WITHOUT_CONTAINERS),
    ],
)
def test_trials_and_runs_without_containers_go_to_folders_of_their_own(scale, device, engine, folder):
    assert Options(scale=scale, device=device, engine=engine).runs == folder


def test_the_runs_of_the_first_report_had_containers_of_the_pinned_images_and_the_others_had_none():
    apart = committed.apart()
    assert {record.host["engine"] for record in apart} == {"host"} and len(apart) > 100
    for record in committed.contained():
        assert record.host["engine"] == "docker" and record.host["differences"] == [] and record.host["image"]["tag"].startswith("llm-repro/"), record.id


def test_a_folder_that_is_typed_takes_trials_too():
    assert chosen(SCALE="tiny", DEVICE="cpu", RUNS="/somewhere").runs == Path("/somewhere")


def test_the_command_that_is_named_shows_the_folder_s_report():
    assert results.where_shown(ROOT / "reports" / "runs") == "type make report to see it in reports/REPORT.md"
    assert results.where_shown(results.WITHOUT_CONTAINERS) == "type make report to see it in reports/without-containers/REPORT.md"
    assert results.where_shown(results.TRIALS) == "type make report RUNS=reports/trials/runs to see it in reports/trials/REPORT.md"


def test_the_command_that_is_named_can_be_typed_and_leads_to_the_report(tmp_path):
    assert results.where_shown(tmp_path / "mine") == f"type make report RUNS={tmp_path}/mine to see it in {tmp_path}/mine-report/REPORT.md"
    with pytest.raises(UsageError, match=f"type make bench-layer-parallel RUNS={tmp_path}/mine, which makes it, or RUNS=reports/runs"):
        results.must_hold_runs(tmp_path / "mine")
    assert results.where_shown(tmp_path / "my runs").startswith(f"type make report 'RUNS={tmp_path}/my runs' to see it in ")


def test_git_ignores_trials():
    done = subprocess.run(["git", "check-ignore", "--quiet", "reports/trials/runs/x/result.json"], cwd=ROOT)
    assert done.returncode == 0


@pytest.mark.slow
def test_runs_of_a_named_folder_are_reported_beside_it(tmp_path):
    from tests import synthetic

    synthetic.write(tmp_path / "trials" / "runs", [synthetic.record(synthetic.job("int8"), 50.0)])
    kept = {name: value for name, value in os.environ.items() if name not in ("OUT", "FORMAT")}
    done = subprocess.run(
        [sys.executable, "-m", "scripts", "report"], cwd=ROOT, env=kept | {"RUNS": str(tmp_path / "trials" / "runs")}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "int8" in reports.text_of(tmp_path / "trials"), done.stderr
    assert "trials/runs: 1 run; judging" in done.stderr and "1 of 1 rows agree with plain transformers" in done.stdout


def test_the_report_that_the_kit_keeps_says_that_trials_are_not_in_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(document, "write", lambda shown, folder, with_rows: folder / "REPORT.md")
    for folder in ("trials", "kept"):
        (tmp_path / folder / "one").mkdir(parents=True)
        (tmp_path / folder / "one" / "result.json").touch()
    monkeypatch.setattr(results, "RUNS", tmp_path / "kept")
    told = {}
    for trials, typed in (("trials", []), ("none", []), ("trials", ["--runs", str(tmp_path / "kept")])):
        monkeypatch.setattr(results, "TRIALS", tmp_path / trials)
        invoke(["report", *typed])
        told[trials, len(typed)] = "trials are not in this report" in capsys.readouterr().err
    assert told == {("trials", 0): True, ("none", 0): False, ("trials", 2): False}
