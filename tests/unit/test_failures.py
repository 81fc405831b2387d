"""A result that the report fails on is left out by name; every other result keeps its place."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import paths, stats
from scripts.articles import Article
from scripts.errors import KitError
from scripts.report import cells, data, document, failures, page
from scripts.report.text import Markdown
from scripts.report.view import View
from scripts.report.views import VIEWS
from scripts.results import Record
from scripts.verdicts.row_groups import Group
from tests import reports, synthetic
from tests.synthetic import job, record

RUNS = Path("runs")


def make(bad: set[str], together: bool = False):
    """A part of a report that fails on each of these cases, or only where all of them are there."""

    def made(records: list[Record]) -> list[str]:
        with failures.part("the view of beauty", records):
            cases = {one.job.case for one in records}
            if bad <= cases if together else bad & cases:
                raise ZeroDivisionError("division by zero")
        return sorted(cases)

    return made


CASES = ("bminf", "deepspeed", "int8", "layer-parallel", "tensor-parallel", "transformers")
RECORDS = [record(job(case)) for case in CASES]


@pytest.mark.parametrize("bad", [{"bminf"}, {"transformers"}, {"int8", "deepspeed", "bminf"}])
def test_only_the_results_that_a_view_fails_on_are_left_out(bad: set[str], capsys: pytest.CaptureFixture) -> None:
    cases, skipped = failures.made_of(RECORDS, RUNS, make(bad))
    assert cases == sorted(set(CASES) - bad)
    assert sorted(skip.path.name for skip in skipped) == sorted(one.id for one in RECORDS if one.job.case in bad)
    assert {skip.reason for skip in skipped} == {"the report fails on it: the view of beauty: ZeroDivisionError: division by zero"}
    assert "report: the view of beauty: ZeroDivisionError" in capsys.readouterr().err


def test_of_results_that_fail_only_together_one_is_left_out() -> None:
    cases, skipped = failures.made_of(RECORDS, RUNS, make({"deepspeed", "transformers"}, together=True))
    assert len(skipped) == 1 and len(cases) == len(CASES) - 1


def test_a_view_that_fails_without_any_result_is_the_kit_s_own_fault() -> None:
    with pytest.raises(failures.OwnFault, match="the view of beauty"):
        failures.made_of(RECORDS[:1], RUNS, make(set(), together=True))


def test_a_view_that_fails_on_every_result_throws_none_of_them_away(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(failures.OwnFault, match=f"the view of beauty: ZeroDivisionError: division by zero, first on {RECORDS[0].id}; correct the code"):
        failures.made_of(RECORDS, RUNS, make(set(CASES)))
    assert capsys.readouterr().err == "", "no result is named as left out"


def test_a_run_that_another_part_fails_on_hides_no_mistake_in_the_code() -> None:
    def made(records: list[Record]) -> None:
        with failures.part("the view of truth", records, "truth"):
            if records[0].job.case == "bminf":
                raise ValueError("a damaged run")
        with failures.part("the view of beauty", records, "beauty"):
            raise ZeroDivisionError("division by zero")

    with pytest.raises(failures.OwnFault, match=f"the view of beauty: ZeroDivisionError: division by zero, first on {RECORDS[1].id};") as told:
        failures.made_of(RECORDS, RUNS, made)
    assert told.value.view == "beauty"


def score(group: Group, article: Article | None) -> Markdown:
    return Markdown("{}").format(group.rows[0].figures["beauty"])


def test_two_parts_of_no_view_are_told_apart_by_the_place_in_the_code() -> None:
    def made(records: list[Record]) -> None:
        with failures.part("the rows of truth", records):
            if records[0].job.case == "bminf":
                stats.number("damaged", 1)  # type: ignore[arg-type]
        with failures.part("the rows of beauty", records):
            cells.gib("a mistake")  # type: ignore[arg-type]

    with pytest.raises(failures.OwnFault, match=r"^the rows of beauty: .* \(scripts/report/cells.py, line \d+\), first on"):
        failures.made_of(RECORDS, RUNS, made)


@pytest.mark.parametrize(("bad", "left_out"), [(4, 4), (5, None)])
def test_of_forty_results_a_tenth_may_be_damaged(bad: int, left_out: int | None) -> None:
    runs = [record(job("int8"), number=number) for number in range(1, 41)]

    def made(records: list[Record]) -> int:
        with failures.part("the view of beauty", records):
            if any(one.number <= bad for one in records):
                raise ValueError("a damaged run")
        return len(records)

    if left_out is None:
        with pytest.raises(failures.OwnFault):
            failures.made_of(runs, RUNS, made)
    else:
        assert failures.made_of(runs, RUNS, made)[0] == 40 - left_out


@pytest.mark.parametrize("failing", [{"section": score}, {"plot": score}], ids=["its section", "its plot"])
def test_a_mistake_in_the_code_of_a_view_costs_the_report_that_view_alone(failing: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write(tmp_path / "runs", RECORDS)
    document.write(tmp_path / "runs", tmp_path)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    beauty = View("beauty", **{"section": lambda group, article: Markdown("Beauty"), **failing}, summary="Beauty")
    for module in (document, page):
        monkeypatch.setattr(module, "VIEWS", (*VIEWS, beauty))
    for name in whole:
        (tmp_path / name).unlink()
    with pytest.raises(KitError, match=r"beauty of current .*: KeyError: 'beauty' .*, first on inference-tools\..*; until then the report is without") as told:
        document.write(tmp_path / "runs", tmp_path)
    assert "\n" not in str(told.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == whole


def test_a_view_that_fails_although_it_is_left_out_ends_the_report_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write(tmp_path / "runs", RECORDS)
    times: list[str] = []

    def drawn(*_: object) -> None:
        times.append("drawn")
        assert len(times) < 99, "make report goes on for ever"
        with failures.part("a picture that asks for no view", [], "beauty"):
            raise KeyError("beauty")

    monkeypatch.setattr(document, "drawn", drawn)
    with pytest.raises(KitError, match="a picture that asks for no view"):
        document.write(tmp_path / "runs", tmp_path)


def test_a_check_of_the_pages_tells_each_view_that_a_report_lacks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(**parts: str) -> SimpleNamespace:
        return SimpleNamespace(faults={view: failures.OwnFault(failures.Broken(part, [], ValueError("bad"), view), []) for view, part in parts.items()})

    kept = [lacking(beauty="the view beauty of A"), lacking(beauty="the view beauty of B", truth="the plot truth of B")]
    monkeypatch.setattr(document, "_kept", lambda: kept)
    with pytest.raises(KitError) as told:
        document.check_pages()
    assert sorted(line.partition(":")[0] for line in str(told.value).splitlines()) == ["the plot truth of B", "the view beauty of A"]


def test_a_mistake_in_the_code_of_another_part_is_one_line_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write(tmp_path / "runs", RECORDS)
    beauty = data.Column("beauty", "of a row", lambda line: line.row.figures["beauty"])
    monkeypatch.setattr(data, "COLUMNS", (*data.COLUMNS, beauty))
    with pytest.raises(KitError, match=r"^the rows as data: KeyError: 'beauty' \(scripts/report/data.py, line \d+\), first on inference-tools\..*") as told:
        document.write(tmp_path / "runs", tmp_path)
    assert "\n" not in str(told.value)


def batch(case: str, form: str, figures: dict) -> Record:
    one = record(dataclasses.replace(job(case, article="batch-generate", variant="controlled"), form=form), 50.0)
    one.guest.figures = figures
    return one


PADDING = {"first_different_token": [], "logits_relative_error": []}
WORKLOAD = {"items": 1, "new_tokens": 1, "prompt_tokens": 1, "padded_prompt_tokens": 1, "decode_rows": 1, "seconds": 0.0, "resumed": False}
BAD = {
    "no text": batch("padding", "padding", {"padding": {"new_tokens": 1, "prompt_tokens": [], "left": PADDING, "right": PADDING}}),
    "no time": batch("workload-naive", "workload", {"workload": WORKLOAD}),
    "more tokens than a float holds": batch("single", "pipeline", {"calls": [{"new_tokens": 1, "timed_tokens": [10**400]}]}),
}


@pytest.mark.parametrize("name", BAD)
def test_the_report_comes_without_a_result_that_makes_no_sense_and_names_it(name: str, tmp_path: Path) -> None:
    bad, good = BAD[name], batch("batch", "batch", {})
    synthetic.write(tmp_path / "runs", [bad, good])
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    body, _, skipped = text.partition("## Skipped")
    assert f"- {bad.id}: " in skipped and bad.id not in body
    assert f"[{good.id}]" in body and "1 of the runs is left out" in body


def on_gpu(name: str, number: int = 1, **asked: str) -> Record:
    return record(job("deepspeed", **asked), 50.0, gpu_name=name, number=number)


LONG = "n" * 64
NEIGHBOURS = {
    "a name of a GPU that is too long for a file": [on_gpu("x" * 300)],
    "names that together are too long for a file": [on_gpu("x", stack=LONG, variant=LONG, weights=LONG, scale=LONG)],
    "words that are those of a second group": [on_gpu("SYNTHETIC GPU!", 2), on_gpu("SYNTHETIC GPU", 3, variant="published-2")],
    "words that are those of an environment": [on_gpu("SYNTHETIC GPU", article="environment-inference-tools")],
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_no_name_in_a_result_costs_another_result_its_place(name: str, tmp_path: Path) -> None:
    good, *others = runs = [on_gpu("SYNTHETIC GPU"), *(dataclasses.replace(one, id=f"evil-{place:02d}") for place, one in enumerate(NEIGHBOURS[name], 1))]
    synthetic.write(tmp_path / "runs", runs)
    document.write(tmp_path / "runs", tmp_path, with_rows=True)
    text = reports.text_of(tmp_path)
    assert all(f"[{one.id}](runs/{one.id}/result.json)" in text for one in (good, *others)) and "## Skipped" not in text


def test_what_a_result_says_moves_no_cursor_in_the_line_of_a_failure(capsys: pytest.CaptureFixture) -> None:
    def made(records: list[Record]) -> None:
        with failures.part("the view of \x1b[2J\u202e", records):
            if any(one.job.case == "bminf" for one in records):
                raise ValueError("not a number: '\x1b]0;evil\x07'")

    failures.made_of(RECORDS, RUNS, made)
    told = capsys.readouterr().err
    assert "report: the view of [2J : ValueError: not a number" in told and told.rstrip("\n").isprintable()


def test_a_file_beside_the_runs_is_named_and_counts_as_no_run(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [batch("batch", "batch", {})])
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert "- notes.txt: a file in place of a run's folder" in text and "left out**" not in text
    for name in ("a.b-01", "a.b-02"):
        (tmp_path / "runs" / name).mkdir()
    document.write(tmp_path / "runs", tmp_path)
    assert "**2 of the runs are left out**" in reports.text_of(tmp_path)


@pytest.mark.parametrize("place", ["reports", "reports/without-containers"])
def test_no_committed_result_is_left_out(place: str) -> None:
    """A fault of the report's own code looks like a damaged result, and `make report` goes on."""
    folder = paths.ROOT / place
    index, runs = ((folder / name).read_text(encoding="utf-8") for name in ("REPORT.md", "runs.md"))
    assert "left out**" not in index and "skipped" not in runs
    assert {path.parent.name for path in folder.glob("runs/*/result.json")} <= set(re.findall(r"[a-z0-9.-]+-\d\d+", runs))
