"""Requests that arrive over time, by a simulated clock and a simulated engine: who is answered when, and what each latency is."""

import dataclasses
import itertools
import json
import random
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.backends import vllm as backend
from bench.forms import arrivals, engine_queue, kept_answers, workload
from bench.job import Job
from bench.measuring.answers_file import Outputs
from bench.models import texts
from scripts import articles
from scripts.paths import ROOT
from tests.samples import a_job

STEP_S = 1.0


class Clock:
    """A clock that goes on only where somebody sleeps or works."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s: list[float] = []

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (arrivals, kept_answers):
        monkeypatch.setattr(module, "time", made)
    return made


def serving(items: int, order: str = "naive", **options: object) -> Job:
    runs = [{"new_tokens": 9, "arguments": {}}]
    return a_job(runs=runs, options={"seed": 0, "items": items, "order": order, "arrivals_per_s": 4, **options}, prompt={"text": "a", "batch_size": 2})


def at(monkeypatch: pytest.MonkeyPatch, *times_s: float) -> Job:
    """A job whose items arrive at these times."""
    monkeypatch.setattr(arrivals, "times_s", lambda job: list(times_s))
    return serving(len(times_s))


#: So that the same seed is the same load in every release of the kit.
TIMES_S = [0.122596, 0.470491, 1.289105]


def test_the_times_follow_from_the_seed_and_are_a_poisson_process() -> None:
    assert arrivals.times_s(serving(3)) == pytest.approx(TIMES_S, abs=1e-6)
    assert arrivals.times_s(serving(3)) == arrivals.times_s(serving(2)) + arrivals.times_s(serving(3))[2:]
    assert arrivals.times_s(serving(3)) != arrivals.times_s(serving(3, seed=1))
    times = arrivals.times_s(serving(20_000))
    gaps = [later - earlier for earlier, later in itertools.pairwise([0.0, *times])]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.03) and min(gaps) >= 0
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.06), "exponential gaps spread as much as their mean"


@pytest.mark.parametrize("rate", [0, -4, float("nan"), float("inf"), 0.0009, 1_000_001, 1e-300, True, "4", [4], 10**400])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"arrivals_per_s is .{1,60}, allowed is a number from 0.001 to 1,000,000$"):
        arrivals.times_s(serving(3, arrivals_per_s=rate))


def test_the_slowest_and_the_fastest_rates_are_allowed() -> None:
    assert [arrivals.per_s(serving(3, arrivals_per_s=rate)) for rate in (0.001, 1_000_000)] == [0.001, 1_000_000]


def test_what_arrives_over_time_cannot_be_sorted_first() -> None:
    with pytest.raises(ValueError, match="order is 'sorted', allowed for items that arrive over time is 'naive'"):
        workload.in_order(serving(2, "sorted"), None, [])
    assert workload.in_order(serving(2), None, [1, 2]) == [1, 2]


def test_a_workload_without_arrivals_is_as_it_was() -> None:
    job = serving(2, arrivals_per_s=None)
    assert arrivals.of(job, {0: "a", 1: "b"}, resumed=False) is None and arrivals.figures(job, None) == {}
    article = articles.find("batch-generate")
    over_time = {case.name for case in article.cases if "arrivals_per_s" in article.options_of(case, "controlled", "full")}
    others = {"serving-static-1", "serving-static-1-without-cudnn", "serving-vllm-1", "serving-vllm-16"}
    assert over_time == {"serving-static", "serving-vllm", *others}


def test_what_arrives_over_time_is_refused_where_several_processes_would_each_make_batches_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "5.17.0")
    words = "arrivals_per_s is 4: each of 2 processes would batch by its own clock and wait for the others; take GPUS=1 or a backend of one process"
    several = dataclasses.replace(serving(2), backend="deepspeed", device_count=2)
    assert workload.unsupported(several) == words
    allowed = ({"device_count": 1}, {"backend": "transformers"}, {"options": {**several.options, "arrivals_per_s": None}})
    assert [workload.unsupported(dataclasses.replace(several, **change)) for change in allowed] == [""] * 3


def in_batches(job: Job, clock: Clock, folder: Path, size: int = 2, numbers: tuple[int, ...] | None = None) -> Outputs:
    """The outputs after static batches, each of which takes STEP_S."""
    outputs = Outputs(str(folder), "a job")
    items = {number: SimpleNamespace(number=number) for number in (numbers or range(job.options["items"]))}

    def call(batch: list) -> tuple[float, dict[str, Any]]:
        clock.now_s += STEP_S
        return 0.0, {"items": [[item.number, 1, "a"] for item in batch]}

    workload.answer_over_time(arrivals.of(job, items, outputs.resumed), size, call, outputs, lambda count: None)
    return outputs


def numbers_of(outputs: Outputs) -> list[list[int]]:
    return [[item[0] for item in line["items"]] for line in outputs.batches]


def test_a_static_batch_holds_what_has_arrived_when_the_one_before_has_ended(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = at(monkeypatch, 0.5, 0.75, 1.0, 1.25, 1.5, 20.0)
    outputs = in_batches(job, clock, tmp_path, size=3)
    assert numbers_of(outputs) == [[0], [1, 2, 3], [4], [5]], "at least one, at most three, and none before it has come"
    assert [line["ms"] for line in outputs.batches] == [1500, 1000, 1000, 17_500], "waiting included, so that they are the whole time"
    assert [line["latency_ms"] for line in outputs.batches] == [[1000], [1750, 1500, 1250], [2000], [1000]]
    assert clock.slept_s == [0.5, 16.5], "it sleeps until the next one comes, and only where none has come"
    figure = arrivals.figures(job, outputs)["latency"]
    assert figure["p95_ms"] == pytest.approx(1937.5) and figure["p99_ms"] == pytest.approx(1987.5), "linear percentiles"
    assert figure["each_ms"] == [1000, 1750, 1500, 1250, 2000, 1000], "the samples that the percentiles follow from"
    told = {name: value for name, value in figure.items() if not name.startswith("p9") and name != "each_ms"}
    assert told == {"arrivals_per_s": 4, "items": 6, "median_ms": 1375, "longest_ms": 2000, "offered_s": 20.0, "finished_s": 21.0}


def test_a_sleep_that_ends_too_soon_is_followed_by_another(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a batch would have no item."""
    monkeypatch.setattr(clock, "sleep", lambda seconds: Clock.sleep(clock, max(seconds / 2, 0.125)))
    coming = arrivals.Arrivals({0: "a"}, {0: 1.0})
    coming.start()
    coming.wait()
    assert coming.due() == ["a"] and clock.slept_s == [0.5, 0.25, 0.125, 0.125]


def test_a_resumed_run_keeps_its_latencies_and_tells_none(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = at(monkeypatch, 1.0, 50.0, 50.25)
    before = Outputs(str(tmp_path), "a job")
    before.add({"items": [[0, 1, "a"]], "ms": 2000.0, "latency_ms": [1000.0]})
    before.close()
    outputs = in_batches(job, clock, tmp_path, numbers=(1, 2))
    assert clock.slept_s == [], "the next item comes at once; nobody waits again for what came before"
    assert [line["latency_ms"] for line in outputs.batches] == [[1000.0], [1000.0], [1750.0]]
    assert arrivals.figures(job, outputs)["latency"] == {
        "arrivals_per_s": 4,
        "items": 3,
        "reason": "the run went on after a stop, so no request saw the whole load",
    }


def test_each_latency_stands_at_its_item_s_number_in_whatever_order_they_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = SimpleNamespace(batches=[{"items": [[1, 9, "a"], [0, 9, "a"]], "latency_ms": [500.0, 1500.0]}], resumed=False)
    figure = arrivals.figures(at(monkeypatch, 1.0, 4.0), outputs)["latency"]
    assert (figure["each_ms"], figure["finished_s"]) == ([1500.0, 500.0], 4.5)


class LlmEngine:
    """A step takes STEP_S and makes a token of each of the first two requests, which end after as many as they asked for."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.running, self.added_s, self.idle_steps = clock, dict[str, list[int]](), list[float](), 0

    def add_request(self, name: str, prompt: dict, asked: SimpleNamespace) -> None:
        self.added_s.append(self.clock.now_s - 100.0)
        self.running[name] = [asked.max_tokens, 0]

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def step(self) -> list[SimpleNamespace]:
        self.idle_steps += not self.running
        self.clock.now_s += STEP_S
        for one in list(self.running.values())[:2]:
            one[1] += 1
        ended = {name: made for name, (most, made) in self.running.items() if made == most}
        self.running = {name: one for name, one in self.running.items() if name not in ended}
        return [SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=[5] * made)]) for name, made in ended.items()]


@pytest.fixture
def engine(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> LlmEngine:
    sampling = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=2))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=lambda **asked: SimpleNamespace(**asked), sampling_params=sampling))
    return LlmEngine(clock)


def through(engine: LlmEngine, job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]) -> tuple[dict[str, Any], Outputs]:
    """(figures, outputs) of the form `engine-queue` on this engine, whose items ask for so many tokens."""
    outputs = Outputs(str(folder), "a job")
    waiting = [SimpleNamespace(number=number, new_tokens=length) for number, length in enumerate(lengths)]
    tokenizer = SimpleNamespace(decode=lambda tokens, skip_special_tokens: str(tokens))
    monkeypatch.setattr(engine_queue, "opened", lambda job, loaded: (tokenizer, outputs, waiting))
    monkeypatch.setattr(engine_queue, "arguments_of", lambda job, tokenizer: {"eos_token_id": [9]})
    monkeypatch.setattr(engine_queue, "prompts_of", lambda job, tokenizer, items: {item.number: [1, 2] for item in items})
    monkeypatch.setattr(engine_queue.measure, "synchronizer", lambda job: lambda: None)
    monkeypatch.setattr(engine_queue, "WARM_UP_TOKENS", 1)
    loaded = backend.Vllm(llm=SimpleNamespace(llm_engine=engine))
    _, _, figures = engine_queue.run(job, loaded, lambda **event: None)
    return figures, outputs


def test_an_engine_gets_each_request_in_its_time_while_it_steps_and_sleeps_only_without_work(
    clock: Clock, engine: LlmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = at(monkeypatch, 0.5, 0.75, 2.0, 30.0)
    figures, outputs = through(engine, job, tmp_path, monkeypatch, lengths=(3, 2, 1, 1))
    latency_ms = {item[0]: ms for line in outputs.batches for item, ms in zip(line["items"], line["latency_ms"], strict=True)}
    began_s = engine.added_s[1] + STEP_S  # two items warm it up, and take a step
    assert [added_s - began_s for added_s in engine.added_s[2:]] == [0.5, 1.5, 2.5, 30.0], "as soon as a step has ended"
    assert latency_ms == {0: 3000.0, 1: 2750.0, 2: 2500.0, 3: 1000.0}
    assert clock.slept_s == [0.5, 25.5] and engine.idle_steps == 0
    assert figures["latency"]["finished_s"] == figures["workload"]["seconds"] == 31.0
    assert (figures["latency"]["offered_s"], figures["latency"]["longest_ms"]) == (30.0, 3000.0)


def test_an_engine_that_has_all_texts_from_the_start_gets_them_at_once_and_writes_no_latency(
    clock: Clock, engine: LlmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures, outputs = through(engine, serving(3, arrivals_per_s=None), tmp_path, monkeypatch, lengths=(3, 2, 1))
    assert engine.added_s[2:] == [STEP_S] * 3 and clock.slept_s == [] and "latency" not in figures
    assert [sorted(line) for line in outputs.batches] == [["decode_rows", "items", "ms", "padded_prompt_tokens", "prompt_tokens"]] * len(outputs.batches)


def test_the_first_line_s_time_begins_with_the_clock_of_the_latencies(clock: Clock, tmp_path: Path) -> None:
    outputs, coming = Outputs(str(tmp_path), "a job"), arrivals.Arrivals({0: "a"}, {0: 0.0})
    coming.start()
    clock.now_s += 2
    coming.answered([0])
    kept_answers.keep(iter([(0, [5])]), outputs, SimpleNamespace(decode=lambda tokens, skip_special_tokens: ""), {0: 1}, lambda count: None, coming)
    assert (outputs.batches[0]["ms"], outputs.batches[0]["latency_ms"]) == (2000.0, [2000.0])


def test_each_answer_of_a_line_has_its_own_latency_in_whatever_order_they_come(clock: Clock, tmp_path: Path) -> None:
    outputs, coming = Outputs(str(tmp_path), "a job"), arrivals.Arrivals({0: "a", 1: "b"}, {0: 0.0, 1: 1.0})
    coming.start()
    clock.now_s += 1.5
    coming.answered([1, 0])
    kept_answers.keep(
        iter([(1, [5]), (0, [5])]), outputs, SimpleNamespace(decode=lambda tokens, skip_special_tokens: ""), {0: 1, 1: 1}, lambda count: None, coming
    )
    assert [item[0] for item in outputs.batches[0]["items"]] == [1, 0] and outputs.batches[0]["latency_ms"] == [500.0, 1500.0]


def test_the_second_of_two_answers_of_a_step_does_not_wait_for_the_first_to_be_written(
    clock: Clock, engine: LlmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were on the host when the step ended."""
    line = kept_answers._line

    def slow(*parts: Any) -> dict[str, Any]:
        clock.now_s += 7
        return line(*parts)

    monkeypatch.setattr(kept_answers, "WRITE_ITEMS", 1)
    monkeypatch.setattr(kept_answers, "_line", slow)
    _, outputs = through(engine, at(monkeypatch, 0.5, 0.5), tmp_path, monkeypatch, lengths=(1, 1))
    assert [line["latency_ms"] for line in outputs.batches] == [[1000.0], [1000.0]]


def times_left(monkeypatch, batches, options, waiting=400):
    """[(items done, seconds left)] as a run of 400 items tells them, of which so many wait; `batches`: [(items, second in which they are done)]."""
    now, told = [1000.0], []
    monkeypatch.setattr(workload.time, "monotonic", lambda: now[0])
    asked = SimpleNamespace(options={"items": 400, **options}, runs=[{"new_tokens": 256}])
    progress = workload.Progress(lambda **event: told.append(event), asked, waiting=range(waiting))
    for items, at in batches:
        now[0] = 1000.0 + at
        progress(items)
    return [(event["done"], event["left_s"]) for event in told]


@pytest.mark.parametrize(("options", "left_s"), [({"arrivals_per_s": 4}, [None, 40.0, 0.2, 0.0]), ({}, [120.0, 60.0, 0.3, 0.0])])
def test_time_left_counts_from_the_end_of_the_first_batch_where_items_arrive_over_time(monkeypatch, options, left_s):
    """The first batch ended after 40 s, in which the process waited for its items."""
    told = times_left(monkeypatch, [(100, 40.0), (100, 60.0), (199, 99.8), (1, 100.0)], options)
    assert told == list(zip([100, 200, 399, 400], left_s, strict=True))


@pytest.mark.parametrize(("options", "left_s"), [({"arrivals_per_s": 4}, [None, 20.0]), ({}, [60.0, 30.0])])
def test_time_left_of_a_run_that_goes_on_counts_its_own_items_alone(monkeypatch, options, left_s):
    assert times_left(monkeypatch, [(50, 20.0), (50, 30.0)], options, waiting=200) == list(zip([250, 300], left_s, strict=True))


@pytest.mark.parametrize("options", [{"arrivals_per_s": 4}, {}])
def test_nothing_is_left_after_a_first_batch_of_all_items(monkeypatch, options):
    assert times_left(monkeypatch, [(400, 20.0)], options) == [(400, 0.0)]


@pytest.mark.parametrize(
    ("run", "sizes", "ms_a_step"),
    [
        ("serving-static-1.controlled.b64.current.random-full.cuda1.nvidia-h200.f980d636d135-01", [1, 5, 12, 35, 18, 29], [86, 91, 99, 80, 93, 105]),
        (
            "serving-static-1-without-cudnn.controlled.b64.current.random-full.cuda1.nvidia-h200.6f467a6063ff-01",
            [1, 1, 5, 5, 6, 13, 16, 9, 12, 13, 16, 3],
            [39, 29, 35, 39, 42, 39, 47, 49, 45, 39, 43, 34],
        ),
        (
            "serving-static.controlled.b64.current.random-full.cuda1.nvidia-h200.8635440feb13-01",
            [1, 22, 64, 64, 61, 64, 64, 44, 16],
            [73, 96, 35, 38, 91, 43, 36, 90, 115],
        ),
    ],
)
def test_the_sizes_of_committed_static_batches_follow_from_arrivals_and_times(run: str, sizes: list[int], ms_a_step: list[int]) -> None:
    folder = ROOT / f"reports/runs/batch-generate.{run}"
    told, result = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("job.json", "result.json"))
    job = SimpleNamespace(options=told["options"])
    arrive_s, ended_s, of_batches = arrivals.times_s(job), 0.0, []
    for ms in result["guest"]["measurements"][0]["timed_ms"]:
        first = sum(size for size, _, _ in of_batches)
        began_s = max(ended_s, arrive_s[first])  # a call has the wait for its first item in it
        ended_s += ms / 1000
        size = sum(at_s <= began_s for at_s in arrive_s[first : first + told["prompt"]["batch_size"]])
        steps = max(new_tokens_of(job, number) for number in range(first, first + size))
        of_batches.append((size, steps, (ended_s - began_s) * 1000 / steps))
    assert [size for size, _, _ in of_batches] == sizes and [round(ms) for _, _, ms in of_batches] == ms_a_step
    workload_of_run = result["guest"]["figures"]["workload"]
    assert (sum(sizes), sum(size * steps for size, steps, _ in of_batches)) == (workload_of_run["items"], workload_of_run["decode_rows"])


def new_tokens_of(job: Any, number: int) -> int:
    """As `workload` of bench/models/texts.py draws them."""
    draw = random.Random(f"{job.options['seed']}:{number}")
    _, new_tokens = (texts.length(draw, job.options[of]) for of in ("prompt_tokens", "answer_tokens"))
    return new_tokens
