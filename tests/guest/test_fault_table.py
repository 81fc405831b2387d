"""The tiny part of the table of faults: with the weights of the newest recipe each fault stands out in the tokens."""

import json

import pytest

from bench.models import weights
from tests.guest.conftest import SHAPES, Guest

#: The least largest regret of a fault; an honest decoding on a CPU has none at all.
VISIBLE = 0.2


@pytest.fixture(scope="session", params=sorted(SHAPES))
def rows(request, python, tmp_path_factory):
    """{decoding: its row} of the table for the newest recipe."""
    factors = weights.factors_of(weights.config_of(SHAPES[request.param], "tiny"), "tiny", weights.RECIPE)
    out = tmp_path_factory.mktemp("faults") / "table.json"
    command = ["-m", "bench.instruments.fault_table", SHAPES[request.param], "--scale", "tiny", "--dtype", "float32", "--device", "cpu"]
    asked = ["--new-tokens", "64", "--prompt-tokens", "64", "--bits", "4", "--candidates", "".join(f"{role}{factor}" for role, factor in factors.items())]
    done = Guest(python, out.parent).command(*command, *asked, "--out", str(out))
    assert done.returncode == 0, done.stderr
    (candidate,) = json.loads(out.read_text())["candidates"]
    assert "| honest |" in out.with_suffix(".md").read_text()
    return {row["decoding"]: row for row in candidate["rows"]}


def test_greedy_decoding_has_many_distinct_tokens_and_no_regret(rows):
    honest = rows.pop("honest")
    assert honest["distinct"] >= 20 and honest["tokens"] == 64
    assert honest["regret"]["max"] < 1e-3 and honest["logits_error"]["largest"] < 1e-3


def test_each_fault_has_regret(rows):
    right = ("honest", "honest, in a batch", "one token short")
    hidden = {name: row["regret"]["max"] for name, row in rows.items() if name not in right and row["regret"]["max"] < VISIBLE}
    assert hidden == {}


def test_one_token_short_shows_in_the_count_alone(rows):
    assert rows["one token short"]["tokens"] == 63 and rows["one token short"]["regret"]["max"] < 1e-3
