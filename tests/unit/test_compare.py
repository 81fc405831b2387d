"""make compare: a word for every row, and why two rows cannot be compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.errors import UsageError
from scripts.report import comparison
from tests import synthetic
from tests.synthetic import job, record

ROOT = Path(__file__).resolve().parents[2]


def words(a, b, **options):
    return {one.name: (one.word, one.reason) for one in comparison.compare(a, b, **options)}


@pytest.mark.parametrize(("means", "word"), [((50.0, 60.0), "slower"), ((60.0, 50.0), "faster"), ((50.0, 50.01), "same")])
def test_a_row_is_faster_slower_or_the_same(means, word):
    before, after = (record(job("int8"), mean, seed=place) for place, mean in enumerate(means))
    (found,) = comparison.compare([before], [after])
    assert found.word == word and found.ratio.value == pytest.approx(means[1] / means[0], rel=0.01)


def test_a_direction_that_another_run_contradicts_is_none():
    before = [record(job("int8"), 50.0)]
    after = [record(job("int8"), mean, number=place, seed=place, started_at=f"2026-11-2{place}T04:10:00Z") for place, mean in enumerate((60.0, 61.0, 40.0), 1)]
    (found,) = comparison.compare(before, after)
    assert found.word == "same" and found.ratio.low > 1


def test_what_cannot_be_compared_says_why():
    right = record(job("int8"), 50.0)
    wrong = record(job("int8"), 40.0, checked=synthetic.check(0.4, passed=False))
    ((word, reason),) = words([right], [wrong]).values()
    assert word == "not comparable" and "output differs by 40 %" in reason
    few = record(job("int8", timed_runs=3), 50.0)
    assert "carry no interval" in words([few], [few]).popitem()[1][1]
    found = words([right, record(job("bminf"), 9.0)], [right])
    assert ("not comparable", "only in A") in [told for name, told in found.items() if name == "inference-tools/bminf, on 1, 1 new token"]


def test_rows_of_different_stacks_are_compared_only_when_asked():
    a = [record(job("int8"), 50.0), record(job("bminf"), 50.0)]
    b = [record(job("int8", stack="hopper"), 60.0), record(job("bminf", stack="hopper"), 60.0)]
    assert {word for word, _ in words(a, b).values()} == {"not comparable"}
    assert {word for word, _ in words(a, b, across=["stack"]).values()} == {"slower"}
    with pytest.raises(UsageError, match="ACROSS=stack makes two rows of one side the same"):
        comparison.compare(a + b, b, across=["stack"])


def run(**typed):
    kept = {name: value for name, value in os.environ.items() if name not in ("A", "B", "ACROSS", "THRESHOLD", "RUNS")}
    return subprocess.run([sys.executable, "-m", "scripts", "compare"], cwd=ROOT, env=kept | typed, capture_output=True, text=True)


@pytest.mark.slow
def test_the_threshold_decides_the_exit_code(tmp_path):
    synthetic.write(tmp_path / "a", [record(job("int8"), 50.0)])
    synthetic.write(tmp_path / "b", [record(job("int8"), 60.0, seed=1)])
    sides = {"A": str(tmp_path / "a"), "B": str(tmp_path / "b")}
    assert [run(**sides, **more).returncode for more in ({}, {"THRESHOLD": "25"}, {"THRESHOLD": "5"})] == [0, 0, 1]
    assert re.search(r"published\*\*\n\n.*\n.*\n\| inference-tools/int8, on 1, 1 new token \| slower \| 50\.0  \| 60\.1  \| 1\.200 \(", run(**sides).stdout)


@pytest.mark.slow
def test_two_revisions_of_the_repository_are_compared():
    done = run(A="HEAD", B="reports/runs")
    assert done.returncode == 0 and "inference-tools/deepspeed, on 2" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({}, "A is missing"),
        ({"A": "HEAD", "B": "no-such-thing"}, "B is 'no-such-thing', allowed are a run's id, a folder of runs or a git revision"),
        ({"A": "HEAD", "B": "HEAD", "ACROSS": "moon"}, "ACROSS is 'moon', allowed are stack, device, engine, weights"),
        ({"A": "HEAD", "B": "HEAD", "THRESHOLD": "much"}, "THRESHOLD is 'much', allowed is a number of per cent"),
    ],
)
def test_a_wrong_value_explains_itself(typed, told):
    done = run(**typed)
    assert done.returncode == 2 and told in done.stderr
