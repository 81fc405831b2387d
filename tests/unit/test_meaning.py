"""What `make verify-bundle` says of results whose checksums are right: contradictions are problems, the rest is counted."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import pins, results
from scripts.results import Record
from scripts.share import meaning
from tests import committed, synthetic
from tests.synthetic import job, record


def test_the_committed_results_contradict_themselves_nowhere_and_are_counted() -> None:
    records = committed.contained()
    assert [(one.id, problem) for one in records for problem in meaning.problems(one)] == []
    told = meaning.of(records, pins.load())
    assert told.ok + told.failed == len(records) and told.output_right + len(told.output_wrong) + told.output_not_checked == told.ok
    assert 0 < told.other_pins < told.ok, "some are of the pins at hand, some of earlier ones"


def test_pins_are_counted_apart_for_the_runs_that_a_verdict_may_rest_on() -> None:
    good, on_cpu, early = record(job("int8"), 90.0), record(job("int8", device="cpu"), 90.0), record(job("int8", recipe=1), 90.0, number=2)
    without_container = record(job("int8"), 90.0, number=3)
    for run in (on_cpu, early, without_container):
        run.host["differences"] = [{"package": "torch", "expected": "2", "found": "3"}]
    told = meaning.of([good, on_cpu, early], pins.load(), [without_container])
    assert (told.ok, told.other_pins, told.deviating, told.may_judge) == (4, 4, 3, meaning.Pinned(ok=1, other_pins=1, deviating=0))
    good.host["differences"] = early.host["differences"]
    assert meaning.of([good], pins.load()).may_judge.deviating == 1
    ended = record(job("int8"), 90.0, status="failed", number=4)
    ended.host["differences"] = early.host["differences"]
    told = meaning.of([good, ended], pins.load())
    assert (told.ok, told.failed, told.other_pins, told.deviating) == (1, 1, 1, 1), "a run that failed is counted as that alone"


def one_problem(changed: Record) -> str:
    (problem,) = meaning.problems(changed)
    return problem


def test_a_warm_up_or_a_timed_call_too_few_is_told() -> None:
    run = record(job("deepspeed", 2), 12.0)
    assert not list(meaning.problems(run))
    run.guest.measurements[0]["warmup_ms"].pop()
    assert one_problem(run) == "(new tokens, warm-up calls, timed calls) are [(1, 1, 10)], asked for were [(1, 2, 10)]"
    run = record(job("deepspeed", 2), 12.0)
    run.guest.measurements[0]["timed_ms"].pop()
    assert one_problem(run) == "(new tokens, warm-up calls, timed calls) are [(1, 2, 9)], asked for were [(1, 2, 10)]"


@pytest.mark.parametrize("form", ["workload", "continuous", "engine-queue", "pipeline-parallel"])
def test_a_form_of_other_calls_than_its_job_s_runs_contradicts_nothing(tmp_path: Path, form: str) -> None:
    run = record(dataclasses.replace(job("deepspeed", 2), form=form), 12.0)
    run.guest.measurements[0].update(warmup_ms=[], timed_ms=[12.0] * 3)
    assert not list(meaning.problems(run)), "as the host lets it through"
    synthetic.write(tmp_path, [run])
    assert [one.id for one in results.load_runs(tmp_path)[0]] == [run.id]


def test_an_output_that_is_called_right_against_its_own_error_is_told() -> None:
    assert "called right with an error of 0.5, the tolerance is 0.001" in one_problem(record(job("deepspeed", 2), 12.0, checked=synthetic.check(0.5)))


def test_an_error_as_large_as_the_tolerance_is_right() -> None:
    assert not list(meaning.problems(record(job("deepspeed", 2), 12.0, checked=synthetic.check(1e-3))))


def test_another_tolerance_than_the_job_s_is_told() -> None:
    loose = synthetic.check(0.5) | {"tolerance": 1.0}
    assert one_problem(record(job("deepspeed", 2), 12.0, checked=loose)) == "its output was checked with the tolerance 1.0, its job says 0.001"


def test_a_wrong_output_that_says_so_is_counted_and_no_problem() -> None:
    run = record(job("bminf"), 70.0, checked=synthetic.check(0.33, passed=False))
    assert not list(meaning.problems(run))
    assert meaning.of([run], pins.load(Path(__file__).resolve().parents[2])).output_wrong == (run.id,)


def test_an_image_of_other_pins_than_the_run_names_is_told() -> None:
    run = record(job("int8"), 90.0)
    run.host["pins_id"], run.host["image"] = "111111111111", {"tag": "llm-repro/int8:current-0", "pins_id": "000000000000"}
    assert one_problem(run).startswith("its image is of the pins 000000000000, the run names 111111111111")
    run.host["pins_id"] = "1" * 60_000
    assert one_problem(run).endswith(f"the run names {'1' * 80}"), "a report shows these words"


def calls(run: Record) -> list[dict]:
    return run.guest.measurements


LIES: dict[str, tuple[Callable[[Record], object], str]] = {
    "a series less": (lambda run: calls(run).pop(), "timed calls) are [(1, 2, 10)], asked for were [(1, 2, 10), (128, 2, 10)]"),
    "a faster series before the true one": (lambda run: calls(run).insert(0, calls(run)[0] | {"timed_ms": [1.0] * 10}), "are [(1, 2, 10), (1, 2, 10), ("),
    "a series of other tokens": (lambda run: calls(run)[1].update(new_tokens=99), "are [(1, 2, 10), (99, 2, 10)]"),
    "right without an error": (lambda run: run.guest.check.update(logits_relative_error=None), "passed = True with an error of None"),
    "right, and refused by the judge": (lambda run: run.guest.check.update(judged={"passed": False, "reason": "x"}), "the judge refused its tokens"),
    "a guest that failed": (lambda run: vars(run.guest).update(status="failed", reason="x"), "it is ok, and its guest says failed"),
    "the guest of another run": (lambda run: setattr(run.guest, "id", "other-01"), "its id is 'other-01'"),
    "more time than the process lived": (lambda run: run.host.update(wall_s=1.0), "its process lived 1.000 s"),
    "calls that do not fit their phase": (lambda run: run.guest.phases.update(measure=[0.0, 0.001]), "its phase measure took 0.001 s"),
    "another batch": (lambda run: setattr(run.guest, "batch_size", 8), "its batch size is 8, the job's is 1"),
    "more memory than the GPU has": (lambda run: run.guest.memory["devices"][0].update(peak_reserved_bytes=10**15), "bytes of a GPU were reserved"),
    "a GPU more": (lambda run: run.host["gpus"].append(synthetic.gpu(2)), "its host names 3 GPUs, its job asks for 2"),
    "a GPU less": (lambda run: run.host["gpus"].pop(), "its host names 1 GPUs, its job asks for 2"),
    "the image of another backend": (lambda run: run.host["image"].update(tag="llm-repro/int8:current-000000000000"), "its job asks for deepspeed:current"),
    "the memory of another GPU": (lambda run: run.host["gpu_memory"][0].update(uuid="GPU-of-others"), "it tells of the GPU 'GPU-of-others'"),
    "memory that no GPU has": (lambda run: run.host["gpu_memory"][0].update(peak_used_bytes=10**15), "1,000,000,000,000,000 bytes of a GPU were used"),
    "one GPU twice": (lambda run: run.host["gpus"].__setitem__(1, run.host["gpus"][0]), "its host names 1 GPUs, its job asks for 2"),
    "another day": (lambda run: run.host.update(began=1.7e9), "it began at 1700000000 s since 1970, and started_at is 2026-11-21"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_result_that_the_host_would_have_refused_is_told_and_stands_in_no_report(tmp_path: Path, name: str) -> None:
    run = record(job("deepspeed", 2, new_tokens=(1, 128)), 200.0)
    assert not list(meaning.problems(run))
    lie, words = LIES[name]
    lie(run)
    assert words in one_problem(run)
    synthetic.write(tmp_path, [run])
    records, (skipped,) = results.load_runs(tmp_path)
    assert not records and words in skipped.reason


@pytest.mark.parametrize("error", [2e-4, 0.5])
def test_an_output_that_the_judge_refused_contradicts_nothing_be_its_logits_right_or_wrong(error: float) -> None:
    refused = synthetic.check(error, passed=False) | {"judged": {"passed": False, "reason": "synthetic"}}
    assert not list(meaning.problems(record(job("deepspeed", 2), 12.0, checked=refused)))


def test_a_form_that_the_kit_does_not_have_is_told_and_stands_in_reports(tmp_path: Path) -> None:
    run = record(dataclasses.replace(job("deepspeed", 2), form="of-tomorrow"), 12.0)
    assert "its form 'of-tomorrow' is none of this kit" in one_problem(run)
    synthetic.write(tmp_path, [run])
    assert [one.id for one in results.load_runs(tmp_path)[0]] == [run.id]


def test_a_host_that_knew_no_gpu_is_told() -> None:
    run = record(job("deepspeed", 2), 12.0)
    del run.host["gpus"]
    assert one_problem(run) == "its host names no GPU"


def test_a_run_that_is_stored_under_the_number_of_another_is_told() -> None:
    run = record(job("deepspeed", 2), 12.0)
    assert one_problem(dataclasses.replace(run, id="copied-02")) == f"its job is that of the run {run.id!r}"


def test_the_pins_of_another_stack_are_told_and_pins_that_nobody_has_are_not() -> None:
    held = meaning.names_of_pins(pins.load())
    run = record(job("int8", stack="hopper"), 90.0)
    for pins_id, named in held.items():
        changed = copy.deepcopy(run)
        changed.host["pins_id"] = pins_id
        told = meaning.another_image(changed, held)
        assert ("" if "int8:hopper" in named else f"its pins are those of {' and '.join(sorted(named))}, its job asks for int8:hopper") == told
    assert meaning.another_image(run, held) == ""
