"""The host's part of judging: what becomes of a row whose tokens were judged, or could not be."""

import errno
import json

import pytest

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


def judged(monkeypatch, work, verdict, **check):
    def judgement(engine, job, dtype, floors, left, on_line):
        asked.update(dtype=dtype, floors=floors)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    asked = {}
    monkeypatch.setattr(checkpoints, "judgement", judgement)
    result = a_result(check={"passed": True, "reason": "", **check}, used={"dtype": "float16"})
    judging.judge(None, a_job(), result, work, print)
    return result.check, asked


def test_a_verdict_against_the_tokens_fails_the_row_with_its_reason(monkeypatch, work):
    check, asked = judged(monkeypatch, work, {"passed": False, "reason": "the timed tokens lie 2 standard deviations below the best"})
    assert not check["passed"] and "2 standard deviations" in check["reason"]
    assert asked["dtype"] == "float16" and asked["floors"] == judging.floors_of("float16")


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


def test_the_times_of_one_rank_may_be_shorter_than_those_of_the_slowest(monkeypatch, work):
    write(work, runs=[{"new_tokens": 1, "timed_ms": [0.5] * 10}])
    assert judged(monkeypatch, work, {"passed": True, "reason": ""})[0]["passed"]


def test_the_tokens_stay_beside_the_result(monkeypatch, work):
    judged(monkeypatch, work, {"passed": True, "reason": ""})
    assert (work.parent / timed_tokens.TOKENS).read_text() == (work / timed_tokens.TOKENS).read_text()


def test_a_form_that_leaves_no_tokens_is_not_judged(monkeypatch, work):
    (work / timed_tokens.TOKENS).unlink()
    assert "judged" not in judged(monkeypatch, work, {"passed": False, "reason": "x"})[0]


def test_every_dtype_has_floors_below_which_no_honest_row_is_asked_to_be():
    floors = {dtype: judging.floors_of(dtype) for dtype in ("float32", "float16", "bfloat16", "int8")}
    for name in judging.FLOORS:
        assert 0 < floors["float32"][name] < floors["float16"][name] < floors["bfloat16"][name] <= floors["int8"][name]
