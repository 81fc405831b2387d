"""What the guest's clocks make of the moments that they read: operators, windows, the times of tokens, and the kit's clock beside an article's loop."""

import itertools
import sys
import types

import pytest

from bench.instruments import clocks, clocks_tokens
from bench.measuring import clock, token_times
from tests.samples import a_job


def test_the_time_of_an_operator_is_that_of_its_calls_in_a_row_over_their_number(monkeypatch):
    moments, made = iter([0.0, 0.002, 5.0, 5.004]), []
    monkeypatch.setattr(clock.time, "perf_counter", lambda: next(moments))
    times_us = clock.call_times_us(lambda: made.append(None), "cpu", samples=2, calls_per_sample=4, warmup_calls=3)
    assert times_us == pytest.approx([500.0, 1000.0]) and len(made) == 3 + 2 * 4


def test_the_ratio_to_an_articles_loop_is_that_of_the_means_with_its_interval():
    told = clocks.summary([(11.0, 10.0), (9.0, 10.0)])
    assert (told["ratio"], told["median"], told["rounds"]) == (1.0, 1.0, 2)
    assert told["half_width"] == pytest.approx(1.96 * 2**0.5 / 10 / 2**0.5), "residuals of 1 and -1"
    assert (told["kit_ms"], told["article_ms"], told["rounds_ms"]) == (10.0, 10.0, [[11.0, 10.0], [9.0, 10.0]])
    uneven = clocks.summary([(2.0, 1.0), (10.0, 10.0)], unit="s")
    assert uneven["ratio"] == pytest.approx(12 / 11) and uneven["median"] == 1.5 and uneven["kit_s"] == 6.0
    assert uneven["half_width"] == pytest.approx(1.96 * 10 / 11 / 5.5), "residuals of 10/11 and -10/11"
    assert clocks.summary([(3.0, 2.0)])["half_width"] is None, "one round has no interval"


def test_the_two_clocks_take_turns_at_being_first_until_the_time_is_over(monkeypatch):
    order = []
    sides = [lambda name=name: order.append(name) or len(order) for name in ("kit", "article")]
    assert clocks.in_turn(*sides, rounds=3) == [(1, 2), (4, 3), (5, 6)]
    assert order == ["kit", "article", "article", "kit", "kit", "article"]
    monkeypatch.setenv("LIMIT_S", "0")
    assert len(clocks.in_turn(*sides, rounds=3)) == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert len(clocks.in_turn(*sides, rounds=3)) == 3, "ranks with other numbers of rounds would wait for each other"


def test_each_call_of_the_kit_s_clock_is_held_against_the_article_s_call_after_it_but_for_the_first(monkeypatch):
    made, asked = itertools.count(1), []

    def run(job, loaded, progress):
        asked.append((job.warmup_runs, job.timed_runs))
        for place in range(job.timed_runs):
            progress(place=place)
        return [{"timed_ms": [900.0, 10.0, 20.0, 30.0]}], None, {"a": "figure"}

    monkeypatch.setattr(clocks.forms, "find", lambda form: types.SimpleNamespace(run=run))
    pairs, figures = clocks.call_by_call(a_job(), None, lambda: next(made), rounds=3)
    assert asked == [(0, 4)] and figures == {"a": "figure"}
    assert pairs == [(10.0, 4), (20.0, 5), (30.0, 6)], "two calls of the article's loop warm it up"


def test_the_second_article_s_benchmark_and_the_kit_get_the_same_uncut_prompts(monkeypatch):
    """The kit cuts the sentences of a job that names a number of tokens, as all with random weights do; the benchmark never does."""
    sentences, made, asked = ["DeepSpeed is a machine learning framework", "He has a"], [], []
    job = a_job(backend="layer-parallel", case="accelerate-fp16", form="padded-sentences", prompt={"texts": sentences, "tokens": 6, "batch_size": 2})
    loaded = types.SimpleNamespace(model="model", device="cpu")
    tokenizer = types.SimpleNamespace(from_pretrained=lambda path, padding_side: "tokenizer")
    library = types.SimpleNamespace(logging=types.SimpleNamespace(set_verbosity_error=lambda: None), AutoTokenizer=tokenizer)
    monkeypatch.setitem(sys.modules, "transformers", library)
    monkeypatch.setattr(clocks, "arguments", lambda name: (job, "out.json", 3))
    monkeypatch.setattr(clocks, "load", lambda job: loaded)
    monkeypatch.setattr(clocks_tokens, "benchmark_ms_per_token", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(clocks, "write", lambda job, figures, out: made.append((job, figures["ratio"])))

    def call_by_call(job, loaded, article, rounds):
        made.append((job, rounds))
        article()
        return [(40.0, 2.0), (40.0, 2.0)], {"cycles": {"counted_tokens": 20}}

    monkeypatch.setattr(clocks, "call_by_call", call_by_call)
    clocks_tokens.main()
    assert asked == [("model", "tokenizer", sentences, "cpu", job.runs[0]["arguments"])]
    assert [(one.prompt["tokens"], told) for one, told in made] == [(None, 3), (None, 1.0)]


def stamped(monkeypatch, streamed):
    """The times of a job's tokens by an engine that streams so many, the first 5 ms after the call began and each other one 2 ms after the one before."""

    def call(job, loaded, run, prompt_ids, streamer):
        streamer.clock = iter([0.005, 0.007, 0.009, 0.011]).__next__
        for tokens in (prompt_ids, *range(streamed)):
            streamer.put(tokens)

    monkeypatch.setattr(token_times, "time", types.SimpleNamespace(perf_counter=lambda: 0.0))
    job = types.SimpleNamespace(device="cpu", runs=[{"new_tokens": 4}, {"new_tokens": 1}])
    timed = [{"new_tokens": 1, "timed_ms": [1.0]}, {"new_tokens": 4, "timed_ms": [7000.0, 8000.0]}]
    return token_times.measure_tokens(job, types.SimpleNamespace(prompt_ids=[[1, 2]]), types.SimpleNamespace(call=call), timed)


def test_the_prompt_is_no_token_and_each_call_has_a_first_token_and_the_times_between_all(monkeypatch):
    assert stamped(monkeypatch, 4) == {"new_tokens": 4, "first_ms": [5.0, 5.0], "between_ms": [[2.0, 2.0, 2.0]] * 2}


def test_an_engine_that_streams_fewer_tokens_than_were_asked_for_has_no_times(monkeypatch):
    assert stamped(monkeypatch, 3) == {"reason": "4 new tokens were asked for, 3 were streamed"}
