"""Any JSON, any bytes, any job and any result: the door lets in what is within its limits, and a document comes back as it was written."""

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from bench import forms
from bench.job import KINDS, STATUSES, WITHOUT_RUNS, InvalidDocument, Job, Result, parse_job, parse_result, to_json
from scripts import results
from scripts.results import Record, door
from tests import synthetic
from tests.properties import holds_for

TEXTS = st.text(max_size=8)
NUMBERS = st.one_of(st.integers(-(10**18) + 1, 10**18 - 1), st.floats(-9e17, 9e17, allow_subnormal=False))
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
#: What a form or a backend may say: of few levels, so that a document around it stays within the door's.
FREE = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6).filter(
    lambda data: depth(data) < 6
)
OBJECTS = st.dictionaries(TEXTS, FREE, max_size=3)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
TIMES = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=4)

#: Data of which some lie beyond one of the door's limits.
TOO_MUCH = st.one_of(st.just(10**18), st.just(-(10**18)), st.just(1e18), st.just("x" * (door.LONGEST_TEXT + 1)), st.just(math.nan), st.just(math.inf))
ANY_DATA = st.recursive(PLAIN | TOO_MUCH, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=4)


def depth(data: object) -> int:
    """Lists and objects within each other."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def is_within(data: object) -> bool:
    """Are texts and numbers within the limits, by a rule of this test alone?"""
    if isinstance(data, dict):
        return all(is_within(key) and is_within(value) for key, value in data.items())
    if isinstance(data, list):
        return all(map(is_within, data))
    if isinstance(data, str):
        return len(data) <= 65536
    return isinstance(data, bool) or data is None or abs(data) < 10**18


def nested(data: object, levels: int) -> object:
    for level in range(levels):
        data = [data] if level % 2 else {"a": data}
    return data


@holds_for(fast=25, full=2000, data=ANY_DATA, levels=st.integers(0, 14))
def test_the_door_lets_in_exactly_the_data_within_its_limits_and_changes_none(data: object, levels: int) -> None:
    whole = nested(data, levels)
    text = json.dumps(whole, ensure_ascii=False).encode()
    if is_within(whole) and depth(whole) <= 12:
        assert door.parse(text) == whole
    else:
        with pytest.raises(door.Refused) as refused:
            door.parse(text)
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


@holds_for(fast=25, full=5000, data=st.binary(max_size=40) | st.text('[]{}":,.0123456789eE+-nulltrfas \\u', max_size=40).map(str.encode))
def test_the_door_takes_of_any_bytes_what_the_standard_library_takes_or_refuses_in_a_line(data: bytes) -> None:
    try:
        parsed = door.parse(data)
    except door.Refused as refused:
        assert "\n" not in str(refused) and len(str(refused)) < 300
    else:
        assert parsed == json.loads(data)


@holds_for(fast=25, full=500, content=st.binary(max_size=200), most_bytes=st.integers(0, 200))
def test_a_file_comes_through_the_door_whole_or_not_at_all(content: bytes, most_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "result.json"), Path(folder, "kept")
        source.write_bytes(content)
        if len(content) <= most_bytes:
            assert door.read(source, most_bytes) == content
            assert door.keep(source, target, most_bytes) and target.read_bytes() == content
        else:
            for let_in in (door.read, lambda path, most: door.keep(path, target, most)):
                with pytest.raises(door.Refused):
                    let_in(source, most_bytes)
            assert [path.name for path in Path(folder).iterdir()] == ["result.json"]


@st.composite
def jobs(draw: Callable) -> Job:
    kind = draw(st.sampled_from(KINDS))
    runs = st.fixed_dictionaries({"new_tokens": st.integers(1, 10_000), "arguments": OBJECTS})
    return Job(
        id=draw(TEXTS),
        kind=kind,
        **{name: draw(NAMES) for name in ("article", "case", "variant", "backend", "stack")},
        device=draw(st.sampled_from(["cuda", "cpu"])),
        device_count=draw(st.integers(1, 16)),
        model={**draw(OBJECTS), "weights": "random", "scale": "tiny", "path": draw(TEXTS)},
        load=draw(OBJECTS),
        prompt=draw(OBJECTS),
        runs=draw(st.lists(runs, min_size=0 if kind in WITHOUT_RUNS else 1, max_size=3)),
        warmup_runs=draw(st.integers(0, 9)),
        timed_runs=draw(st.integers(1, 99)),
        reference=draw(st.none() | TEXTS),
        tolerance=draw(st.none() | st.floats(0, 1)),
        form=draw(st.sampled_from(["generate", "batch", "workload", "pipeline-parallel"])),
        options=draw(OBJECTS),
    )


@st.composite
def guests(draw: Callable) -> Result:
    measurement = st.fixed_dictionaries({"new_tokens": st.integers(1, 999), "cold_ms": st.none() | st.floats(1, 9), "warmup_ms": TIMES, "timed_ms": TIMES})
    status = draw(st.sampled_from(STATUSES))
    return Result(
        id=draw(TEXTS),
        status=status,
        reason=draw(TEXTS.filter(bool)) if status != "ok" else "",
        load_s=draw(st.none() | st.floats(0, 1e6)),
        measurements=draw(st.lists(measurement, max_size=3)),
        used=draw(OBJECTS),
        figures=draw(OBJECTS),
        environment=draw(OBJECTS),
    )


def shuffled(data: Any, turn: int) -> Any:
    """The same data with the keys of its objects in another order."""
    if isinstance(data, dict):
        keys = list(data)
        order = keys[turn % (len(keys) or 1) :] + keys[: turn % (len(keys) or 1)]
        return {key: shuffled(data[key], turn + 1) for key in reversed(order)}
    return [shuffled(one, turn) for one in data] if isinstance(data, list) else data


@holds_for(fast=25, full=500, job=jobs())
def test_a_job_comes_back_as_it_was_written(job: Job) -> None:
    assert forms.find(job.form)
    assert parse_job(to_json(job)) == job


@holds_for(fast=25, full=500, result=guests())
def test_a_guests_answer_comes_back_as_it_was_written(result: Result) -> None:
    assert parse_result(to_json(result)) == result


@holds_for(fast=25, full=500, job=jobs(), turn=st.integers(0, 99), elsewhere=TEXTS)
def test_a_fingerprint_depends_neither_on_the_order_of_keys_nor_on_ids_and_places(job: Job, turn: int, elsewhere: str) -> None:
    fields = json.loads(to_json(job))
    again = shuffled({**fields, "id": elsewhere, "reference": elsewhere, "model": {**fields["model"], "path": elsewhere}}, turn)
    assert parse_job(json.dumps(again)).fingerprint() == job.fingerprint()


@holds_for(
    fast=25,
    full=500,
    job=jobs(),
    field=st.sampled_from(["load", "prompt", "options", "model", "warmup_runs", "timed_runs", "device_count", "case"]),
    value=PLAIN,
)
def test_a_fingerprint_changes_with_whatever_decides_what_is_measured(job: Job, field: str, value: object) -> None:
    fields = json.loads(to_json(job))
    kept = fields[field]
    fields[field] = {**kept, "another": value} if isinstance(kept, dict) else kept + ("x" if isinstance(kept, str) else 1)
    assume(fields[field] != kept)
    assert parse_job(json.dumps(fields)).fingerprint() != job.fingerprint()


@st.composite
def records(draw: Callable) -> Record:
    """Runs of the first article, as they are stored."""
    asked = synthetic.job(draw(NAMES), draw(st.integers(1, 4)), device=draw(st.sampled_from(["cuda", "cpu"])), new_tokens=(1, draw(st.integers(2, 300))))
    status = draw(st.sampled_from(STATUSES))
    record = synthetic.record(asked, draw(st.floats(1e-3, 1e6)), status=status, reason="" if status == "ok" else draw(TEXTS.filter(bool)))
    record.host["conditions"] = {**draw(OBJECTS), "marks": draw(st.lists(TEXTS, max_size=2))}
    if record.guest:
        record.guest.environment |= {"packages": draw(st.dictionaries(TEXTS, TEXTS, max_size=3))}
    return record


@holds_for(fast=15, full=1000, record=records())
def test_a_run_that_is_stored_is_read_again_as_it_was(record: Record) -> None:
    with tempfile.TemporaryDirectory() as runs:
        folder = Path(runs, record.id)
        results.store(folder, record)
        assert results.load(folder) == record


@holds_for(fast=20, full=1000, record=records(), place=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_stored_run_with_another_byte_is_read_or_refused_in_a_line(record: Record, place: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as runs:
        path = results.store(Path(runs, record.id), record)
        data = bytearray(path.read_bytes())
        data[place % len(data)] = byte
        path.write_bytes(data)
        try:
            results.load(path.parent)
        except InvalidDocument as error:
            assert "\n" not in str(error) and len(str(error)) < 500
