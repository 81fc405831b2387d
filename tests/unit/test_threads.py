"""The instrument of tensor_parallel's threads: what it replaces in each way, and that it puts everything back. tests/guest runs it on the library itself."""

import sys
import types

import pytest

from bench.instruments import rounds, threads


class CollectiveOperation:
    def __init__(self, world_size, func):
        self.world_size, self.func = world_size, func

    def __call__(self, x, rank):
        return "met"


class NCCLAllReduce(CollectiveOperation):
    pass


class AllReduce:
    def __call__(self, x, rank):
        return "met"


class NCCLAllGather(CollectiveOperation):
    pass


class AllGather:
    parts = (None, None)

    def gather_op(self, parts, device):
        return [*parts, device]

    def __call__(self, x, rank):
        return "met"


OPERATIONS = types.SimpleNamespace(
    CollectiveOperation=CollectiveOperation, NCCLAllReduce=NCCLAllReduce, AllReduce=AllReduce, NCCLAllGather=NCCLAllGather, AllGather=AllGather
)


CPU = types.SimpleNamespace(type="cpu")


def library():
    return types.SimpleNamespace(parallel_apply="torch's", parallel_apply_simple="its own")


def says(way):
    """What a sum, a gather and an operation of a model's own give in a way."""
    part = types.SimpleNamespace(device="cpu")
    with threads.done(way, library(), OPERATIONS):
        own = CollectiveOperation(2, lambda *parts: [(rank, *parts) for rank in range(2)])
        return NCCLAllReduce(2, None)("x", 1), AllReduce()("x", 1), AllGather()(part, 1) == [part, part, "cpu"], own("x", 1)


@pytest.mark.parametrize("way", threads.WAYS)
def test_parts_are_left_as_they_are_where_no_thread_waits_for_another(way):
    met = way in ("library", "switching")
    assert says(way) == (("met", "met", False, "met") if met else ("x", "x", True, (1, "x", "x")))
    assert NCCLAllReduce(2, None)("x", 0) == AllReduce()("x", 0) == "met", "everything is put back"
    assert "__call__" not in vars(NCCLAllReduce)


@pytest.mark.parametrize(("way", "driven"), [("one-thread", [0, 1, 2]), ("alone", [0]), ("left-out", None), ("library", None)])
def test_one_thread_drives_all_gpus_or_the_first_one(way, driven):
    drove, of_library = [], library()
    modules = [lambda x, rank=rank, scale=1: drove.append(rank) or (rank, x * scale) for rank in range(3)]
    with threads.done(way, of_library, OPERATIONS):
        applies = (of_library.parallel_apply, of_library.parallel_apply_simple)
    assert (of_library.parallel_apply, of_library.parallel_apply_simple) == ("torch's", "its own")
    if driven is None:
        assert applies == ("torch's", "its own")
        return
    for apply in applies:
        drove.clear()
        outputs = apply(modules, [(1,), (2,), (3,)], [{"scale": 2}] * 3, [CPU] * 3)
        assert drove == driven
        assert outputs == ([(0, 2), (1, 4), (2, 6)] if way == "one-thread" else [(0, 2)] * 3), "each of the shards has an output"
    assert applies[0](modules, [(1,)] * 3, None, [CPU] * 3)[0] == (0, 1)


def test_a_way_s_time_is_the_median_of_its_calls_and_of_its_rounds(monkeypatch):
    calls_ms = iter([9.0, 1.0, 2.0, 5.0, 3.0])
    monkeypatch.setattr(threads.measure, "elapsed_ms", lambda call, synchronize: (next(calls_ms), None))
    assert threads.median_ms(None, None) == 3.0 and next(calls_ms, None) is None
    rounds_ms = {way: iter([100.0, 9.0, 1.0, 2.0, 5.0, 3.0]) for way in threads.WAYS}
    ways = threads.timed_and_traced(lambda way: next(rounds_ms[way]), str.upper, lambda ways: None)
    assert {(way["ms_a_call"], *way["rounds"]) for way in ways} == {(3.0, 9.0, 1.0, 2.0, 5.0, 3.0)}


def test_what_was_timed_is_kept_before_a_profiler_may_fail():
    kept = []

    def failing(way):
        assert len(kept) == 1
        raise RuntimeError(way)

    with pytest.raises(RuntimeError, match="library"):
        threads.timed_and_traced(len, failing, lambda ways: kept.append([dict(way) for way in ways]))
    assert kept == [[{"way": way, "ms_a_call": len(way), "rounds": [len(way)] * rounds.ROUNDS} for way in threads.WAYS]]
    kept.clear()
    ways = threads.timed_and_traced(len, str.upper, lambda ways: kept.append([dict(way) for way in ways]))
    assert kept[-1] == ways and [way["devices"] for way in ways] == [way.upper() for way in threads.WAYS]


def test_python_s_switch_interval_changes_in_one_way_and_is_put_back_after_an_error():
    kept = sys.getswitchinterval()
    with pytest.raises(RuntimeError), threads.done("switching", library(), OPERATIONS):
        assert sys.getswitchinterval() == pytest.approx(threads.SWITCH_INTERVAL_S)
        raise RuntimeError
    assert sys.getswitchinterval() == kept
    with threads.done("left-out", library(), OPERATIONS):
        assert sys.getswitchinterval() == kept


def test_ways_take_turns_in_an_order_that_alternates_and_the_first_round_is_left_out():
    order = []
    taken = rounds.in_turn(("a", "b"), lambda way: order.append(way) or len(order))
    assert order == ["b", "a", "a", "b"] * 3
    assert taken == {"a": [3, 6, 7, 10, 11], "b": [4, 5, 8, 9, 12]}
