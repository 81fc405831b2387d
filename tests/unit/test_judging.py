"""The host's part of judging: what becomes of a row whose tokens were judged, or could not be."""

import errno
import json

import numpy
import pytest

from bench.checking import judge
from bench.measuring import timed_tokens
from scripts.errors import KitError
from scripts.results import door
from scripts.run import checkpoints, judging
from tests.samples import a_job, a_result


@pytest.fixture
def work(tmp_path):
    """A work folder in a run's folder, with what a measuring job leaves."""
    folder = tmp_path / "run" / "work"
    folder.mkdir(parents=True)
    write(folder)
    return folder


def write(folder, **changes):
    """The tokens of the sample job; the judge reads more of them, the host only what the job decides."""
    told = {"greedy": True, "rows": 1, "stop_tokens": [], "runs": [{"new_tokens": 1, "timed_ms": [1.0] * 10, "digests": ["0" * 12]}], "prompts": [[5]]}
    (folder / timed_tokens.TOKENS).write_text(json.dumps({**told, **changes}))


def judged(monkeypatch, work, verdict, job=None, **check):
    def judgement(engine, job, dtype, floors, left, on_line):
        asked.update(dtype=dtype, floors=floors)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    asked = {}
    monkeypatch.setattr(checkpoints, "judgement", judgement)
    result = a_result(check={"passed": True, "reason": "", **check}, used={"dtype": "float16"})
    judging.judge(None, job or a_job(), result, work, print)
    return result.check, asked


def test_a_verdict_against_the_tokens_fails_the_row_with_its_reason(monkeypatch, work):
    check, asked = judged(monkeypatch, work, {"passed": False, "reason": "the timed tokens lie 2 standard deviations below the best"})
    assert not check["passed"] and "2 standard deviations" in check["reason"]
    assert asked["dtype"] == "float16" and asked["floors"] == judging.floors_of("float16")


def test_a_verdict_s_reason_is_one_line_that_a_terminal_can_show(monkeypatch, work):
    check, _ = judged(monkeypatch, work, {"passed": False, "reason": "bad\x1b[2J\nrow: ok"})
    assert check["reason"] == check["judged"]["reason"] == "bad?[2J row: ok"


def test_a_verdict_for_the_tokens_leaves_the_check_as_it_is_and_stands_in_it(monkeypatch, work):
    verdict = {"passed": True, "reason": ""}
    assert judged(monkeypatch, work, verdict)[0] == {"passed": True, "reason": "", "judged": verdict}
    assert not judged(monkeypatch, work, verdict, passed=False)[0]["passed"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [(KitError("the judge job ended with oom: too large\nmore"), "the judge job ended with oom: too large"), (OSError(), "OSError")],
    ids=["judge", "disk"],
)
def test_a_judge_that_cannot_work_says_nothing_about_the_row(monkeypatch, work, fault, words):
    with pytest.raises(judging.NotJudged, match=f"^{words}$"):
        judged(monkeypatch, work, fault)


@pytest.mark.parametrize(
    "verdict", [{}, {"passed": True}, {"passed": True, "reason": None}, {"passed": "yes", "reason": ""}, {"passed": True, "reason": "", "regret": 5}]
)
def test_a_verdict_of_another_shape_has_not_passed(monkeypatch, work, verdict):
    check = judged(monkeypatch, work, verdict)[0]
    assert not check["passed"] and check["judged"] == {"passed": False, "reason": check["reason"]}
    assert check["reason"].startswith("its tokens were not judged: damaged verdict: ")


def test_tokens_that_cannot_be_read_say_nothing_about_the_row(monkeypatch, work):
    monkeypatch.setattr(door, "read", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(judging.NotJudged, match="Input/output error"):
        judged(monkeypatch, work, {"passed": True, "reason": ""})


def test_tokens_that_are_not_let_in_have_not_passed(monkeypatch, work):
    (work / timed_tokens.LOGITS).symlink_to("/etc/passwd")
    check, asked = judged(monkeypatch, work, {"passed": True, "reason": ""})
    assert not check["passed"] and "logits.npz is a symbolic link" in check["reason"] and not asked


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"greedy": False}, "its tokens are sampled, the job asks for greedy ones"),
        ({"rows": 8}, "it answers 8 sequences, the job has 1"),
        ({"stop_tokens": [2]}, "end tokens end its answers, which the job's form does not allow"),
        ({"runs": []}, "it tells calls of [] new tokens"),
        ({"runs": [{"new_tokens": 1, "timed_ms": [1.0] * 9 + [1.5]}]}, "its calls of 1 new tokens have other times than the result's"),
        ({"runs": [{"new_tokens": 1, "timed_ms": [1.0] * 9}]}, "its calls of 1 new tokens have other times than the result's"),
        ({"runs": [{"new_tokens": 128, "timed_ms": [1.0] * 10}]}, "it tells calls of [128] new tokens"),
        ({"runs": 5}, "damaged tokens.json"),
    ],
)
def test_tokens_that_contradict_their_job_have_not_passed_whatever_the_judge_would_say(monkeypatch, work, changes, words):
    write(work, **changes)
    check, asked = judged(monkeypatch, work, {"passed": True, "reason": ""})
    assert not check["passed"] and words in check["reason"] and not asked


def test_tokens_of_as_many_sequences_as_the_job_has_are_judged(monkeypatch, work):
    write(work, rows=8)
    in_batches = a_job(prompt={"text": "a", "batch_size": 8})
    assert judged(monkeypatch, work, {"passed": True, "reason": ""}, in_batches)[0]["passed"]


def test_the_times_of_one_rank_may_be_shorter_than_those_of_the_slowest(monkeypatch, work):
    write(work, runs=[{"new_tokens": 1, "timed_ms": [0.5] * 10}])
    assert judged(monkeypatch, work, {"passed": True, "reason": ""})[0]["passed"]


def test_the_tokens_stay_beside_the_result(monkeypatch, work):
    judged(monkeypatch, work, {"passed": True, "reason": ""})
    assert (work.parent / timed_tokens.TOKENS).read_text() == (work / timed_tokens.TOKENS).read_text()


@pytest.mark.parametrize(
    ("form", "options", "is_judged"),
    [
        ("generate", {}, True),
        ("padded-sentences", {}, True),
        ("batch", {"texts": "prompt"}, True),
        ("batch", {"texts": "uneven"}, False),
        ("workload", {}, False),
    ],
)
def test_a_row_without_tokens_has_not_passed_where_its_form_leaves_them(monkeypatch, work, form, options, is_judged):
    (work / timed_tokens.TOKENS).unlink()
    check, asked = judged(monkeypatch, work, {"passed": True, "reason": ""}, a_job(form=form, options=options))
    assert ("judged" in check, check["passed"]) == (is_judged, not is_judged) and not asked
    assert not is_judged or "left no tokens.json" in check["reason"]


def test_logits_that_were_left_out_are_no_right_ones():
    right = numpy.arange(1.0, 1001.0)
    own = numpy.where(right <= 3, right, -numpy.inf)
    assert judge._error(own, right, [5]) == 1e9
    own = numpy.where(right == 8, -numpy.inf, right)
    assert judge._error(own, right, [7]) == 0 and judge._error(own, right, [6, 5000, -1]) == 1e9


def test_every_dtype_has_floors_below_which_no_honest_row_is_asked_to_be():
    floors = {dtype: judging.floors_of(dtype) for dtype in ("float32", "float16", "bfloat16", "int8")}
    for name in judging.FLOORS:
        assert 0 < floors["float32"][name] < floors["float16"][name] < floors["bfloat16"][name] <= floors["int8"][name]
