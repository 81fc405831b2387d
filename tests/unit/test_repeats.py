"""REPEATS: how often a row runs, and in which order."""

import dataclasses
import sys
from pathlib import Path

import pytest

from bench.job import STATUSES
from scripts import articles, pins
from scripts.commands import measure
from scripts.errors import NothingRuns, PreflightError
from scripts.run import outcome, plan, rounds, runner
from scripts.run.runner import Planned
from tests import synthetic
from tests.typed import chosen

ARTICLE = articles.find("inference-tools")


def order_of(monkeypatch: pytest.MonkeyPatch, runs: Path, *, cases: str, room: int = sys.maxsize, **typed: str) -> list[str]:
    """The cases in the order in which they run, a line a round, where each run ends at once: well in batches up to `room`."""
    names_of: dict[int, list[str]] = {}

    def perform(planned: Planned, options: object, repeat: int) -> object:
        size = f" b{planned.batch_size}" if planned.batch_size else ""
        names_of.setdefault(repeat, []).append(planned.case.name + size)
        return synthetic.record(synthetic.job(planned.case.name), status="oom" if (planned.batch_size or 1) > room else "ok")

    monkeypatch.setattr(runner, "perform", perform)
    asked = dataclasses.replace(chosen(cases=cases, **typed), folder=runs)
    rounds.run_all(plan.plan(list(pins.load().backends), asked, every=False), asked, keep_going=True)
    return [" ".join(names) for _, names in sorted(names_of.items())]


def test_every_second_round_goes_backwards(monkeypatch, tmp_path):
    order = order_of(monkeypatch, tmp_path, cases="layer-parallel,int8,deepspeed", repeats="3")
    assert order == ["layer-parallel int8 deepspeed", "deepspeed int8 layer-parallel", "layer-parallel int8 deepspeed"]


def test_batch_sizes_go_backwards_too(monkeypatch, tmp_path):
    order = order_of(monkeypatch, tmp_path, article="deepspeed-inference", cases="ds-inference", batch_sizes="8,1", repeats="3")
    assert order == ["ds-inference b1 ds-inference b8", "ds-inference b8 ds-inference b1", "ds-inference b1 ds-inference b8"]


def test_backwards_a_case_begins_with_the_largest_batch_that_fits(monkeypatch, tmp_path):
    typed = {"article": "deepspeed-inference", "cases": "ds-inference,accelerate-fp16", "batch_sizes": "1,8,16", "repeats": "2"}
    assert order_of(monkeypatch, tmp_path, room=10, **typed) == [
        "accelerate-fp16 b1 accelerate-fp16 b8 accelerate-fp16 b16 ds-inference b1 ds-inference b8 ds-inference b16",
        "ds-inference b8 ds-inference b1 accelerate-fp16 b8 accelerate-fp16 b1",
    ]


def test_a_sweep_until_memory_runs_out_goes_backwards_over_what_fits(monkeypatch, tmp_path):
    typed = {"article": "batch-generate", "stack": "2024-06", "variant": "published", "cases": "batch", "repeats": "2"}
    first, second = order_of(monkeypatch, tmp_path, room=5, **typed)
    assert first == "batch b1 batch b2 batch b4 batch b8 batch b6 batch b5"
    assert second == "batch b5 batch b4 batch b2 batch b1"


def test_a_row_runs_once_where_nothing_is_typed(monkeypatch, tmp_path):
    assert order_of(monkeypatch, tmp_path, cases="int8") == ["int8"]


def test_the_lines_on_the_terminal_say_which_run_of_how_many_it_is(monkeypatch, tmp_path, capsys):
    order_of(monkeypatch, tmp_path, cases="int8", repeats="2")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert len(lines) == 2 and lines[0].startswith("[1 of 2]") and lines[1].endswith("run 2 of 2")


def test_where_one_case_runs_until_memory_runs_out_nobody_knows_how_many_runs_there_are(monkeypatch, tmp_path, capsys):
    typed = {"article": "batch-generate", "stack": "2024-06", "variant": "published"}
    order_of(monkeypatch, tmp_path, room=1, cases="single,batch", **typed)
    assert [line.split("] ")[0] for line in capsys.readouterr().err.splitlines() if line.startswith("[")] == ["[1", "[2", "[3"]


def test_runs_that_could_not_start_end_the_command_with_their_number_once_the_others_ended(monkeypatch, tmp_path, capsys):
    def perform(planned: Planned, options: object, repeat: int) -> object:
        if planned.case.name == "layer-parallel":
            raise PreflightError("2 GPUs are needed")
        return synthetic.record(synthetic.job(planned.case.name))

    monkeypatch.setattr(runner, "perform", perform)
    asked = dataclasses.replace(chosen(cases="layer-parallel,int8"), folder=tmp_path)
    every = plan.plan(list(pins.load().backends), asked, every=False)
    with pytest.raises(PreflightError, match="^1 of 2 runs could not start; the reasons stand above$"):
        rounds.run_all(every, asked, keep_going=True)
    told = capsys.readouterr()
    assert "  error: 2 GPUs are needed\n" in told.err and told.out.count("result.json") == 1
    with pytest.raises(PreflightError, match="^2 of 4 runs could not start; "):
        rounds.run_all(every, dataclasses.replace(asked, repeats=2), keep_going=True)
    with pytest.raises(PreflightError, match="^2 GPUs are needed$"):
        rounds.run_all(every, asked, keep_going=False)


def test_a_row_that_was_measured_before_tells_nothing_of_the_time_left(monkeypatch, tmp_path, capsys):
    before = synthetic.record(synthetic.job("int8"))
    before.host["began"] = 1000.0
    monkeypatch.setattr(runner, "perform", lambda *_: before)
    asked = dataclasses.replace(chosen(cases="int8", repeats="2"), folder=tmp_path)
    rounds.run_all(plan.plan(["int8"], asked, every=False), asked, keep_going=True)
    told = capsys.readouterr()
    assert [line.split("]")[0] for line in told.err.splitlines() if line.startswith("[")] == ["[1 of 2", "[2 of 2"]
    assert told.out.count("result.json") == 1, "the newest run stands for both, and is told once"


def test_what_lets_no_case_start_ends_the_command_at_the_first(monkeypatch, tmp_path):
    tried = []

    def perform(planned: Planned, options: object, repeat: int) -> object:
        tried.append(planned.case.name)
        raise NothingRuns("there is no apptainer on the PATH")

    monkeypatch.setattr(runner, "perform", perform)
    asked = dataclasses.replace(chosen(cases="layer-parallel,int8"), folder=tmp_path)
    with pytest.raises(NothingRuns, match="^there is no apptainer on the PATH$"):
        rounds.run_all(plan.plan(list(pins.load().backends), asked, every=False), asked, keep_going=True)
    assert len(tried) == 1


def test_of_each_run_the_terminal_tells_times_seconds_marks_and_the_result(monkeypatch, tmp_path, capsys):
    run = synthetic.record(synthetic.job("int8"), 50.0)
    run.guest.phases["import"] = [1000.0, 1003.0]
    run.host.update(began=1000.0, wall_s=3.0)
    run.host["conditions"] = {"marks": ["another program used the CPU"]}
    monkeypatch.setattr(runner, "perform", lambda *_: run)
    asked = dataclasses.replace(chosen(cases="int8"), folder=tmp_path)
    rounds.run_all(plan.plan(["int8"], asked, every=False), asked, keep_going=True)
    times, seconds, mark, result = capsys.readouterr().out.splitlines()
    assert times.startswith("  1 new token(s): ") and "import 3.0" in seconds
    assert (mark, result) == ("  note: another program used the CPU", f"  {tmp_path / run.id / 'result.json'}")


def test_a_command_succeeds_where_its_runs_ended_well_alone():
    assert [status for status in STATUSES if outcome.exit_code(status) == 0] == ["ok"]


def test_what_ended_commands_left_is_removed_before_the_first_case_and_their_containers_first(monkeypatch, tmp_path):
    swept = []
    for module, name in ((rounds.engines, "sweep"), (rounds.locks, "sweep"), (rounds.temporary_folders, "sweep"), (rounds.checkpoints, "sweep")):
        monkeypatch.setattr(module, name, lambda *_, room=module.__name__: swept.append(room.rpartition(".")[2]))
    monkeypatch.setattr(rounds.run_folders, "sweep_unfinished", lambda runs: swept.append("run_folders") or [])
    assert rounds.run_all([], dataclasses.replace(chosen(), folder=tmp_path), keep_going=True) == []
    assert swept[0] == "engines" and sorted(swept[1:]) == ["checkpoints", "locks", "run_folders", "temporary_folders"]


@pytest.mark.parametrize(("statuses", "code"), [((), 0), (("ok", "ok"), 0), (("ok", "oom", "ok"), 1)])
def test_a_command_ends_with_the_worst_of_its_runs(monkeypatch, tmp_path, statuses, code):
    records = [synthetic.record(synthetic.job("int8"), status=status) for status in statuses]
    monkeypatch.setattr(rounds, "run_all", lambda *_, **__: records)
    asked = dataclasses.replace(chosen(cases="int8"), folder=tmp_path)
    assert measure._measure(["int8"], asked, every=False) == code


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("failed", 1)])
def test_a_profile_that_failed_is_an_error(monkeypatch, tmp_path, status, code):
    monkeypatch.setattr(runner, "perform", lambda *_: synthetic.record(synthetic.job("int8"), status=status))
    asked = dataclasses.replace(chosen(cases="int8"), folder=tmp_path)
    assert measure._profile(plan.plan(["int8"], asked, every=False)[0], asked) == code
