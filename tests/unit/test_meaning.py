"""What `make verify-bundle` says of results whose checksums are right: contradictions are problems, the rest is counted."""

from pathlib import Path

from scripts import pins, results
from scripts.results import Record
from scripts.share import meaning
from tests import synthetic
from tests.synthetic import job, record


def test_the_committed_results_contradict_themselves_nowhere_and_are_counted() -> None:
    records = results.load_all()[0]
    assert [(one.id, problem) for one in records for problem in meaning.problems(one)] == []
    told = meaning.of(records, pins.load())
    assert told.ok + told.failed == len(records) and told.output_right + len(told.output_wrong) + told.output_not_checked == told.ok
    assert 0 < told.other_pins < told.ok, "some are of the pins at hand, some of earlier ones"


def one_problem(changed: Record) -> str:
    (problem,) = meaning.problems(changed)
    return problem


def test_a_warm_up_or_a_timed_call_too_few_is_told() -> None:
    run = record(job("deepspeed", 2), 12.0)
    assert not list(meaning.problems(run))
    run.guest.measurements[0]["warmup_ms"].pop()
    assert one_problem(run) == "calls of 1 new tokens: 1 warm-ups in place of the 2 of its job"
    run = record(job("deepspeed", 2), 12.0)
    run.guest.measurements[0]["timed_ms"].pop()
    assert one_problem(run) == "calls of 1 new tokens: 9 timed calls in place of the 10 of its job"


def test_an_output_that_is_called_right_against_its_own_error_is_told() -> None:
    assert "called right with an error of 0.5, the tolerance is 0.001" in one_problem(record(job("deepspeed", 2), 12.0, checked=synthetic.check(0.5)))


def test_an_error_as_large_as_the_tolerance_is_right() -> None:
    assert not list(meaning.problems(record(job("deepspeed", 2), 12.0, checked=synthetic.check(1e-3))))


def test_another_tolerance_than_the_job_s_is_told() -> None:
    loose = synthetic.check(0.5) | {"tolerance": 1.0}
    assert one_problem(record(job("deepspeed", 2), 12.0, checked=loose)) == "its output was checked with the tolerance 1.0, its job says 0.001"


def test_a_wrong_output_that_says_so_is_counted_and_no_problem() -> None:
    run = record(job("bminf"), 700.0, checked=synthetic.check(0.33, passed=False))
    assert not list(meaning.problems(run))
    assert meaning.of([run], pins.load(Path(__file__).resolve().parents[2])).output_wrong == (run.id,)


def test_an_image_of_other_pins_than_the_run_names_is_told() -> None:
    run = record(job("int8"), 90.0)
    run.host["pins_id"], run.host["image"] = "111111111111", {"tag": "llm-repro/int8:current-0", "pins_id": "000000000000"}
    assert one_problem(run).startswith("its image is of the pins 000000000000, the run names 111111111111")
