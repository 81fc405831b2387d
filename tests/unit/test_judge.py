"""The judge's rules on tokens and logits of which all is known; real models are in tests/guest/test_judge.py."""

import copy
import types

import numpy
import pytest

from bench.checking import judge
from bench.measuring import timed_tokens

FLOORS = {"regret_p90": 0.1, "regret_max": 0.5, "logits_error": 0.01}
PLAIN = {"regret_p90": 0.0, "regret_max": 0.1, "prompt": 0.001, "late": 0.002}
RIGHT = numpy.array([[1.0, 2.0, 2.0], [3.0, 4.0, 0.0]], dtype=numpy.float32)


class Readings:
    """Each sequence of tokens has the regrets that its own token ids say, in hundredths."""

    def of(self, said, prompt, tokens):
        return numpy.array(tokens) / 100, RIGHT


def said(tokens=(0, 0, 0, 0), **changes):
    rows = [list(tokens)]
    fields = {
        "greedy": True,
        "end_tokens": [2],
        "prompt": [5, 6],
        "late_step": 3,
        "runs": [timed_tokens.of_run(len(tokens), [rows, rows], [10.0, 11.0])],
        "again": {"digest": timed_tokens.digest(rows), "tokens": rows},
        "fresh": [{"prompt": [6, 5], "tokens": [[0] * len(tokens)], "ms": 12.0}, {"prompt": [6, 6], "tokens": [[0] * len(tokens)], "ms": 13.0}],
    }
    return {**fields, **changes}


def verdict(said, logits=None, plain=PLAIN):
    kept = {"prompt": RIGHT[:1], "late": RIGHT[1:]} if logits is None else logits
    return judge.judge(copy.deepcopy(said), kept, Readings(), plain, FLOORS)


def test_right_tokens_pass_with_what_was_looked_at():
    found = verdict(said())
    assert found["passed"] and found["reason"] == "" and (found["calls"], found["steps"], found["not_seen"]) == (2, 4, [])
    assert found["allowed"] == {"regret_p90": 0.1, "regret_max": 0.5, "logits_error": 0.01}


def test_a_single_bad_token_fails_by_the_largest_regret_and_many_mild_ones_by_the_90_percent():
    assert "(the worst), 0.5 is allowed" in verdict(said([0] * 30 + [60]))["reason"]
    assert "(90 %), 0.1 is allowed" in verdict(said([20] * 30))["reason"]
    assert verdict(said([0] * 30 + [49]))["passed"]


def test_the_bound_grows_with_what_plain_transformers_has():
    assert not verdict(said([20] * 30))["passed"]
    assert verdict(said([20] * 30), plain={**PLAIN, "regret_p90": 0.07})["passed"]


@pytest.mark.parametrize("place", ["prompt", "late"])
def test_logits_that_are_off_fail_at_either_position(place):
    logits = {"prompt": RIGHT[:1], "late": RIGHT[1:]}
    logits[place] = logits[place] * 1.02
    found = verdict(said(), logits)
    assert not found["passed"] and "0.02 off, 0.01 is allowed" in found["reason"]
    logits[place] = logits[place] * numpy.nan
    assert not verdict(said(), logits)["passed"]


def test_a_forbidden_end_token_is_not_held_against_the_logits():
    logits = {"prompt": numpy.array([[1.0, 2.0, -numpy.inf]], dtype=numpy.float32), "late": RIGHT[1:]}
    assert verdict(said(), logits)["passed"]


def test_a_backend_that_keeps_its_logits_to_itself_is_judged_by_its_tokens_and_the_row_says_so():
    found = verdict(said(again={"reason": "TypeError: no processors"}), logits={})
    assert found["passed"] and found["not_seen"] == ["logits of a late step: TypeError: no processors"]


def test_calls_that_differ_fail():
    runs = [timed_tokens.of_run(2, [[[0, 0]], [[0, 1]]], [10.0, 10.0])]
    assert "made different tokens" in verdict(said([0, 0], runs=runs))["reason"]
    other = {"digest": timed_tokens.digest([[0, 1]]), "tokens": [[0, 1]]}
    assert "other tokens than the timed calls" in verdict(said([0, 0], again=other))["reason"]


def test_a_wrong_number_of_tokens_fails():
    assert "4 new tokens were asked for, 3 came" in verdict(said(runs=[timed_tokens.of_run(4, [[[0, 0, 0]]] * 2, [10.0, 10.0])]))["reason"]


def test_kept_answers_show_in_their_times_and_a_busy_host_does_not():
    fresh = [{"prompt": [1], "tokens": [[0] * 4], "ms": ms} for ms in (29.0, 500.0)]
    assert verdict(said(fresh=fresh))["passed"]
    assert "their answers were kept" in verdict(said(fresh=[{**one, "ms": 40.0} for one in fresh]))["reason"]


def test_one_real_call_among_kept_ones_hides_nothing():
    rows = [[0] * 4]
    runs = [timed_tokens.of_run(4, [rows] * 5, [30.0, 0.1, 0.1, 0.1, 0.1])]
    assert "their answers were kept" in verdict(said(runs=runs))["reason"]


def test_answers_to_unseen_prompts_are_judged_too():
    fresh = [{"prompt": [6, 5], "tokens": [[90, 90, 90, 90]], "ms": 12.0}]
    assert "the tokens for an unseen prompt" in verdict(said(fresh=fresh))["reason"]


def test_sampled_tokens_are_counted_and_the_row_says_that_they_are_not_judged():
    found = verdict(said([90] * 4, greedy=False, fresh=[], again={"reason": "tokens are sampled"}), logits={}, plain=None)
    assert found["passed"] and found["not_seen"] == ["tokens are sampled, so no reference can judge them"] and "regret" not in found


class Prompt:
    """A prompt [1, tokens] as far as the calls with unseen prompts look at it: `roll` rotates it."""

    def __init__(self, tokens):
        self.tokens, self.shape = tokens, (1, len(tokens))

    def roll(self, place, dims):
        assert dims == 1
        return Prompt(self.tokens[-place:] + self.tokens[:-place])

    def __getitem__(self, row):
        return numpy.array(self.tokens)


class Form:
    @staticmethod
    def call(job, loaded, run, prompt):
        return numpy.array([[0, 0]])


def unseen(*times, prompt=range(20)):
    """The calls with unseen prompts of an engine whose timed calls take 10 ms and whose calls with unseen prompts take `times`, then the last of them."""
    left = list(times)

    def clock(action):
        action()
        return left.pop(0) if len(left) > 1 else left[0]

    loaded = types.SimpleNamespace(prompt_ids=Prompt(list(prompt)))
    return timed_tokens._fresh_calls(None, loaded, Form, {}, clock, [10.0] * 5)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(timed_tokens, "PAUSE_S", 0)


def test_a_busy_host_gets_more_unseen_prompts_until_it_is_calm_and_kept_answers_are_slow_in_all():
    assert [call["ms"] for call in unseen(12, 500)] == [12, 500]
    busy = unseen(500, 70, 200, 11)
    assert [call["ms"] for call in busy] == [500, 70, 200, 11]
    assert len({tuple(call["prompt"]) for call in busy}) == 4, "each call has a prompt of its own"
    assert not timed_tokens.slow([10.0] * 5, busy)
    kept = unseen(40)
    assert len(kept) == timed_tokens.MOST_FRESH_CALLS and timed_tokens.slow([10.0] * 5, kept)


def test_slow_calls_are_not_repeated_for_ever():
    assert [call["ms"] for call in unseen(40_000)] == [40_000, 40_000]


@pytest.mark.parametrize(("prompt", "others"), [(range(5), 4), ([1, 2, 3, 4] * 8, 3), ([7, 8], 1)])
def test_no_unseen_prompt_is_the_timed_one_or_comes_twice(prompt, others):
    prompts = [tuple(call["prompt"]) for call in unseen(500, prompt=prompt)]
    assert len(set(prompts)) == len(prompts) == others and tuple(prompt) not in prompts


def test_a_prompt_without_another_rotation_leaves_stored_answers_unseen_and_the_row_says_so():
    assert unseen(12, prompt=[7] * 6) == []
    found = verdict(said(fresh=[]))
    assert found["passed"] and found["not_seen"] == ["stored answers: no rotation of the prompt is another prompt"]
