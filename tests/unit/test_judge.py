"""The judge's rules on tokens and logits of which all is known; real models are in tests/guest/test_judge.py."""

import copy
import types

import numpy
import pytest

from bench.checking import judge, regret
from bench.measuring import timed_tokens
from tests.samples import a_job

FLOORS = {"regret_p90": 0.1, "regret_max": 0.5, "logits_error": 0.01}
PLAIN = {"regret_p90": 0.0, "regret_max": 0.1, "prompt": 0.001, "late": 0.002}
RIGHT = numpy.array([[1.0, 2.0, 2.0], [3.0, 4.0, 0.0]], dtype=numpy.float32)


class Readings:
    """Each sequence of tokens has the regrets that its own token ids say, in hundredths; the model's end token is 2."""

    def regrets(self, said, prompt, tokens):
        return numpy.array(tokens) / 100

    def logits(self, said, prompt, tokens):
        return RIGHT

    def ends(self):
        return [2]


BATCH = timed_tokens.Batch(numpy.array([[5, 6]]))


def run_of(new_tokens, calls, timed_ms, batch=BATCH):
    return timed_tokens.Timed(new_tokens, calls, timed_ms).part(batch)


def call_of(prompt, tokens, ms):
    return {"prompts": [prompt], "rows": [1], "answers": [{"prompt": 0, "tokens": list(tokens)}], "ms": ms}


REFUSED = {"reason": "TypeError: no processors"}


def again_of(calls, batch=BATCH):
    return {"digest": timed_tokens.digest(calls), "rows": [len(calls)], "answers": batch.answers(calls)}


def said(tokens=(0, 0, 0, 0), **changes):
    rows = [list(tokens)]
    nothing = [0] * len(tokens)
    fields = {
        "greedy": True,
        "forbidden_tokens": [2],
        "stop_tokens": [],
        "prompts": [[5, 6]],
        "rows": 1,
        "late_step": 3,
        "runs": [run_of(len(tokens), [rows, rows], [10.0, 11.0])],
        "again": again_of(rows),
        "fresh": [call_of([6, 5], nothing, 12.0), call_of([6, 6], nothing, 13.0)],
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
    allowed = verdict(said(), plain={"regret_p90": 0.07, "regret_max": 0.2, "prompt": 0.006, "late": 0.007})["allowed"]
    assert allowed == pytest.approx({"regret_p90": 0.21, "regret_max": 0.6, "logits_error": 0.014}), "three times the regrets, twice the larger error"


def test_a_regret_that_is_no_number_fails():
    class Broken(Readings):
        def regrets(self, said, prompt, tokens):
            return numpy.full(len(tokens), numpy.nan)

    assert "the timed tokens lie nan" in judge.judge(said(again=REFUSED), {}, Broken(), PLAIN, FLOORS)["reason"]


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
    found = verdict(said(again=REFUSED), logits={})
    assert found["passed"] and found["not_seen"] == ["logits of a late step: TypeError: no processors"]


def test_calls_that_differ_fail():
    runs = [run_of(2, [[[0, 0]], [[0, 1]]], [10.0, 10.0])]
    assert "made different tokens" in verdict(said([0, 0], runs=runs))["reason"]
    assert "other tokens than the timed calls" in verdict(said([0, 0], again=again_of([[0, 1]])))["reason"]


def test_a_wrong_number_of_tokens_fails():
    assert "4 new tokens were asked for, 3 came" in verdict(said(runs=[run_of(4, [[[0, 0, 0]]] * 2, [10.0, 10.0])]))["reason"]
    assert "4 new tokens were asked for, 5 came" in verdict(said(runs=[run_of(4, [[[0] * 5]] * 2, [10.0, 10.0])]))["reason"]
    again = {**again_of([[0] * 3]), "digest": timed_tokens.digest([[0] * 4])}
    assert "4 new tokens were asked for, 3 came" in verdict(said(again=again))["reason"], "the call whose logits were kept"
    assert "4 new tokens were asked for, 3 came" in verdict(said(fresh=[call_of([6, 5], [0] * 3, 12.0)]))["reason"], "an unseen prompt"


def test_calls_with_unseen_prompts_are_held_against_the_longest_run():
    runs = [run_of(1, [[[0]]] * 2, [1.0, 1.0]), run_of(4, [[[0] * 4]] * 2, [10.0, 11.0])]
    assert verdict(said(runs=runs))["passed"]


def test_kept_answers_show_in_their_times_and_a_busy_host_does_not():
    fresh = [call_of([1], [0] * 4, ms) for ms in (29.0, 500.0)]
    assert verdict(said(fresh=fresh))["passed"]
    assert "the timed answers come from a store" in verdict(said(fresh=[{**one, "ms": 40.0} for one in fresh]))["reason"]


def test_unseen_prompts_are_held_against_the_calls_just_before_them_and_the_reason_names_those():
    def reason(*seen_ms):
        return verdict(said(fresh=[call_of([1], [0] * 4, 70.0), {**call_of([2], [0] * 4, 70.0), "seen_ms": seen_ms}]))["reason"]

    assert reason(60.0, 25.0) == ""
    assert reason(60.0, 23.0) == "timed calls took 11 ms, later ones 23 ms, a call with an unseen prompt took 70 ms: the timed answers come from a store"


def test_one_real_call_among_kept_ones_hides_nothing():
    rows = [[0] * 4]
    runs = [run_of(4, [rows] * 5, [30.0, 0.1, 0.1, 0.1, 0.1])]
    assert "the timed answers come from a store" in verdict(said(runs=runs))["reason"]


def test_answers_to_unseen_prompts_are_judged_too():
    fresh = [call_of([6, 5], [90, 90, 90, 90], 12.0)]
    assert "the tokens for an unseen prompt" in verdict(said(fresh=fresh))["reason"]


def test_sampled_tokens_are_counted_and_the_row_says_that_they_are_not_judged():
    found = verdict(said([90] * 4, greedy=False, fresh=[], again={"reason": "tokens are sampled"}), logits={}, plain=None)
    assert found["passed"] and found["not_seen"] == ["tokens are sampled, so no reference can judge them"] and "regret" not in found


def test_every_sampled_answer_that_differs_is_counted():
    runs = [run_of(4, [[[1] * 4], [[3] * 5]], [10.0, 11.0])]
    found = verdict(said(runs=runs, greedy=False, fresh=[], again={"reason": "tokens are sampled"}), logits={}, plain=None)
    assert (found["steps"], found["reason"]) == (9, "4 new tokens were asked for, 5 came")


def test_a_sampled_answer_may_end_early():
    runs = [run_of(4, [[[1] * 4], [[3] * 2]], [10.0, 11.0])]
    found = verdict(said(runs=runs, greedy=False, fresh=[], again={"reason": "tokens are sampled"}), logits={}, plain=None)
    assert found["passed"] and found["steps"] == 6


class Ids(numpy.ndarray):
    """Token ids [rows, tokens] as far as a batch looks at them: torch's `new_tensor` makes others."""

    @staticmethod
    def new_tensor(rows):
        return ids(*rows)


def ids(*rows):
    return numpy.array(rows).view(Ids)


def test_an_answer_is_read_after_its_own_prompt_without_padding():
    batch = timed_tokens.Batch(ids([3, 3, 7], [5, 6, 7], [3, 3, 7]), numpy.array([[0, 0, 1], [1, 1, 1], [0, 0, 1]]))
    assert batch.prompts == [[7], [5, 6, 7]] and batch.numbers == [0, 1, 0]
    assert batch.rotated(1).prompts == [[7], [7, 5, 6]]
    assert batch.rotated(1).input_ids.tolist() == [[3, 3, 7], [7, 5, 6], [3, 3, 7]]
    assert batch.rotated(2).input_ids.tolist() == [[3, 3, 7], [6, 7, 5], [3, 3, 7]], "the padding of a short row never turns"
    read = []

    class Recorded(Readings):
        def regrets(self, said, prompt, tokens):
            read.append((prompt, tokens))
            return super().regrets(said, prompt, tokens)

    rows = [[0, 0], [0, 1], [0, 0]]
    answers = said([0, 0], rows=3, prompts=batch.prompts, runs=[run_of(2, [rows, rows], [1.0, 1.0], batch)], again=REFUSED, fresh=[], late_step=1)
    judge.judge(answers, {}, Recorded(), PLAIN, FLOORS)
    assert read == [([7], [0, 0]), ([5, 6, 7], [0, 1])], "each distinct answer once, after its own prompt"


@pytest.mark.parametrize("row", range(3))
def test_a_wrong_row_fails_wherever_it_stands_in_the_batch(row):
    batch = timed_tokens.Batch(ids([7, 8], [5, 6], [7, 8]))
    rows = [[0] * 4 for _ in range(3)]
    assert verdict(said(rows=3, prompts=batch.prompts, runs=[run_of(4, [rows] * 2, [10.0] * 2, batch)], again=REFUSED, fresh=[]), logits={})["passed"]
    rows[row] = [90] * 4
    found = verdict(said(rows=3, prompts=batch.prompts, runs=[run_of(4, [rows] * 2, [10.0] * 2, batch)], again=REFUSED, fresh=[]), logits={})
    assert "the timed tokens lie" in found["reason"]


def test_logits_are_compared_with_those_of_their_own_row():
    batch = timed_tokens.Batch(ids([7, 8], [5, 6]))
    rows = [[0] * 4, [1] * 4]
    answers = said(rows=2, prompts=batch.prompts, runs=[run_of(4, [rows] * 2, [10.0] * 2, batch)], again=again_of(rows, batch), fresh=[])

    class OfRows(Readings):
        def logits(self, said, prompt, tokens):
            return RIGHT + (prompt == [5, 6])

    logits = {"prompt": numpy.array([RIGHT[0], RIGHT[0] + 1]), "late": numpy.array([RIGHT[1], RIGHT[1] + 1])}
    assert judge.judge(answers, logits, OfRows(), PLAIN, FLOORS)["passed"]
    swapped = {name: value[::-1] for name, value in logits.items()}
    assert "the logits of the late step" in judge.judge(answers, swapped, OfRows(), PLAIN, FLOORS)["reason"]


def test_an_end_token_may_end_an_answer_where_the_job_allows_it():
    batch = timed_tokens.Batch(ids([5, 6]), ends=[2])
    rows = [[0, 2, 3, 3]]
    fields = {"runs": [run_of(4, [rows] * 2, [10.0] * 2, batch)], "again": again_of(rows, batch), "fresh": [], "forbidden_tokens": []}
    assert batch.answers(rows) == [{"prompt": 0, "tokens": [0, 2]}]
    found = verdict(said(**fields, stop_tokens=[2]), {"prompt": RIGHT[:1]})
    assert found["passed"] and list(found["logits_error"]) == ["prompt"], "it has no late step"
    assert "logits of a late step: every answer ended before it" in found["not_seen"]
    assert "4 new tokens were asked for, 2 came" in verdict(said(**{**fields, "forbidden_tokens": [2]}))["reason"]


def test_an_answer_that_ended_just_before_the_late_step_has_none():
    batch = timed_tokens.Batch(ids([5, 6]), ends=[2])
    rows = [[0, 0, 2, 3]]
    fields = {"runs": [run_of(4, [rows] * 2, [10.0] * 2, batch)], "again": again_of(rows, batch), "fresh": [], "forbidden_tokens": []}
    assert list(verdict(said(**fields, stop_tokens=[2]), {"prompt": RIGHT[:1], "late": RIGHT[:1]})["logits_error"]) == ["prompt"]


def test_an_end_token_within_an_answer_does_not_excuse_the_tokens_that_are_missing_behind_it():
    runs = [run_of(4, [[[2, 0]]] * 2, [10.0] * 2)]
    found = verdict(said(runs=runs, again=REFUSED, fresh=[], forbidden_tokens=[], stop_tokens=[2]), logits={})
    assert found["reason"] == "4 new tokens were asked for, 2 came"


@pytest.mark.parametrize("place", ["stop_tokens", "forbidden_tokens"])
def test_a_backend_that_takes_another_token_for_the_end_fails(place):
    tokens = {"stop_tokens": [], "forbidden_tokens": [], place: [2, 9]}
    assert "the tokens [2, 9] ended answers, the model's own settings name [2]" in verdict(said(**tokens))["reason"]
    assert verdict(said(**{**tokens, place: [2]}))["passed"]


@pytest.mark.parametrize(("stop", "forbidden"), [([2], [9]), ([9], [2]), ([2], [2])])
def test_tokens_that_are_forbidden_beside_those_that_end_answers_fail_because_no_regret_counts_them(stop, forbidden):
    assert "the model's own settings name [2]" in verdict(said(stop_tokens=stop, forbidden_tokens=forbidden))["reason"]


MANY = 200
BATCH_OF_MANY = timed_tokens.Batch(ids(*[[5, 6]] * MANY))


def of_many(rows, **fields):
    runs = [run_of(4, [rows] * 2, [10.0] * 2, BATCH_OF_MANY)]
    return verdict(said(**{"rows": MANY, "runs": runs, "again": REFUSED, "fresh": [], **fields}), logits={})


def test_wrong_rows_beyond_the_first_hundred_fail():
    good = [[0, 0, 0, number % 9] for number in range(MANY)]
    assert of_many(good)["passed"]
    assert "the timed tokens lie" in of_many([*good[:-40], *([90, 90, 90, number] for number in range(40))])["reason"]
    assert "4 new tokens were asked for, 2 came" in of_many([*good[:-1], [0, 0]])["reason"]


def test_of_more_different_answers_than_are_read_the_others_are_counted_and_told():
    rows = [[0, number % 8, number // 8 % 8, number // 64] for number in range(MANY)]
    fresh = [{"prompts": [[6, 5]], "rows": [MANY], "answers": BATCH_OF_MANY.answers(rows), "ms": 12.0}]
    others = MANY - judge.READ_ANSWERS
    assert others > 0 and f"{others} different answers that were not read" in of_many(rows)["not_seen"]
    assert f"{2 * others} different answers that were not read" in of_many(rows, fresh=fresh)["not_seen"]
    assert "4 new tokens were asked for, 3 came" in of_many([*rows[:-1], [0, 0, 0]])["reason"], "one that is not read is counted all the same"


@pytest.mark.parametrize(
    "fields",
    [
        {"runs": [run_of(4, [[[0] * 4]] * 2, [10.0] * 2, BATCH_OF_MANY)]},
        {"again": {**again_of([[0] * 4]), **REFUSED}},
        {"fresh": [call_of([6, 5], [0] * 4, 12.0)]},
    ],
    ids=["timed", "again", "fresh"],
)
def test_a_call_with_fewer_rows_than_its_batch_fails(fields):
    assert of_many([[0] * 4] * MANY)["passed"]
    assert f"{MANY} rows were asked for, 1 came" in of_many([[0] * 4] * MANY, **fields)["reason"]


def test_logits_of_which_positions_or_rows_are_missing_are_told():
    assert verdict(said(), {"prompt": RIGHT[:1]})["not_seen"] == ["logits of a late step: 0 of 1 rows have them"]
    assert verdict(said(), {"late": RIGHT[1:]})["not_seen"] == ["logits of the prompt's last position: 0 of 1 rows have them"]
    batch = timed_tokens.Batch(ids([5, 6], [5, 6]))
    rows = [[0] * 4] * 2
    two = said(rows=2, runs=[run_of(4, [rows] * 2, [10.0] * 2, batch)], again=again_of(rows, batch), fresh=[])
    assert "logits of a late step: 1 of 2 rows have them" in verdict(two)["not_seen"]


class Engine:
    """An engine on a virtual clock, whose timed calls took 10 ms each, and what it was asked: "seen", "unseen" or the seconds of a pause.

    Its calls with unseen prompts take `times`, those with the timed prompts `seen`, and the last of them for ever.
    """

    def __init__(self, times, seen, prompts):
        self.left, self.prompts, self.asked = {"unseen": list(times), "seen": list(seen)}, prompts, []

    def call(self, job, loaded, run, asked):
        self.asked.append("seen" if asked.tolist() == self.prompts else "unseen")
        return numpy.array([[place, place] for place, _ in enumerate(self.prompts)])

    def clock(self, action):
        action()
        left = self.left[self.asked[-1]]
        return left.pop(0) if len(left) > 1 else left[0]

    def fresh(self, timed_runs=5, warmup_runs=0):
        job = types.SimpleNamespace(warmup_runs=warmup_runs)
        return timed_tokens._fresh_calls(job, None, self, {}, timed_tokens.Batch(ids(*self.prompts)), self.clock, [10.0] * timed_runs)


def unseen(*times, prompt=range(20), seen=(10,)):
    """The calls with unseen prompts of an engine."""
    return Engine(times, seen, [list(prompt)]).fresh()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(timed_tokens, "PAUSE_S", 0)


def test_a_busy_host_gets_more_unseen_prompts_until_it_is_calm_and_kept_answers_are_slow_in_all():
    assert [call["ms"] for call in unseen(12, 500)] == [12, 500]
    busy = unseen(500, 70, 200, 11)
    assert [call["ms"] for call in busy] == [500, 70, 200, 11]
    assert len({tuple(call["prompts"][0]) for call in busy}) == 4, "each call has a prompt of its own"
    assert not timed_tokens.slow([10.0] * 5, busy)
    kept = unseen(40)
    assert len(kept) == timed_tokens.MOST_FRESH_CALLS and timed_tokens.slow([10.0] * 5, kept)
    assert len(unseen(30)) == 2, "three times as long is not slow"
    assert timed_tokens.slow([0.1] * 5, [{"ms": 0.9}]), "calls of less than a millisecond too"


def test_a_host_that_stays_busy_slows_calls_with_the_timed_prompts_too():
    busy = unseen(70, seen=[60, 25, 50])
    assert [call.get("seen_ms") for call in busy] == [None, None, [60, 25, 50]] and not timed_tokens.slow([10.0] * 5, busy)
    assert timed_tokens.slow([10.0] * 5, unseen(70, seen=[23, 60, 60] * 6)), "the fastest of them decides"
    assert len(unseen(70, 70, 25, seen=[5])) == 3, "a calm host is held against the timed calls"


@pytest.mark.parametrize(("timed_runs", "warmup_runs", "count"), [(2, 0, 2), (5, 0, 3), (5, 1, 4), (10, 2, 6)])
def test_an_engine_that_keeps_an_answer_when_it_comes_again_and_again_is_found_after_each_unseen_prompt(timed_runs, warmup_runs, count):
    assert timed_tokens.seen_calls(warmup_runs, timed_runs) == count
    computed = [70] * (count - 1)
    engine = Engine([70], [*computed, 1] * 6, [list(range(20))])
    fresh = engine.fresh(timed_runs, warmup_runs)
    assert [call["seen_ms"] for call in fresh[2:]] == [[*computed, 1]] * 6 and timed_tokens.slow([10.0] * timed_runs, fresh)


def test_the_pauses_for_a_busy_host_grow_to_eight_seconds_and_calls_with_the_timed_prompts_come_after_them(monkeypatch):
    engine = Engine([40], [10], [list(range(20))])
    monkeypatch.setattr(timed_tokens, "PAUSE_S", 0.25)
    monkeypatch.setattr(timed_tokens.time, "sleep", engine.asked.append)
    engine.fresh(timed_runs=2)
    assert engine.asked == ["unseen"] * 2 + [step for pause in (0.25, 0.5, 1, 2, 4, 8) for step in (pause, "seen", "seen", "unseen")]


def test_slow_calls_are_not_repeated_for_ever_but_compared_once():
    assert [call["ms"] for call in unseen(40_000)] == [40_000] * 3
    assert [call["ms"] for call in unseen(20_000, seen=[6_000])] == [20_000] * 3, "the calls with the timed prompts count"


def test_the_first_rank_decides_for_all(monkeypatch):
    monkeypatch.setattr(timed_tokens.ranks, "gather", lambda enough: [True, False])
    assert len(unseen(40)) == 2


def test_each_row_of_a_batch_is_asked_and_answered():
    (first, _) = Engine([12], [10], [list(range(20)), list(range(20, 40))]).fresh()
    assert first["rows"] == [2] and first["answers"] == [{"prompt": 0, "tokens": [0, 0]}, {"prompt": 1, "tokens": [1, 1]}]
    assert [prompt[0] for prompt in first["prompts"]] == [19, 39]


@pytest.mark.parametrize(("prompt", "others"), [(range(5), 4), ([1, 2, 3, 4] * 8, 3), ([7, 8], 1)])
def test_no_unseen_prompt_is_the_timed_one_or_comes_twice(prompt, others):
    prompts = [tuple(call["prompts"][0]) for call in unseen(500, prompt=prompt)]
    assert len(set(prompts)) == len(prompts) == others and tuple(prompt) not in prompts


def test_a_prompt_without_another_rotation_leaves_stored_answers_unseen_and_the_row_says_so():
    assert unseen(12, prompt=[7] * 6) == []
    found = verdict(said(fresh=[]))
    assert found["passed"] and found["not_seen"] == ["answers from a store, because every rotation of the prompt is the same prompt"]


@pytest.mark.parametrize(
    ("timed_ms", "pace_ms"), [([7.0], 7), ([30.0, 10.0, 50.0, 20.0, 40.0], 40), ([10.0] * 7 + [90.0] * 3, 90), ([10.0] * 8 + [90.0] * 2, 10)]
)
def test_the_pace_of_timed_calls_is_their_upper_quartile(timed_ms, pace_ms):
    assert timed_tokens.pace_ms(timed_ms) == pace_ms


def test_the_late_step_comes_after_four_fifths_of_the_tokens():
    assert [timed_tokens.late_step(new_tokens) for new_tokens in (1, 4, 10, 128)] == [0, 3, 8, 102]


@pytest.mark.parametrize(
    ("run", "greedy"),
    [
        ({"arguments": {}}, True),
        ({"arguments": {"do_sample": False, "num_beams": 1}}, True),
        ({"arguments": {"do_sample": True}}, False),
        ({"arguments": {"num_beams": 2}}, False),
        ({"arguments": {}, "up_to": True}, False),
    ],
)
def test_only_runs_that_take_the_largest_logit_up_to_their_length_are_greedy(run, greedy):
    every = [{"new_tokens": 1, "arguments": {}}, {"new_tokens": 4, **run}]
    assert timed_tokens.greedy(a_job(runs=every)) is greedy


def test_a_reading_is_kept_for_its_own_prompt_tokens_late_step_and_forbidden_tokens(tmp_path):
    read = []

    class Counted(judge.Readings):
        def read(self, answers, prompt, tokens):
            read.append((prompt, tokens))
            return numpy.zeros(len(tokens)), RIGHT

    kept = Counted(str(tmp_path / "readings.npz"), load=print)
    asked = [(said(), [5, 6], [0, 0]), (said(), [6, 5], [0, 0]), (said(), [5, 6], [0, 1])]
    asked += [(said(late_step=1), [5, 6], [0, 0]), (said(forbidden_tokens=[]), [5, 6], [0, 0])]
    for question in asked * 2:
        kept.regrets(*question)
    assert len(read) == len(asked)
    kept.save()
    again = judge.Readings(str(tmp_path / "readings.npz"), load=None)
    assert again.regrets(*asked[-1]).tolist() == [0, 0]
    with pytest.raises(judge.NotRead):
        again.regrets(said(), [7], [0, 0])


def test_quantiles_of_regrets_lie_between_two_of_them_on_a_straight_line():
    assert regret.summary([0.0, 3.0, 1.0, 2.0]) == pytest.approx({"p50": 1.5, "p90": 2.7, "max": 3.0})
    assert regret.summary([0.5]) == {"p50": 0.5, "p90": 0.5, "max": 0.5}


def test_plain_transformers_own_error_is_the_largest_over_its_prompts(monkeypatch):
    right = numpy.array([[3.0, 4.0], [3.0, 4.0]])
    decoded = [([1], {"prompt": numpy.array([3.0, 4.0 + off]), "late": numpy.array([3.0, 4.0])}) for off in (0.5, 1.0, 0.25)]
    monkeypatch.setattr(judge, "_decoded", lambda *_: decoded)
    readings = types.SimpleNamespace(get=lambda name, make: make(), read=lambda answers, prompt, tokens: (numpy.array([0.0]), right))
    answers = said(prompts=[[5], [6], [7]], runs=[{"new_tokens": 1}], forbidden_tokens=[])
    plain = judge._plain(types.SimpleNamespace(options={"dtype": "float16"}), answers, readings)
    assert (plain["prompt"], plain["late"]) == (pytest.approx(0.2), 0.0)


def test_what_plain_transformers_has_is_kept_for_its_own_prompts_end_tokens_length_and_dtype(tmp_path, monkeypatch):
    decoded = []

    class Read(judge.Readings):
        def read(self, answers, prompt, tokens):
            return numpy.zeros(len(tokens)), RIGHT

    monkeypatch.setattr(judge, "_decoded", lambda job, answers, new_tokens, readings: decoded.append(new_tokens) or [([0] * new_tokens, {})])
    ends = [{"stop_tokens": tokens, "forbidden_tokens": []} for tokens in ([2], [9])]
    longer = {"runs": [*said()["runs"], run_of(8, [[[0] * 8]], [20.0])]}
    asked = [(said(**changes), "float16") for changes in ({}, {"prompts": [[6, 5]]}, longer, *ends)] + [(said(), "bfloat16")]
    readings = Read(str(tmp_path / "readings.npz"), load=print)
    for answers, dtype in asked * 2:
        judge._plain(types.SimpleNamespace(options={"dtype": dtype}), answers, readings)
    assert decoded == [4, 4, 8, 4, 4, 4]


@pytest.mark.parametrize("wrong", [{"forbidden_tokens": []}, {"forbidden_tokens": [9]}, {"late_step": 2}])
def test_a_row_that_tells_wrong_end_tokens_or_another_late_step_widens_no_bound_of_a_later_row(tmp_path, monkeypatch, wrong):
    forbidden = numpy.array([1.0, 2.0, -numpy.inf])
    monkeypatch.setattr(judge, "_decoded", lambda *_: [([0] * 4, {"prompt": forbidden, "late": forbidden})])
    job = types.SimpleNamespace(options={"dtype": "float16"})

    class Read(judge.Readings):
        def read(self, answers, prompt, tokens):
            logits = numpy.array([1.0, 2.0, 2.0])
            return numpy.zeros(len(tokens)), [logits, logits * (2 if answers["late_step"] == 2 else 1)]

    def plain_of(answers):
        readings = Read(str(tmp_path / "readings.npz"), load=print)
        plain = judge._plain(job, answers, readings)
        readings.save()
        return plain

    assert plain_of(said(**wrong))["late"] > 0
    assert plain_of(said()) == {"regret_p90": 0.0, "regret_max": 0.0, "prompt": 0.0, "late": 0.0}
