"""The clock: what is called, in which order, and which samples come out."""

import subprocess
import sys
import types

import pytest

from bench import actions
from bench.measuring import clock, environment, measure


class Recorder:
    """A model, a device and a clock that write down what happens to them; each call takes the next duration."""

    def __init__(self, durations_s, new_tokens=1):
        self.durations, self.new_tokens, self.now, self.events = list(durations_s), new_tokens, 0.0, []

    def generate(self):
        self.events.append("generate")
        self.now += self.durations.pop(0)
        return self.new_tokens

    def synchronize(self):
        self.events.append("sync")

    def clock(self):
        self.events.append("clock")
        return self.now


def run(recorder, **changes):
    arguments = {"new_tokens": 1, "warmup_runs": 2, "timed_runs": 3, "cold": True, **changes}
    return measure.measure(recorder.generate, synchronize=recorder.synchronize, clock=recorder.clock, **arguments)


def test_the_cold_call_the_warm_ups_and_the_timed_calls_are_kept_apart():
    samples = run(Recorder([9, 3, 2, 1, 1, 2]))
    samples.pop("timed_at")
    assert samples == {"new_tokens": 1, "cold_ms": 9000, "warmup_ms": [3000, 2000], "timed_ms": [1000, 1000, 2000]}


def test_devices_are_awaited_before_the_clock_starts_and_before_it_stops():
    recorder = Recorder([1])
    run(recorder, cold=False, warmup_runs=0, timed_runs=1)
    assert recorder.events == ["sync", "clock", "generate", "sync", "clock"]


def test_a_later_run_has_no_cold_call():
    assert run(Recorder([1, 1, 1, 1, 1]), cold=False)["cold_ms"] is None


def test_a_call_that_makes_another_number_of_tokens_has_no_time():
    with pytest.raises(measure.WrongTokenCount, match="1 new tokens were asked for, 2 came"):
        run(Recorder([1] * 6, new_tokens=2))


def test_progress_is_told_between_the_calls_only():
    recorder, told = Recorder([1] * 6), []
    run(recorder, progress=lambda *event: told.append((event, recorder.events[-1])))
    assert [event for event, _ in told] == [("warmup", 1, 2), ("warmup", 2, 2), ("timed", 1, 3), ("timed", 2, 3), ("timed", 3, 3)]
    assert {last for _, last in told} == {"clock"}


def test_the_window_of_the_timed_calls_leaves_out_what_came_before_them(monkeypatch):
    recorder = Recorder([9, 3, 2, 1, 1, 2])
    monkeypatch.setattr(clock, "time", types.SimpleNamespace(time=lambda: 1000 + recorder.now, monotonic=lambda: recorder.now))
    assert run(recorder)["timed_at"] == [1014, 1018]


def test_over_ranks_the_window_holds_all_of_them():
    calls = {"new_tokens": 1, "cold_ms": None, "warmup_ms": [], "timed_ms": [1]}
    merged = measure.slowest_of_ranks([{**calls, "timed_at": [5, 8]}, {**calls, "timed_at": [4, 7]}])
    assert merged["timed_at"] == [4, 8]


def test_over_ranks_the_slowest_counts_call_by_call():
    one = {"new_tokens": 1, "cold_ms": 5, "warmup_ms": [1, 4], "timed_ms": [1, 8]}
    other = {"new_tokens": 1, "cold_ms": 4, "warmup_ms": [2, 3], "timed_ms": [2, 7]}
    assert measure.slowest_of_ranks([one, other]) == {"new_tokens": 1, "cold_ms": 5, "warmup_ms": [2, 4], "timed_ms": [2, 8]}


def test_packages_are_told_by_their_normalised_names_and_of_two_with_one_name_the_one_that_python_finds_first(monkeypatch):
    found = [types.SimpleNamespace(metadata={"Name": name}, version=version) for name, version in (("Typing_Extensions", "2"), ("typing-extensions", "1"))]
    nameless = types.SimpleNamespace(metadata={"Name": None}, version="3")
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [*found, nameless, types.SimpleNamespace(metadata={"Name": "attrs"}, version="4")])
    assert list(environment.packages().items()) == [("attrs", "4"), ("typing-extensions", "2")]


def test_settings_between_gpus_are_told_and_of_a_path_only_that_it_is_one(monkeypatch):
    monkeypatch.setattr(
        environment.os, "environ", {"NCCL_P2P_DISABLE": "1", "NCCL_TOPO_FILE": "/home/somebody/topo.xml", "HOME": "/home/somebody", "MY_NCCL_": "1"}
    )
    assert environment.between_gpus() == {"NCCL_P2P_DISABLE": "1", "NCCL_TOPO_FILE": "a path"}


def test_a_wall_clock_that_is_set_back_changes_no_window(monkeypatch):
    now = types.SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: 50.0)
    monkeypatch.setattr(clock, "time", now)
    since = clock.Stamp()
    now.time, now.monotonic = lambda: 400.0, lambda: 57.5
    assert since.window() == [1000.0, 1007.5]


@pytest.mark.parametrize(("initialised", "awaited"), [(True, [0, 1]), (False, [])])
def test_a_process_whose_engine_works_in_others_neither_awaits_nor_touches_a_gpu(monkeypatch, initialised, awaited):
    seen = []
    read = dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), lambda index: 7 + index)
    cuda = types.SimpleNamespace(is_initialized=lambda: initialised, device_count=lambda: 2, synchronize=seen.append, **read)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    job = types.SimpleNamespace(device="cuda")
    measure.synchronizer(job)()
    assert seen == awaited
    told = environment.gpu_memory(job)
    assert [(one["device"], one["peak_reserved_bytes"]) for one in told] == [(f"cuda:{index}", 7 + index) for index in awaited]


def test_each_count_of_a_gpu_s_memory_is_torch_s_own_of_that_name(monkeypatch):
    counts = {"memory_allocated": 1, "max_memory_allocated": 2, "memory_reserved": 3, "max_memory_reserved": 4}
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, **{name: lambda index, count=count: count for name, count in counts.items()}
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    told = environment.gpu_memory(types.SimpleNamespace(device="cuda"))
    assert told == [{"device": "cuda:0", "allocated_bytes": 1, "peak_allocated_bytes": 2, "reserved_bytes": 3, "peak_reserved_bytes": 4}]


#: Holds 64 MiB at its peak, starts another process like itself while `argv[1]` is above 1, and ends with its standard input.
HOLDS = """
import subprocess, sys
held = b"x" * (64 << 20)
del held
if int(sys.argv[1]) > 1:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(int(sys.argv[1]) - 1), sys.argv[2]], stdin=sys.stdin, stdout=subprocess.PIPE)
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_peaks_of_a_process_and_of_all_that_it_started_are_summed():
    own_bytes = environment.peak_rss_bytes()
    before_bytes, before = environment.peak_rss_of_all()
    command = [sys.executable, "-c", HOLDS, "2", HOLDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        peaks_bytes, processes = environment.peak_rss_of_all()
        child.stdin.close()
    assert processes == before + 2 and before_bytes >= own_bytes > 1 << 20
    assert 2 * (64 << 20) < peaks_bytes - before_bytes < 2 * (256 << 20)


def test_over_ranks_the_processes_of_an_engine_are_summed_and_a_rank_that_counts_none_is_one():
    ranks = [{"devices": [], "peak_rss_bytes": 3, "processes": 4}, {"devices": [], "peak_rss_bytes": 4}]
    assert actions.memory_of_ranks(ranks) == {"devices": [], "peak_rss_bytes": 7, "processes": 5}
