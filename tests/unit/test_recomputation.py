"""Every number of the committed report that carries a verdict, recomputed by code that shares nothing with the kit's."""

import ast
import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from tests import recomputation

REPORTS = Path(__file__).resolve().parents[2] / "reports"


@pytest.fixture(scope="module")
def numbers():
    return recomputation.everything(REPORTS)


@pytest.fixture(scope="module")
def apart():
    """Those of the report on runs without containers."""
    return recomputation.everything(REPORTS / "without-containers")


@pytest.fixture(scope="module")
def reports():
    return recomputation.Reports(REPORTS)


@pytest.fixture
def small(reports, tmp_path):
    """A copy of the lines and runs of one setting whose rows have five runs each, and of its page."""
    page = next(line["page"] for line in reports.lines if line["low_ms"])
    lines = [line for line in reports.lines if line["page"] == page]
    with (tmp_path / "results.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, lines[0].keys())
        writer.writeheader(), writer.writerows(lines)
    for run in {raw["id"] for line in lines for raw in reports.runs_of(line)}:
        shutil.copytree(REPORTS / "runs" / run, tmp_path / "runs" / run)
    shutil.copy(REPORTS / page, tmp_path)
    return tmp_path


def differing(folder):
    return [number.place for kind in recomputation.everything(folder).values() for number in kind if number.differs]


@pytest.mark.parametrize("kind", ["rows", "tables", "ratios"])
def test_every_number_comes_out_again(numbers, apart, kind):
    assert [number for number in [*numbers[kind], *apart[kind]] if number.differs] == []


def test_the_cache_of_every_decoding_row_takes_part(numbers):
    assert sum(", cache: " in number.place for number in numbers["tables"]) >= 20


def test_every_row_of_every_setting_takes_part(numbers):
    with (REPORTS / "results.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    means = [number for number in numbers["rows"] if number.place.endswith(", mean_ms") and number.said]
    intervals = [number for number in numbers["rows"] if number.place.endswith(", low_ms") and number.said]
    assert len(means) == sum(bool(line["mean_ms"]) for line in lines) >= 40
    assert len(intervals) == sum(bool(line["low_ms"]) for line in lines) >= 9
    assert {line["page"] for line in lines} == {number.place.split(": ")[0].removeprefix("results.csv, ") for number in numbers["rows"]}


def _sentences(page, of_ratio, in_table):
    """The sentences of a page's tables, or of its other lines."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|") is in_table]
    return of_ratio.findall("\n".join(lines))


def test_every_ratio_behind_a_claim_takes_part(numbers, reports):
    pages = [REPORTS / page for page in {line["page"] for line in reports.lines}] + list(REPORTS.glob("article-*.md"))
    of_ratio = re.compile(r"\S+ on \d+ GPUs? in \S+ is [0-9.]+ times as fast as [^)]*|makes [0-9.]+ times the items/s of [^)]*")
    told = {in_table: [sentence for page in pages for sentence in _sentences(page, of_ratio, in_table)] for in_table in (True, False)}
    assert sum(", ratio: " in number.place for number in numbers["ratios"]) == len(told[True])
    assert set(told[False]) <= set(told[True]), "a line of the list repeats what stands in a table"
    assert sum(", low: " in number.place and number.said is not None for number in numbers["ratios"]) >= 7


def test_tokens_have_times_and_rates(numbers, apart):
    for kind in ("ms/token: ", "tokens/s: ", "further token: "):
        assert sum(kind in number.place for number in [*numbers["tables"], *apart["tables"]]) >= 20


def test_a_call_that_took_longer_shows_in_the_row_and_its_ratios(small):
    assert differing(small) == []
    path = next(path for path in sorted(small.glob("runs/*/result.json")) if ".deepspeed." in path.parent.name)
    raw = json.loads(path.read_text())
    raw["guest"]["measurements"][0]["timed_ms"][0] *= 5
    path.write_text(json.dumps(raw))
    places = differing(small)
    assert all(any(name in place for place in places) for name in ("mean_ms", "std_ms", "low_ms", "ratio: deepspeed", "high: deepspeed"))


def test_a_run_that_is_gone_shows(small):
    counting = {line["run"] for line in recomputation.Reports(small).lines}
    shutil.rmtree(next(path for path in small.glob("runs/*") if ".bminf." in path.name and path.name not in counting))
    assert any(place.endswith("runs") and "bminf" in place for place in differing(small))


def test_another_interval_in_a_sentence_shows(small):
    (page,) = small.glob("*.md")
    text = page.read_text()
    interval = re.search(r"times as fast as [^(]*\(95 % interval ([0-9.]+)", text)
    page.write_text(text.replace(f"interval {interval[1]}", f"interval {float(interval[1]) + 0.01:.2f}"))
    assert any(", low: " in place for place in differing(small))


def test_the_recomputation_uses_no_code_of_the_kit():
    tree = ast.parse(Path(recomputation.__file__).read_text())
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"csv", "json", "re", "math", "functools", "collections", "dataclasses", "pathlib", "typing", "numpy", "scipy"}
