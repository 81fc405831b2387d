"""A guest's answer counts where it agrees with its job, with itself and with what the host saw; else the run failed, with the reason."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.job import Job, to_json
from scripts.containers.container import Outcome
from scripts.errors import KitError
from scripts.machine.gpus import Gpu
from scripts.results import answers
from scripts.run import engines, outcome
from tests import synthetic
from tests.samples import a_job, a_result

GIB = 1 << 30
GPUS = [Gpu(index=number, uuid=f"GPU-{number}", name="SYNTHETIC", memory_total_bytes=24 * GIB, compute_capability="8.6") for number in (0, 1)]


def good(**changes) -> dict:
    """The answer to a_job() as an honest guest writes it."""
    device = {"device": "cuda:0", "peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 9 * GIB}
    check = {"logits_relative_error": 0.01, "tolerance": 0.02, "greedy_common_prefix_tokens": 1, "greedy_tokens": 1, "passed": True, "reason": ""}
    result = a_result(memory={"devices": [device, {**device, "device": "cuda:1"}], "peak_rss_bytes": GIB}, check=check, used={"dtype": "float16"})
    return {**json.loads(to_json(result)), **changes}


def ended(exit_code: int = 0, oom_killed: bool = False, timed_out: bool = False, wall_s: float = 60.0) -> Outcome:
    return Outcome(exit_code=exit_code, oom_killed=oom_killed, timed_out=timed_out, started_at=1000.0, finished_at=1000.0 + wall_s)


def answered(folder: Path, answer: object, outcome: Outcome | None = None, job: Job | None = None, resumed: bool = False) -> tuple[str, str]:
    """(status, reason) of a job whose guest wrote `answer`."""
    (folder / "result.json").write_text(answer if isinstance(answer, str) else json.dumps(answer))
    result, status, reason = engines.answer(job or a_job(), folder, outcome or ended(), GPUS, resumed)
    assert (result is None) == (status in ("failed", "timeout") or (status == "oom" and reason.startswith("the kernel")))
    assert "\n" not in reason
    return status, reason


def test_an_honest_answer_counts(tmp_path: Path) -> None:
    assert answered(tmp_path, good()) == ("ok", "")
    assert answered(tmp_path, good(**part("check", logits_relative_error=0.02))) == ("ok", ""), "as much as is allowed"


def test_longer_calls_that_took_about_as_long_as_the_timed_ones_count(tmp_path: Path) -> None:
    set_back = {"new_tokens": 1, "calls": 2500, "at": [5.0, 1.5]}
    longer = [{"new_tokens": 1, "calls": 2500, "at": [5.0, 7.5]}, {"new_tokens": 1, "reason": "the driver is gone"}, set_back]
    assert answered(tmp_path, good(figures={"longer": longer})) == ("ok", "")


def test_longer_calls_at_another_pace_cost_no_run(tmp_path: Path) -> None:
    """Hosts change their speed; whether the window counts for energy is another question (tests/unit/test_busy.py)."""
    for calls in (5001, 9000, 600):
        assert answered(tmp_path, good(figures={"longer": [{"new_tokens": 1, "calls": calls, "at": [5.0, 7.5]}]})) == ("ok", "")


def of_ranks(**changes) -> Job:
    """A job of a backend that runs as a process for each GPU."""
    return a_job(**{"backend": "deepspeed", "case": "deepspeed", "device_count": 2, **changes})


def test_calls_of_several_ranks_may_overlap_in_their_window_and_those_of_one_process_may_not(tmp_path: Path) -> None:
    overlapping = calls(timed_ms=[25.0] * 10, timed_at=[5.0, 5.2])
    assert answered(tmp_path, good(**overlapping), job=of_ranks()) == ("ok", ""), "a rank begins a call while another ends the one before"
    for backend in ("layer-parallel", "tensor-parallel"):
        status, reason = answered(tmp_path, good(**overlapping), job=a_job(backend=backend, device_count=2))
        said = "the guest's result is refused: its timed calls took at least 0.250 s and lie within 0.200 s"
        assert (status, reason) == ("failed", said), f"{backend} drives both GPUs from one process"
    alone = good(**overlapping, memory={**good()["memory"], "devices": good()["memory"]["devices"][:1]})
    assert answered(tmp_path, alone, job=of_ranks(device_count=1))[0] == "failed", "a single rank"


@pytest.mark.parametrize(
    ("timed_ms", "refused"),
    [
        ([25.0] * 8, False),  # 0.1 s and 0.1 s
        ([25.0] * 10, True),
        ([40.0, 10.0] * 3, True),  # 0.15 s in all, 0.12 s of them in calls that never overlap
        ([10.0, 40.0] * 3, True),
        ([100.09], False),
        ([100.2], True),
    ],
)
@pytest.mark.parametrize("count", [2, 4])
def test_of_several_ranks_every_other_call_begins_after_the_one_before_it_ended(tmp_path: Path, timed_ms: list[float], refused: bool, count: int) -> None:
    answer = calls(timed_ms=timed_ms, timed_at=[5.0, 5.1])
    memory = {**good()["memory"], "devices": good()["memory"]["devices"][:1] * count}
    status, reason = answered(tmp_path, good(**answer, memory=memory), job=of_ranks(device_count=count, timed_runs=len(timed_ms)))
    assert (status == "failed") == refused, reason
    assert ("and lie within 0.100 s" in reason) == refused, reason


@pytest.mark.parametrize(("backend", "least_s"), [("deepspeed", 0.02), ("layer-parallel", 0.03), ("gone", 0.02), ("a.b", 0.02), ("../x", 0.02), ("", 0.02)])
def test_a_stored_run_of_a_backend_that_the_kit_lacks_may_have_been_of_ranks(backend: str, least_s: float) -> None:
    assert answers.least_s(a_job(backend=backend), [10.0, 10.0, 10.0]) == pytest.approx(least_s)


def test_a_form_without_a_model_runs_in_one_process_whatever_its_backend() -> None:
    assert answers.least_s(of_ranks(form="fixed-kernel"), [10.0, 10.0]) == pytest.approx(0.02)


def test_a_window_may_miss_a_thousandth_of_its_calls(tmp_path: Path) -> None:
    for until, status in ((5.9991, "ok"), (5.998, "failed")):
        assert answered(tmp_path, good(**calls(timed_ms=[100.0] * 10, timed_at=[5.0, until])))[0] == status


def test_the_calls_of_ranks_alternate_over_all_numbers_of_tokens_and_one_that_was_not_made_is_none(tmp_path: Path) -> None:
    """Six calls one after the other, of which at most three never overlap."""
    one = {**good()["measurements"][0], "warmup_ms": [], "timed_ms": [10_000.0]}
    measurements = [{**one, "new_tokens": tokens, "cold_ms": 10_000.0 if tokens == 1 else None} for tokens in (1, 2, 3, 4, 5)]
    runs = [{"new_tokens": tokens, "arguments": {"do_sample": False}} for tokens in (1, 2, 3, 4, 5)]
    job = of_ranks(runs=runs, warmup_runs=0, timed_runs=1)
    answer = good(measurements=measurements, load_s=1.0)
    assert answered(tmp_path, answer, ended(wall_s=32.0), job=job) == ("ok", "")
    assert answered(tmp_path, answer, ended(wall_s=30.0), job=job)[0] == "failed"


def test_the_window_of_each_number_of_tokens_holds_its_calls(tmp_path: Path) -> None:
    short = {**good()["measurements"][0], "timed_at": [5.0, 6.0]}
    runs = [{"new_tokens": tokens, "arguments": {"do_sample": False}} for tokens in (1, 2)]
    late = {**short, "new_tokens": 2, "timed_ms": [25.0] * 10, "timed_at": [5.0, 5.2]}
    status, reason = answered(tmp_path, good(measurements=[short, late]), job=a_job(runs=runs))
    assert status == "failed" and "took at least 0.250 s and lie within 0.200 s" in reason


def part(name: str, **changes) -> dict:
    return {name: {**good()[name], **changes}}


def calls(**changes) -> dict:
    return {"measurements": [{**good()["measurements"][0], **changes}]}


def padding(left: list[float], right: list[float]) -> dict:
    """The figure of a padded batch with so many errors of its texts."""
    sides = {side: {"first_different_token": [None] * len(left), "logits_relative_error": errors} for side, errors in (("left", left), ("right", right))}
    return {"new_tokens": 1, "prompt_tokens": [3] * len(left), **sides}


def schedule(wall_ms: list[float], busy_ms: list[list[float]]) -> dict:
    """The figure of a schedule of two stages."""
    return {"schedule": "naive", "stages": 2, "micro_batches": 1, "micro_batch_size": 1, "wall_ms": wall_ms, "busy_ms": busy_ms, "identical": 1}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "run-02"}, "its id is 'run-02'"),
        (calls(timed_ms=[1.0] * 9), r"are \[\(1, 2, 9\)\], asked for were \[\(1, 2, 10\)\]"),
        (calls(warmup_ms=[]), r"\(1, 0, 10\)"),
        (calls(new_tokens=2), r"\(2, 2, 10\)"),
        ({"measurements": []}, r"are \[\], asked for"),
        (calls(timed_ms=[0.0] * 10), r"timed_ms\[0\]: Expected `float` >= 1e-09"),
        (calls(timed_ms=[True] * 10), r"timed_ms\[0\]: Expected `float`, got `bool`"),
        (calls(timed_ms=[7000.0] * 10), "took at least 71.5.. s, its process lived 60.000 s"),
        (calls(warmup_ms=[29_000.0, 30_000.0]), r"took at least 60\.5.. s, its process lived 60\.000 s"),
        (calls(cold_ms=59_000.0), r"took at least 60\.5.. s, its process lived 60\.000 s"),
        (calls(new_tokens=True), "new_tokens: Expected `int`, got `bool`"),
        ({"batch_size": 8}, "its batch size is 8, the job's is 1"),
        ({"batch_size": None}, "its batch size is None"),
        ({"load_s": 61.0}, "its process lived"),
        ({"load_s": -1.0}, "load_s: Expected `float` >= 0"),
        (part("memory", devices=good()["memory"]["devices"][:1]), "the memory of 1 GPUs, the job has 2"),
        (
            part("memory", devices=[{"peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 25 * GIB}] * 2),
            "26,843,545,600 bytes of a GPU were reserved, it has 25,769",
        ),
        (part("memory", devices=[{"peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 7 * GIB}] * 2), "were allocated and only"),
        (calls(timed_ms=[5000.0] * 10, timed_at=[5.0, 29.0]), r"50\.000 s.* 24\.000 s"),
        (part("check", logits_relative_error=0.03), "passed = True with an error of 0.03 where 0.02 is allowed"),
        (part("check", logits_relative_error=None), "passed = True with an error of None"),
        (part("check", tolerance=0.5), "has the tolerance 0.5, the job's is 0.02"),
        (part("check", passed=False, reason="no"), "passed = False with an error of 0.01"),
        (part("check", passed=False, logits_relative_error=0.03), "failed without a reason"),
        (part("check", passed=1), "check.passed: Expected `bool`, got `int`"),
        (part("check", greedy_common_prefix_tokens=2), "2 of 1 greedy tokens"),
        (part("check", greedy_tokens=None), "1 of None greedy tokens"),
        (part("check", greedy_tokens=5), "1 of 5 greedy tokens agree by its own count, but the job made 1"),
        ({"check": None}, "its output was not checked"),
        ({"phases": {"load": [1.0]}}, "phases"),
        ({"environment": {"packages": ["torch"]}}, "environment.packages: Expected `object.*got `array`"),
        ({"environment": {"packages": {"torch": 2}}}, "Expected `str`, got `int`"),
        ({"figures": None}, "figures: Expected `object`, got `null`"),
        ({"figures": {"calls": [{"new_tokens": 1, "timed_tokens": [1] * 9}]}}, r"the calls \[\(1, 9\)\], but it timed the calls \[\(1, 10\)\]"),
        ({"figures": {"calls": [{"new_tokens": 1, "timed_tokens": [1] * 9 + [3]}]}}, r"a call of 1 x 1 tokens made 3 by its count"),
        ({"figures": {"pipeline": {"sequences": 1, "tokens_by_call": [1] * 9}}}, "it counts the tokens of 9 pipeline calls, and timed 10"),
        ({"figures": {"pipeline": {"sequences": 1, "tokens_by_call": [1] * 11}}}, "it counts the tokens of 11 pipeline calls, and timed 10"),
        ({"figures": {"pipeline": {"sequences": 1, "tokens_by_call": [1] * 9 + [3]}}}, "a pipeline call of 1 new tokens made 3 by its count"),
        ({"figures": {"pipeline": {"sequences": 1, "tokens_by_call": [0] + [1] * 9}}}, "a pipeline call of 1 new tokens made 0 by its count"),
        ({"figures": {"pipeline": {"sequences": 1, "tokens_by_call": []}}}, "it counts the tokens of 0 pipeline calls, and timed 10"),
        ({"figures": {"pipeline": {"sequences": 4}}}, "its pipeline calls make 4 sequences, its job asks for 1"),
        ({"figures": {"pipeline": {"tokens_by_call": [-1] * 10}}}, "tokens_by_call"),
        ({"figures": {"padding": padding([0.1], [])}}, r"the counts of texts in a padded batch are \[1, 1, 1, 1, 0\]"),
        ({"figures": {"padding": padding([], [])}}, "the counts of texts in a padded batch"),
        ({"figures": {"schedules": [schedule([1.0], [[1.0]])]}}, r"2 stages in 1 runs of a schedule have \[1\] busy times"),
        ({"figures": {"schedules": [schedule([], [])]}}, "2 stages in 0 runs"),
        ({"figures": {"longer": [{"new_tokens": 2, "calls": 9, "at": [5.0, 7.5]}]}}, "it made longer calls of 2 tokens and timed none"),
        ({"figures": {"longer": [{"new_tokens": 1, "at": [5.0, 7.5]}]}}, "it tells only the window of longer calls, and not the number"),
        ({"figures": {"longer": [{"new_tokens": 1, "calls": 9}]}}, "it tells only the number of longer calls, and not the window"),
        (calls(timed_ms=[]), r"\(1, 2, 0\)"),
        ({"status": "fine"}, "status is 'fine'"),
        ({"extra": 1}, "unknown field 'extra'"),
        ({"schema": 99}, "schema is 99"),
    ],
)
def test_an_answer_that_contradicts_its_job_itself_or_the_host_fails_with_the_reason(tmp_path: Path, change: dict, why: str) -> None:
    status, reason = answered(tmp_path, good(**change))
    assert status == "failed"
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(reason)


def test_greedy_tokens_may_be_as_many_as_those_of_the_longest_run(tmp_path: Path) -> None:
    job = a_job(runs=[{"new_tokens": tokens, "arguments": {}} for tokens in (1, 4)])
    timed = {"measurements": [{**good()["measurements"][0], "new_tokens": tokens} for tokens in (1, 4)]}
    assert answered(tmp_path, good(**timed, **part("check", greedy_tokens=4)), job=job) == ("ok", "")
    assert "the job made 4" in answered(tmp_path, good(**timed, **part("check", greedy_tokens=5)), job=job)[1]


def test_without_a_tolerance_no_output_is_right(tmp_path: Path) -> None:
    status, reason = answered(tmp_path, good(**part("check", tolerance=None)), job=a_job(tolerance=None))
    assert status == "failed" and reason.endswith("its check says passed = True with an error of 0.01 where None is allowed")


def test_an_engine_in_processes_of_its_own_alone_may_leave_the_memory_of_its_gpus_out(tmp_path: Path) -> None:
    without = part("memory", devices=[])
    assert answered(tmp_path, good(**without))[1].endswith("it reports the memory of 0 GPUs, the job has 2")
    assert answered(tmp_path, good(**without, used={"engine_in_own_process": True})) == ("ok", "")


def cycles(**changes: int) -> dict:
    """The figure of two sentences with four new tokens each."""
    return {"sequences": 2, "counted_tokens": 8, "real_tokens": 7, "ranks": 1, **changes}


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (cycles(), ""),
        (cycles(ranks=2), ""),
        (None, "it counts no tokens of its calls"),
        (cycles(counted_tokens=24), "it counts 24 tokens of 2 sequences, its job makes 8 of 2"),
        (cycles(sequences=1), "it counts 8 tokens of 1 sequences, its job makes 8 of 2"),
        (cycles(real_tokens=9), "9 of its 8 tokens are real by its own count"),
        (cycles(ranks=3), "3 processes ran its sentences, allowed are 1 and 2"),
    ],
)
def test_the_tokens_that_times_are_divided_by_are_those_of_the_job(figure: dict | None, said: str) -> None:
    runs = [{"new_tokens": tokens, "arguments": {}} for tokens in (1, 4)]
    job = a_job(form="padded-sentences", prompt={"text": "a", "texts": ["a", "b"], "batch_size": 2}, runs=runs)
    assert answers.contradiction(job, a_result(measurements=[], figures={"cycles": figure} if figure else {})) == said


@pytest.mark.parametrize(
    ("arguments", "figure", "said"),
    [
        ({"num_return_sequences": 4}, {"sequences": 8, "tokens_by_call": [42, 42]}, ""),
        ({"num_return_sequences": 4}, {"sequences": 8}, ""),
        ({"num_return_sequences": 4}, {"sequences": 4}, "its pipeline calls make 4 sequences, its job asks for 8"),
        ({"num_return_sequences": 4}, {"sequences": None}, "its pipeline calls make an unknown number of sequences, its job asks for 8"),
        ({"num_return_sequences": 4}, None, "its pipeline calls make an unknown number of sequences, its job asks for 8"),
        ({"num_return_sequences": 4}, {"sequences": 8, "tokens_by_call": [1, 1]}, "a pipeline call of 42 new tokens made 1 by its count"),
        ({"num_return_sequences": "four"}, {"sequences": 8}, "its pipeline calls make 8 sequences, its job asks for 2"),
        ({"num_return_sequences": -4}, {"sequences": 2}, ""),
        (None, {"sequences": 2}, ""),
    ],
)
def test_a_pipeline_call_makes_the_sequences_and_tokens_that_its_last_run_asks_for(arguments: dict | None, figure: dict | None, said: str) -> None:
    runs = [{"new_tokens": 1, "arguments": {}}, {"new_tokens": 42, "arguments": arguments}]
    job = a_job(form="transformers-pipeline-sequences", prompt={"text": "a", "batch_size": 2}, runs=runs)
    measurements = [{"new_tokens": run["new_tokens"], "timed_ms": [10.0] * 2} for run in runs]
    assert answers.contradiction(job, a_result(measurements=measurements, figures={"pipeline": figure} if figure else {})) == said


def test_a_job_without_runs_asks_for_no_sequences() -> None:
    assert answers.contradiction(a_job(kind="weights", runs=[]), a_result(figures={"pipeline": {"sequences": 4}})) == ""


def test_only_timed_calls_of_the_pipeline_object_have_to_tell_their_sequences() -> None:
    asked = a_job(form="transformers-pipeline-sequences")
    assert answers.contradiction(dataclasses.replace(asked, kind="profile", options={"profiler": "torch"}), a_result(measurements=[])) == ""
    figure = {"sequences": 1, "tokens_by_call": []}
    assert answers.contradiction(asked, a_result(measurements=[], figures={"pipeline": figure})) == "", "a result without timed calls"


def test_rows_of_a_call_are_its_texts_or_its_batch() -> None:
    calls = {"calls": [{"new_tokens": 4, "timed_tokens": [64] * 10}]}
    result = a_result(measurements=[{"new_tokens": 4, "timed_ms": [1.0] * 10}], figures=calls)
    assert answers.contradiction(a_job(options={"rows": 16}), result) == ""
    assert answers.contradiction(a_job(prompt={"text": "a", "batch_size": 16}), result) == ""
    assert answers.contradiction(a_job(options={"rows": 15}), result) == "a call of 15 x 4 tokens made 64 by its count"


def test_an_answer_from_before_a_crash_does_not_count(tmp_path: Path) -> None:
    for code, words in ((-11, "exit code -11 (SIGSEGV)"), (139, "exit code 139 (SIGSEGV)"), (1, "exit code 1")):
        status, reason = answered(tmp_path, good(), ended(exit_code=code))
        assert status == "failed" and words in reason


def test_a_child_that_was_killed_for_memory_in_a_job_that_ended_well_is_no_oom(tmp_path: Path) -> None:
    assert answered(tmp_path, good(), ended(oom_killed=True)) == ("ok", "")
    assert answered(tmp_path, good(), ended(oom_killed=True, exit_code=137))[0] == "oom"
    assert answered(tmp_path, good(batch_size=9), ended(oom_killed=True))[0] == "oom"
    assert answered(tmp_path, good(status="failed", reason="a rank died"), ended(oom_killed=True))[0] == "oom"


@pytest.mark.parametrize(
    "form", ["batch", "fixed-kernel", "generate", "padded-sentences", "padding", "transformers-pipeline", "transformers-pipeline-sequences"]
)
def test_every_form_that_times_the_runs_of_its_job_is_refused_a_timed_call_too_few(tmp_path: Path, form: str) -> None:
    _, reason = answered(tmp_path, good(**calls(timed_ms=[1.0] * 9)), job=dataclasses.replace(a_job(), form=form))
    assert "asked for were [(1, 2, 10)]" in reason


def test_a_guest_that_says_itself_that_it_failed_is_believed(tmp_path: Path) -> None:
    assert answered(tmp_path, {"schema": good()["schema"], "id": "run-01", "status": "oom", "reason": "CUDA out of memory"}) == ("oom", "CUDA out of memory")


def test_no_answer_and_a_late_one_are_rows_too(tmp_path: Path) -> None:
    _, status, reason = engines.answer(a_job(), tmp_path, ended(exit_code=-9))
    assert status == "failed" and "exit code -9 (SIGKILL) and wrote no result" in reason
    assert answered(tmp_path, good(), ended(timed_out=True, exit_code=137)) == ("timeout", "stopped after 60 s; type TIMEOUT_S=120 for more")


def test_a_helping_job_that_failed_names_its_log_which_stays(tmp_path: Path) -> None:
    def run(job: Job, work: Path, on_line: Callable[[str], None]) -> Outcome:
        for line in ["Traceback", '@{"phase": "load"}', *map(str, range(20)), "why \ud800"]:
            on_line(line)
        return ended(exit_code=1)

    guest, shown = SimpleNamespace(models=tmp_path, gpus=[], run=run), list[str]()
    with pytest.raises(KitError) as error:
        engines.must_answer(guest, dataclasses.replace(a_job(), kind="weights"), tmp_path, shown.append)
    assert shown[:2] == ["Traceback", '@{"phase": "load"}'], "its progress is shown"
    first, place, *last = str(error.value).splitlines()
    assert first == "the weights job ended with failed: the guest ended with exit code 1 and wrote no result"
    log = Path(place.removeprefix("its log is "))
    assert last == [*map(str, range(6, 20)), "why \ud800"] and log.read_text().splitlines() == ["Traceback", *map(str, range(20)), "why ?"]


def test_a_result_is_one_line_of_the_terminal_and_says_where_its_output_was_not_checked() -> None:
    failed = synthetic.record(a_job(), status="failed", reason="a name: \x1b[2J\nand a line")
    assert outcome.line_of(failed).startswith("failed: a name: ") and outcome.line_of(failed).isprintable()
    assert outcome.line_of(synthetic.record(a_job(), unchecked=True)).endswith(" ms (output not checked)")


def test_a_run_that_failed_names_its_log(tmp_path: Path) -> None:
    record = synthetic.record(a_job(), status="failed", reason="ZeroDivisionError: division by zero")
    assert outcome.log_line(record, tmp_path) == "", "it has none"
    (tmp_path / record.id).mkdir()
    (tmp_path / record.id / "log.txt").touch()
    assert outcome.log_line(record, tmp_path) == f"its log is {tmp_path / record.id / 'log.txt'}"
    assert outcome.log_line(synthetic.record(a_job()), tmp_path) == ""


def test_a_gpu_may_hold_what_the_largest_of_its_job_has(tmp_path: Path) -> None:
    result = a_result(memory={"devices": [{"peak_allocated_bytes": 40 * GIB, "peak_reserved_bytes": 41 * GIB}] * 2}, check=good()["check"])
    assert answers.disagreement(a_job(), result, answers.Seen(0, 60.0, [24 * GIB, 80 * GIB])) == ""
    assert "it has 25,769,803,776" in answers.disagreement(a_job(), result, answers.Seen(0, 60.0, [24 * GIB, 24 * GIB]))


@pytest.mark.parametrize(("between_ms", "status"), [([[1.0, 1.0]], "ok"), ([[1.0]], "failed"), ([[1.0, 1.0, 1.0]], "failed"), ([], "failed")])
def test_a_call_of_three_tokens_has_two_times_between_them(tmp_path: Path, between_ms: list, status: str) -> None:
    times = {"new_tokens": 3, "first_ms": [5.0], "between_ms": between_ms}
    assert answered(tmp_path, good(figures={"token_times": times}))[0] == status


def test_what_was_refused_stays_beside_the_result(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    answered(work, "[" * 5000)
    answers.keep_rejected(work, tmp_path)
    assert (tmp_path / answers.REJECTED).read_text() == "[" * 5000


def test_forms_that_time_other_things_than_the_jobs_calls_have_calls_or_figures_of_their_own(tmp_path: Path) -> None:
    workload = a_job(form="workload", prompt={"text": "hello", "tokens": 8, "batch_size": 1})
    assert answered(tmp_path, good(**calls(timed_ms=[3.0] * 4)), job=workload) == ("ok", "")
    fusion = a_job(form="fusion", reference=None)
    rows = [{"region": "mlp", "implementation": "eager", "batch_size": 1, "us": [1.0], "reason": ""}]
    answer = good(batch_size=None, check=None, measurements=[], figures={"fusion": rows})
    assert answered(tmp_path, answer, job=fusion) == ("ok", "")
    assert "neither timed calls nor figures" in answered(tmp_path, {**answer, "figures": {}}, job=fusion)[1]


@pytest.mark.parametrize(
    ("items", "new_tokens", "said"),
    [
        (3, 3, ""),
        (4, 4, "answered 4 items, the job has 3"),
        (3, 4, "it made 4 new tokens, the job allows 3"),
        (3, 10**6, "1,000,000 new tokens, the job allows"),
    ],
)
def test_the_counts_of_a_workload_are_those_of_its_job(tmp_path: Path, items: int, new_tokens: int, said: str) -> None:
    counts = {"items": items, "new_tokens": new_tokens, "prompt_tokens": 9, "padded_prompt_tokens": 9, "decode_rows": 9, "seconds": 1.0, "resumed": False}
    status, reason = answered(tmp_path, good(figures={"workload": counts}, **calls(timed_ms=[1000.0])), job=a_job(form="workload", options={"items": 3}))
    assert said in reason and (status == "ok") == (said == ""), reason


def test_a_phase_too_short_for_the_timed_calls_hides_no_disturbance(tmp_path: Path) -> None:
    long = {**calls(timed_ms=[1000.0] * 5), "load_s": 1.0}
    counts = {"warmup_runs": len(good()["measurements"][0].get("warmup_ms", [])), "timed_runs": 5}
    job = a_job(**counts)
    assert answered(tmp_path, good(**long, phases={"measure": [1000.0, 1006.0]}), job=job) == ("ok", "")
    assert answered(tmp_path, good(**long, phases={"measure": [1006.0, 1000.0]}), job=job) == ("ok", ""), "a clock that was set back"
    status, reason = answered(tmp_path, good(**long, phases={"measure": [1000.0, 1000.0]}), job=job)
    assert status == "failed" and "its phase measure took 0.000 s, and its timed calls at least 5.000 s" in reason
    longer = {**calls(timed_ms=[10_000.0] * 5), "load_s": 1.0, "phases": {"measure": [1000.0, 1030.0]}}
    assert answered(tmp_path, good(**longer), job=job)[0] == "failed", "50 s of calls in 30 s, which no clock explains"
    assert answered(tmp_path, good(**longer), job=of_ranks(**counts)) == ("ok", ""), "calls of two ranks overlap"


def test_calls_of_ranks_that_overlap_are_not_longer_than_their_process_lived(tmp_path: Path) -> None:
    answer = {**calls(timed_ms=[10_000.0] * 10), "load_s": 1.0}
    assert answered(tmp_path, good(**answer), job=of_ranks()) == ("ok", "")
    status, reason = answered(tmp_path, good(**answer))
    assert status == "failed" and "loading and calls took at least 101.014 s, its process lived 60.000 s" in reason


def test_the_times_of_a_resumed_workload_are_also_those_of_earlier_processes(tmp_path: Path) -> None:
    counts = dict.fromkeys(("items", "new_tokens", "prompt_tokens", "padded_prompt_tokens", "decode_rows"), 4)
    figures = {"workload": {**counts, "seconds": 99.0, "resumed": True}}  # a guest may say so; the host knows whether it is
    for resumed, expected in ((True, "ok"), (False, "failed")):
        answer = good(figures=figures, **calls(timed_ms=[99_000.0]))
        assert answered(tmp_path, answer, job=a_job(form="workload"), resumed=resumed)[0] == expected
        assert answered(tmp_path, {**answer, "load_s": 61.0}, job=a_job(form="workload"), resumed=resumed)[0] == "failed"


@pytest.mark.parametrize(
    "figures",
    [
        {"fusion": [{"region": "mlp", "implementation": "eager", "batch_size": 1, "us": [31e6, 31e6], "reason": ""}]},
        {"schedules": [schedule([61_000.0], [[1.0, 1.0]])]},
        {"workload": {"items": 4, "new_tokens": 4, "prompt_tokens": 4, "padded_prompt_tokens": 4, "decode_rows": 4, "seconds": 61.0, "resumed": False}},
        {"kv_offload": {"context_tokens": 1, "caches": [{"cache": "a", "most_sequences": 1, "searched_to_the_end": True, "all_ms": [61_000.0]}]}},
    ],
)
def test_a_figure_that_took_longer_than_the_process_lived_fails(tmp_path: Path, figures: dict) -> None:
    assert "one of its figures took 6" in answered(tmp_path, good(figures=figures))[1]


def test_the_seconds_of_a_workload_are_those_of_its_batches(tmp_path: Path) -> None:
    counts = {"items": 3, "new_tokens": 3, "prompt_tokens": 9, "padded_prompt_tokens": 9, "decode_rows": 9, "resumed": False}

    def told(seconds: float, backend: str = "layer-parallel") -> str:
        job = a_job(form="workload", options={"items": 3}, backend=backend)
        return answered(tmp_path, good(figures={"workload": {**counts, "seconds": seconds}}, **calls(timed_ms=[1500.0, 2500.0])), job=job)[1]

    assert told(4.0) == told(3.9, "deepspeed") == "", "of several ranks the batches are those of the slowest, the figure is that of the first"
    for seconds, backend in ((0.4, "layer-parallel"), (3.9, "layer-parallel"), (4.1, "layer-parallel"), (0.4, "deepspeed"), (4.1, "deepspeed")):
        assert f"its workload took {seconds:.3f} s by its figure, and 4.000 s by its batches" in told(seconds, backend)


#: 400 requests at four a second, as an honest guest tells of them.
LATENCY = {
    "arrivals_per_s": 4.0,
    "items": 400,
    "median_ms": 900.0,
    "p95_ms": 2000.0,
    "p99_ms": 3000.0,
    "longest_ms": 3500.0,
    "offered_s": 99.0,
    "finished_s": 100.0,
}
EACH_MS = [900.0] * 399 + [3500.0]
RESUMED = {"arrivals_per_s": 4.0, "items": 400, "reason": "it went on after a stop"}


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (LATENCY, ""),
        ({**LATENCY, "offered_s": 66.0}, ""),
        ({**LATENCY, "median_ms": 3500.0, "p95_ms": 3500.0, "p99_ms": 3500.0}, ""),
        (None, "its items arrive 4 a second, and it tells no latencies"),
        ({**LATENCY, "arrivals_per_s": 5.0}, "it tells latencies of 5 arrivals a second, its job has 4.0"),
        ({**LATENCY, "items": 399}, "it tells latencies of 399 items, its workload has 400"),
        ({**LATENCY, "p95_ms": None}, "its latencies lack p95_ms"),
        ({**LATENCY, "finished_s": None}, "its latencies lack finished_s"),
        ({**LATENCY, "median_ms": 2001.0}, "none may be shorter than the one before"),
        ({**LATENCY, "p99_ms": 3501.0}, "none may be shorter than the one before"),
        ({**LATENCY, "offered_s": 64.0}, "the last of its 400 items came after 64.000 s, at 4 a second"),
        ({**LATENCY, "offered_s": 136.0}, "the last of its 400 items came after 136.000 s, at 4 a second"),
        ({**LATENCY, "offered_s": 100.1}, "its last item came after 100.100 s"),
        ({**LATENCY, "longest_ms": 101_000.0}, "the longest wait was 101.000 s, and all ended after 100.000 s"),
        ({**LATENCY, "finished_s": 102.0}, "its last answer came after 102.000 s, and its workload took 100.000 s"),
        ({**LATENCY, "offered_s": 70.0, "finished_s": 80.0}, "its last answer came after 80.000 s, and its workload took 100.000 s"),
        ({**LATENCY, "each_ms": EACH_MS}, ""),
        ({**LATENCY, "each_ms": EACH_MS[1:]}, "its 399 single latencies do not give the 400 items"),
        ({**LATENCY, "each_ms": EACH_MS[:-1] + [3400.0]}, "its 400 single latencies do not give"),
        (RESUMED, "its run did not go on after a stop, and it tells no latencies"),
    ],
)
def test_latencies_agree_with_their_job_their_workload_and_each_other(tmp_path: Path, figure: dict | None, said: str) -> None:
    status, reason = served(tmp_path, figure, resumed=False)
    assert said in reason and (status == "ok") == (said == ""), reason


def served(folder: Path, figure: dict | None, resumed: bool, **options: object) -> tuple[str, str]:
    """(status, reason) of a workload of 400 items in 100 s whose guest tells these latencies."""
    counts = {"items": 400, "new_tokens": 400, "prompt_tokens": 400, "padded_prompt_tokens": 400, "decode_rows": 400, "seconds": 100.0, "resumed": resumed}
    figures = {"workload": counts, **({"latency": figure} if figure else {})}
    answer = good(figures=figures, **calls(timed_ms=[100_000.0]))
    asked = a_job(form="workload", options={"items": 400, "arrivals_per_s": 4.0, **options})
    return answered(folder, answer, ended(wall_s=200.0), asked, resumed)


def test_a_run_that_went_on_after_a_stop_tells_why_it_has_no_latencies(tmp_path: Path) -> None:
    assert served(tmp_path, RESUMED, resumed=True) == ("ok", "")
    assert "its run went on after a stop, and it tells latencies" in served(tmp_path, LATENCY, resumed=True)[1]


def test_latencies_without_a_workload_are_of_nothing(tmp_path: Path) -> None:
    asked = a_job(options={"items": 400, "arrivals_per_s": 4.0})
    status, reason = answered(tmp_path, good(figures={"latency": LATENCY}), job=asked)
    assert status == "failed" and "it tells latencies, and no workload" in reason


def test_a_workload_whose_items_are_all_there_tells_no_latencies(tmp_path: Path) -> None:
    assert served(tmp_path, None, resumed=False, arrivals_per_s=None) == ("ok", "")
    assert "its job has none" in served(tmp_path, LATENCY, resumed=False, arrivals_per_s=None)[1]


@pytest.mark.parametrize("lengths", [(16, 1), (1, 16)])
def test_a_workload_of_several_lengths_may_answer_with_the_longest(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    counts = {"items": 3, "new_tokens": 48, "prompt_tokens": 9, "padded_prompt_tokens": 9, "decode_rows": 9, "seconds": 1.0, "resumed": False}
    runs = [{"new_tokens": tokens, "arguments": {}} for tokens in lengths]
    job = a_job(form="workload", options={"items": 3}, runs=runs)
    assert answered(tmp_path, good(figures={"workload": counts}, **calls(timed_ms=[1000.0])), job=job) == ("ok", "")
    assert (
        "it made 49 new tokens, the job allows 48"
        in answered(tmp_path, good(figures={"workload": {**counts, "new_tokens": 49}}, **calls(timed_ms=[1000.0])), job=job)[1]
    )


@pytest.mark.parametrize("key", ["wall_ms", "profiled_wall_ms", "first_ms", "all_ms"])
def test_a_wall_time_of_a_figure_may_be_as_long_as_the_process_lived(tmp_path: Path, key: str) -> None:
    profile = {"profiler": "torch", "new_tokens": 1, "wall_ms": 1.0, "profiled_wall_ms": 1.0}
    cache = {"cache": "a", "most_sequences": 1, "searched_to_the_end": True}

    def figures(ms: float) -> dict:
        of_profile = {"profile": {**profile, key: ms}}
        return of_profile if key in profile else {"kv_offload": {"context_tokens": 1, "caches": [{**cache, key: [ms / 2, ms / 2]}]}}

    assert answered(tmp_path, good(figures=figures(59_999.0))) == ("ok", "")
    assert "one of its figures took 60.001 s" in answered(tmp_path, good(figures=figures(60_001.0)))[1]


def test_figures_that_took_most_of_the_time_that_the_process_lived_count(tmp_path: Path) -> None:
    fusion = [{"region": "mlp", "implementation": "eager", "batch_size": 1, "us": [25e6, 25e6], "reason": ""}]
    assert answered(tmp_path, good(figures={"fusion": fusion, "schedules": [schedule([50_000.0], [[1.0, 1.0]])]})) == ("ok", "")


def test_a_guest_s_own_word_of_the_judge_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(good(**part("check", judged={"passed": True, "reason": "forged"}))))
    assert "judged" not in answers.read(tmp_path / "result.json").check


@pytest.mark.parametrize("reason", [" ", "\n\t", "\u3000"])
def test_a_failure_with_an_empty_reason_is_told(tmp_path: Path, reason: str) -> None:
    status, told = answered(tmp_path, good(status="unsupported", reason=reason))
    assert status == "failed" and "its status is unsupported and its reason is empty" in told
