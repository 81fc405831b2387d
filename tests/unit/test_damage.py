"""Damaged results under the runs folder: each is named, and the report is made of all the others."""

import copy
import functools
import json
import operator
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.job import to_json
from scripts import paths, results
from tests import reports, synthetic

COMMITTED = (results.RUNS, results.WITHOUT_CONTAINERS)

#: A committed result with the figures that no committed result has yet.
PROBED = "inference-tools.deepspeed.controlled.current"

#: A committed result of each kind of figures, by the beginning of its id.
KINDS = (
    "inference-tools.deepspeed.published.hopper",
    "batch-generate.batch.controlled.b2.",
    "batch-generate.padding",
    "batch-generate.workload-naive",
    "deepspeed-inference.ds-inference.published.b8",
    "deepspeed-inference.fusion-deepspeed",
    "deepspeed-inference.schedule-2",
    "deepspeed-inference.kv-offload",
    "deepspeed-inference.gptj-deepspeed.published.profile",
    PROBED,
)


def fields_of(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The path of every field of a JSON document; of a list the first item's, of a guest's packages the table alone."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*path, name)
        if name != "packages":
            yield from fields_of(one, (*path, name))


def drop(parent: Any, key: Any, draw: random.Random) -> None:
    del parent[key]


def retype(parent: Any, key: Any, draw: random.Random) -> None:
    parent[key] = draw.choice([None, True, -1, 0, "text", [], {}, [None], {"a": 1}])


def nest(parent: Any, key: Any, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 20, 300])):
        parent[key] = draw.choice([[parent[key]], {"a": parent[key]}])


def overflow(parent: Any, key: Any, draw: random.Random) -> None:
    parent[key] = draw.choice([1e300, -1e300, 10**40, 1e-320, "x" * 100_000, [1e17] * 100])


DAMAGES = (drop, retype, nest, overflow)


def a_committed(kind: str) -> dict:
    path = sorted(path for runs in COMMITTED for path in runs.glob(f"{kind}*/result.json"))[0]
    return json.loads(to_json(synthetic.probed(results.load(path.parent)))) if kind == PROBED else json.loads(path.read_text())


def damaged(whole: dict, damage: Callable, draw: random.Random, number: int) -> dict:
    """A copy of a result under a number of its own, with one of its fields damaged."""
    document = json.loads(json.dumps(whole).replace(whole["id"], f"{whole['id'][:-2]}{number}"))
    for measured in (document.get("guest") or {}).get("measurements", []):
        measured["timed_ms"][:1] = [ms + number * 1e-6 for ms in measured["timed_ms"][:1]]  # a copy would be left out
    path = draw.choice([path for path in fields_of(document) if path != ("id",)])
    damage(functools.reduce(operator.getitem, path[:-1], document), path[-1], draw)
    return document


def put(runs: Path, name: str, text: str) -> None:
    (runs / name).mkdir(parents=True)
    (runs / name / "result.json").write_text(text)


@pytest.mark.slow
def test_the_report_comes_out_of_the_results_that_are_whole_and_names_all_others(tmp_path: Path) -> None:
    draw, runs, hurt = random.Random("damage"), tmp_path / "runs", []
    whole = [a_committed(kind) for kind in KINDS]
    for one in whole:
        put(runs, one["id"], json.dumps(one))
    for number in range(100, 136):
        document = damaged(whole[number % len(whole)], DAMAGES[number % len(DAMAGES)], draw, number)
        hurt.append(f"{whole[number % len(whole)]['id'][:-2]}{number}")
        put(runs, hurt[-1], json.dumps(document))
    put(runs, "a.cut-01", json.dumps(whole[0])[:500])
    put(runs, "a.deep-01", "[" * 100_000)
    _, skipped = results.load_runs(runs)
    assert len(skipped) > 15, "most damages are seen"

    done = subprocess.run([sys.executable, "-m", "scripts", "report", "--runs", runs, "--out", tmp_path], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-2000:]
    text = reports.text_of(tmp_path)
    page, _, left_out = text.partition('<a id="skipped"></a>')
    names = {one.path.name for one in skipped}
    assert all((name in left_out) == (name in names) for name in hurt)
    assert all(one["id"] in page for one in whole), "whole results have their rows"
    assert all("\n" not in one.reason and len(one.reason) < 500 for one in skipped)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES, ids=[one.__name__ for one in DAMAGES])
def test_reading_a_damaged_result_never_ends_in_another_error(kind: str, damage: Callable) -> None:
    import importlib

    from scripts.results import door

    store = importlib.import_module("scripts.results.store")

    whole, draw = a_committed(kind), random.Random(kind)
    for path in fields_of(whole):
        document = copy.deepcopy(whole)
        damage(functools.reduce(operator.getitem, path[:-1], document), path[-1], draw)
        try:
            store.record_of(door.parse(json.dumps(document).encode()))
        except results.InvalidDocument as error:
            assert "\n" not in str(error) and len(str(error)) < 500
