"""The guest waits for a GPU exactly where a time begins or ends, and gives up what it holds: on stand-ins of torch that write down what happens."""

import contextlib
import sys
import types

import pytest

from bench import actions, backends
from bench.forms import engine_queue, kv_offload, padded_sentences, pipeline_stages, workload
from bench.measuring import clock, longer, measure, roof, token_times


class Device:
    """A GPU whose `events` are what happened, in order; `torch` stands for the module."""

    def __init__(self, monkeypatch):
        self.events = []
        cuda = types.SimpleNamespace(
            synchronize=lambda *index: self.events.append("waits"),
            Event=self.event,
            is_initialized=lambda: True,
            device_count=lambda: 1,
            empty_cache=lambda: self.events.append("memory given back"),
        )
        self.torch = types.SimpleNamespace(cuda=cuda)
        monkeypatch.setitem(sys.modules, "torch", self.torch)
        monkeypatch.setattr(measure, "synchronizer", lambda job: cuda.synchronize)

    def event(self, enable_timing):
        assert enable_timing
        made = types.SimpleNamespace()
        made.record = lambda: self.events.append("mark")
        made.synchronize = lambda: self.events.append("waits for mark")
        made.elapsed_time = lambda other: 6.0 if other is not made else 0.0
        return made

    def does(self, what, answer=None):
        """A function that writes itself down."""
        return lambda *arguments, **named: self.events.append(what) or answer


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def test_a_span_on_a_gpu_begins_when_the_gpu_is_idle_and_its_end_has_passed_before_it_is_read(device):
    with clock.span("cuda:0") as elapsed:
        device.does("work")()
    assert device.events == ["waits", "mark", "work", "mark", "waits for mark"] and elapsed.ms == 6.0


def test_a_sample_is_the_mean_of_its_calls_and_holds_no_warm_up(device):
    assert clock.call_times_us(device.does("work"), "cuda:0", samples=2, calls_per_sample=3, warmup_calls=4) == [2000.0, 2000.0]
    sample = ["waits", "mark", *["work"] * 3, "mark", "waits for mark"]
    assert device.events == [*["work"] * 4, *sample, *sample]


def stamps(device, ends):
    """Windows that begin at 8 s and end so many seconds later as each of `ends` says in turn."""
    left = iter(ends)

    class Stamp:
        def __init__(self):
            device.events.append("began")

        def window(self):
            device.events.append("ended")
            return [8.0, 8.0 + next(left)]

    return Stamp


def test_the_window_of_further_calls_begins_idle_and_ends_when_the_last_of_them_is_done(device, monkeypatch):
    monkeypatch.setattr(longer, "Stamp", stamps(device, [longer.LEAST_S]))
    form = types.SimpleNamespace(timed_call=lambda job, loaded, run: device.does("call"))
    job = types.SimpleNamespace(runs=[{"new_tokens": 1}])
    (told,) = longer.windows(job, None, form, [{"new_tokens": 1, "timed_ms": [longer.LEAST_S * 1000 / 2]}])
    assert told["calls"] == 2 and device.events == ["waits", "began", "call", "call", "waits", "ended"]


@pytest.mark.parametrize(("ends", "calls"), [([1.5, 3.1], [10, 10]), ([0.3, 2.3, 2.5], [10, 90, 31]), ([2.5], [10])])
def test_a_window_that_ended_too_early_goes_on_with_more_calls_until_it_is_long_enough(device, monkeypatch, ends, calls):
    monkeypatch.setattr(longer, "Stamp", stamps(device, ends))
    form = types.SimpleNamespace(timed_call=lambda job, loaded, run: device.does("call"))
    job = types.SimpleNamespace(runs=[{"new_tokens": 1}])
    (told,) = longer.windows(job, None, form, [{"new_tokens": 1, "timed_ms": [300.0]}])
    assert told == {"new_tokens": 1, "calls": sum(calls), "at": [8.0, 8.0 + ends[-1]]}
    assert device.events == ["waits", "began", *(event for count in calls for event in [*["call"] * count, "waits", "ended"])]


def test_a_window_of_four_fifths_is_long_enough_and_one_of_no_time_makes_a_hundred_times_the_calls():
    enough = longer.ENOUGH * longer.LEAST_S
    assert enough == pytest.approx(2.4) and longer.calls_to_add(10, enough) == 0 and longer.calls_to_add(10, enough - 0.01) == 3
    assert longer.calls_to_add(10, 0.0) == 1000 and longer.calls_to_add(10, 0.04) == 740


def test_a_further_call_that_fails_is_told_and_fails_the_run_where_other_ranks_would_wait(device, monkeypatch):
    def fails():
        raise OSError("gone")

    form = types.SimpleNamespace(timed_call=lambda job, loaded, run: fails)
    arguments = types.SimpleNamespace(runs=[{"new_tokens": 1}]), None, form, [{"new_tokens": 1, "timed_ms": [300.0]}]
    assert longer.windows(*arguments) == [{"new_tokens": 1, "reason": "OSError: gone"}]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(longer.ranks.LaterCallFailed, match="one of 2 ranks: OSError: gone"):
        longer.windows(*arguments)


def test_all_ranks_add_as_many_calls_as_the_rank_whose_window_is_the_shortest(device, monkeypatch):
    monkeypatch.setattr(longer, "Stamp", stamps(device, [3.0, 3.3]))
    of_others = iter([[3.0, 1.5], [3.3, 3.2]])
    monkeypatch.setattr(longer.ranks, "gather", lambda seconds: next(of_others))
    form = types.SimpleNamespace(timed_call=lambda job, loaded, run: device.does("call"))
    (told,) = longer.windows(types.SimpleNamespace(runs=[{"new_tokens": 1}]), None, form, [{"new_tokens": 1, "timed_ms": [300.0]}])
    assert told["calls"] == 20


def test_the_time_to_the_first_token_begins_when_the_gpu_is_idle(device, monkeypatch):
    monkeypatch.setattr(token_times.time, "perf_counter", lambda: device.events.append("clock") or float(len(device.events)))

    def call(job, loaded, run, ids, streamer):
        device.events.append("call")
        streamer.clock = lambda: 0.0
        for _ in range(1 + run["new_tokens"]):
            streamer.put(None)

    job, loaded = types.SimpleNamespace(runs=[{"new_tokens": 2}]), types.SimpleNamespace(prompt_ids=None)
    told = token_times.measure_tokens(job, loaded, types.SimpleNamespace(call=call), [{"new_tokens": 2, "timed_ms": [token_times.SECONDS * 1000]}])
    assert "reason" not in told and device.events == ["waits", "clock", "call"]


def test_each_batch_of_a_workload_is_timed_from_an_idle_gpu_until_it_is_done_after_one_batch_that_is_not(device, monkeypatch):
    device.torch.no_grad = lambda: contextlib.nullcontext()
    items = [types.SimpleNamespace(number=number, new_tokens=1) for number in range(3)]
    kept = []
    outputs = types.SimpleNamespace(add=kept.append, resumed=False)
    monkeypatch.setattr(workload, "opened", lambda job, loaded: (None, outputs, items))
    monkeypatch.setattr(workload, "arguments_of", lambda job, tokenizer: {})
    monkeypatch.setattr(workload, "answer", lambda job, loaded, tokenizer, batch, arguments: device.events.append(len(batch)) or {"of": len(batch)})
    monkeypatch.setattr(workload, "result", lambda job, outputs: None)
    job = types.SimpleNamespace(prompt={"batch_size": 2}, options={"items": 3}, runs=[{"new_tokens": 1}])
    workload.run(job, None, lambda **event: None)
    assert device.events == [2, "waits", 2, "waits", "waits", 1, "waits"]
    assert [line["of"] for line in kept] == [2, 1], "the first batch is answered once more, without its time"


def test_an_engine_s_queue_is_timed_after_its_warm_up_of_turned_prompts_is_done(device, monkeypatch):
    items, prompts = [types.SimpleNamespace(number=number, new_tokens=5) for number in range(3)], {0: [1, 2], 1: [3, 4], 2: [5, 6]}
    monkeypatch.setattr(engine_queue, "opened", lambda job, loaded: (None, types.SimpleNamespace(resumed=False), items))
    monkeypatch.setattr(engine_queue, "arguments_of", lambda job, tokenizer: {"eos_token_id": [9]})
    monkeypatch.setattr(engine_queue, "prompts_of", lambda job, tokenizer, waiting: prompts)
    monkeypatch.setattr(engine_queue, "keep", lambda finished, *rest: list(finished))
    monkeypatch.setattr(engine_queue, "as_asked", lambda finished, waiting, ends: finished)
    monkeypatch.setattr(engine_queue, "result", lambda job, outputs: None)

    def finished(requests, ends):
        for request in requests:
            device.events.append(request)
            yield request

    job = types.SimpleNamespace(prompt={"batch_size": 2}, options={"items": 3}, runs=[{"new_tokens": 5}])
    engine_queue.run(job, types.SimpleNamespace(finished=finished), lambda **event: None)
    warm_up = [(0, [2, 1], engine_queue.WARM_UP_TOKENS), (1, [4, 3], engine_queue.WARM_UP_TOKENS)]
    assert device.events == [*warm_up, "waits", (0, [1, 2], 5), (1, [3, 4], 5), (2, [5, 6], 5)]


def test_an_offloaded_cache_is_timed_from_an_idle_gpu_after_a_call_that_is_not(device, monkeypatch):
    answers = [types.SimpleNamespace(shape=(1, 3)) for _ in range(3)]
    left = iter(answers)
    monkeypatch.setattr(kv_offload, "_generate", lambda *arguments: device.does("call", next(left))())
    times, kept = kv_offload._timed(types.SimpleNamespace(timed_runs=2), None, None, kv_offload.DEFAULT, 3)
    assert len(times) == 2 and kept == answers[1:] and device.events == ["waits", "call", "waits"] * 3


@pytest.mark.parametrize("full", [False, True])
def test_each_try_of_a_batch_gives_its_memory_back_before_the_next(device, monkeypatch, full):
    class Full(Exception):
        pass

    monkeypatch.setattr(kv_offload.compat, "out_of_memory_errors", lambda torch: (Full,))

    def generate(*arguments):
        if full:
            raise Full

    monkeypatch.setattr(kv_offload, "_generate", generate)
    assert kv_offload._fits(None, None, kv_offload.DEFAULT, 3) is not full and device.events == ["memory given back"]


class Ids:
    shape = (1, 4)

    def to(self, device):
        return self


@pytest.fixture
def loading(device, monkeypatch):
    """A job whose backend's engine and whose parts write themselves down."""
    loaded = backends.Engine(device="cuda:0", used={})
    loaded.close = device.does("closed")
    monkeypatch.setattr(actions, "check_arguments", device.does("arguments checked"))
    monkeypatch.setattr(backends, "find", lambda name: types.SimpleNamespace(load=device.does("load", loaded)))
    monkeypatch.setattr(actions.prompts, "token_ids", device.does("prompt", Ids()))
    monkeypatch.setattr(actions.time, "monotonic", device.does("clock", 0.0))
    model = {"path": "/nowhere"}
    job = types.SimpleNamespace(backend="x", form="y", device="cuda", prompt={}, model=model, reference=None, variant="published")
    phases = types.SimpleNamespace(run=lambda name, action: action(), stamp=lambda name, action: action())
    return job, types.SimpleNamespace(figures={}, measurements=[]), phases


def test_the_seconds_of_loading_end_when_the_weights_are_on_the_gpu(device, loading):
    actions.load(*loading, "/nowhere")
    assert device.events == ["clock", "load", "waits", "clock", "prompt"]


def test_an_engine_is_closed_once_whether_its_calls_end_well_or_not(device, loading):
    with actions.opened(*loading, "/nowhere"):
        assert "closed" not in device.events
    assert device.events.count("closed") == 1
    with pytest.raises(RuntimeError, match="a call broke"), actions.opened(*loading, "/nowhere"):
        raise RuntimeError("a call broke")
    assert device.events.count("closed") == 2


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_engine_that_is_loaded_is_closed_where_its_prompt_cannot_be_made(device, loading, monkeypatch, error):
    def broken(prompt, path):
        raise error("no tokenizer")

    monkeypatch.setattr(actions.prompts, "token_ids", broken)
    with pytest.raises(error, match="no tokenizer"), actions.opened(*loading, "/nowhere"):
        pass
    assert device.events == ["clock", "load", "waits", "clock", "closed"]


def test_how_fast_the_host_starts_an_operator_is_told_before_the_first_call_and_after_the_last(device, loading, monkeypatch):
    monkeypatch.setattr(actions.clock, "launch_us", lambda device_: device.events.append("starts") or float(device.events.count("starts")))
    monkeypatch.setattr(actions, "time_calls", device.does("calls"))
    monkeypatch.setattr(actions, "launch_device", lambda job, loaded: "cuda:0")
    monkeypatch.setattr(backends.Engine, "memory", lambda self, job: {"devices": [], "peak_rss_bytes": 1})
    job, result, phases = loading
    actions.measure_loaded(job, result, phases, types.SimpleNamespace(), "/nowhere")
    told = [event for event in device.events if event in ("arguments checked", "load", "starts", "calls")]
    assert told == ["arguments checked", "load", "starts", "calls", "starts"]
    assert result.launch_us == {"before": 1.0, "after": 2.0}


def test_the_memory_of_a_run_is_that_of_all_ranks(device, loading, monkeypatch):
    monkeypatch.setattr(actions.ranks, "gather", lambda value: [value, value])
    monkeypatch.setattr(actions, "time_calls", device.does("calls"))
    monkeypatch.setattr(actions, "launch_device", lambda job, loaded: "")
    monkeypatch.setattr(backends.Engine, "memory", lambda self, job: {"devices": ["a GPU"], "peak_rss_bytes": 5})
    job, result, phases = loading
    actions.measure_loaded(job, result, phases, types.SimpleNamespace(), "/nowhere")
    assert result.memory == {"devices": ["a GPU", "a GPU"], "peak_rss_bytes": 10}


@pytest.mark.parametrize(
    ("job_device", "engine_device", "initialised", "told"),
    [("cuda", "cpu", False, ""), ("cuda", "cpu", True, "cuda:0"), ("cuda", "cuda:1", True, "cuda:1"), ("cpu", "cpu", False, "cpu")],
)
def test_no_operator_is_started_on_a_gpu_that_another_process_works_on(device, job_device, engine_device, initialised, told):
    device.torch.cuda.is_initialized = lambda: initialised
    assert actions.launch_device(types.SimpleNamespace(device=job_device), types.SimpleNamespace(device=engine_device)) == told


def test_what_a_closed_engine_held_is_free_before_a_probe_looks_for_room(device, monkeypatch):
    monkeypatch.setattr(roof.gc, "collect", device.does("collected"))
    monkeypatch.setattr(roof.ranks, "gpus", lambda: [0])
    device.torch.cuda.device = lambda index: contextlib.nullcontext()
    roof._free_memory()
    assert device.events == ["collected", "waits", "memory given back"]


def test_the_memory_of_padded_sentences_is_told_before_the_first_call_and_after_the_last(device, monkeypatch):
    class Tokens:
        shape = (1, 2)

        def __getitem__(self, rows):
            return self

        def tolist(self):
            return [[5, 6]]

        def numel(self):
            return 2

    monkeypatch.setattr(padded_sentences.environment, "gpu_memory", device.does("memory", []))
    monkeypatch.setattr(padded_sentences, "timed_call", lambda *rest: device.does("call", ({"input_ids": Tokens(), "attention_mask": None}, Tokens())))
    monkeypatch.setattr(padded_sentences, "_tokenizer", lambda path: None)
    monkeypatch.setattr(padded_sentences, "padding_error", device.does("padding checked"))
    prompt = {"text": "a", "texts": ["a"], "batch_size": 1, "tokens": None}
    job = types.SimpleNamespace(runs=[{"new_tokens": 2}], warmup_runs=0, timed_runs=2, prompt=prompt, model={"path": ""}, device="cuda")
    padded_sentences.run(job, types.SimpleNamespace(answers=[], end_tokens=lambda: [6]), lambda **event: None)
    assert [event for event in device.events if event != "waits"] == ["memory", "call", "call", "call", "memory", "padding checked"]


@pytest.mark.parametrize(("job_device", "rank", "probed"), [("cuda", "0", True), ("cuda", "1", False), ("cpu", "0", False)])
def test_one_rank_alone_probes_the_gpu(monkeypatch, job_device, rank, probed):
    seen = []
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(actions.forms, "find", lambda name: types.SimpleNamespace(TIMES_RUNS=True))
    monkeypatch.setattr(actions, "measure_loaded", lambda *arguments: None)
    monkeypatch.setattr(actions, "measure_limits", lambda *arguments: seen.append(True))
    actions.run_measure(types.SimpleNamespace(form="generate", device=job_device), None, None, "/nowhere")
    assert bool(seen) is probed


def test_the_thread_of_a_stage_works_on_the_gpu_of_its_stage(device):
    """A span waits for the current GPU: on another one it would time nothing of the stage."""
    device.torch.cuda.set_device = lambda name: device.events.append(name)
    device.torch.no_grad = contextlib.nullcontext
    generation = pipeline_stages.Generation([types.SimpleNamespace(device="cuda:0"), types.SimpleNamespace(device="cuda:1")], 1, 1)
    generation.inboxes[1].put(None)
    generation.work(1)
    assert device.events == ["cuda:1"]


def test_a_value_is_handed_on_once_its_copy_has_arrived(device):
    device.torch.cuda.current_stream = lambda name: types.SimpleNamespace(synchronize=lambda: device.events.append(name))

    def value(place):
        return types.SimpleNamespace(device=place, is_cuda=place.startswith("cuda"), to=value)

    for target, awaited in (("cuda:1", ["cuda:0", "cuda:1"]), ("cpu", ["cuda:0"]), ("cuda:0", [])):
        device.events.clear()
        assert pipeline_stages._moved(value("cuda:0"), target).device == target and device.events == awaited
