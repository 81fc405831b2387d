"""The pages of a report: names that stay, links that lead somewhere or fail loudly, and the rows as data."""

import csv
import dataclasses
import io
import json
import re
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import articles
from scripts.errors import KitError
from scripts.report import data, document, page, pages, row_pages
from scripts.report.text import Markdown, anchor, blocks, code, link
from scripts.verdicts import row_groups
from tests import reports, synthetic
from tests.synthetic import job, record


def group_of(records: list) -> row_groups.Group:
    (group,) = row_groups.build(records, articles.load_all())
    return group


def test_a_link_gets_the_page_that_holds_its_anchor() -> None:
    first = blocks(anchor("first"), link("there", "#second"), link("its table", "#table"), link("here", "#own"), anchor("own"))
    second = blocks(anchor("second"), anchor("table"))
    texts = pages.linked({"first.md": first, "second.md": second})
    assert "[there](second.md)\n" in texts["first.md"] and "[its table](second.md#table)" in texts["first.md"] and "[here](#own)" in texts["first.md"]
    assert all(text.startswith(pages.MARKER) for text in texts.values())


def test_a_link_to_no_page_and_an_anchor_on_two_pages_fail_loudly() -> None:
    with pytest.raises(KitError, match="first.md: a link leads to #nowhere, which no page holds"):
        pages.linked({"first.md": link("there", "#nowhere")})
    with pytest.raises(LookupError, match="second.md: the anchor place stands in first.md too"):
        pages.linked({"first.md": anchor("place"), "second.md": anchor("place")})


def test_the_page_of_the_method_leads_to_the_notes_where_the_report_lies_in_the_kit() -> None:
    within, outside = (str(page.method_page([], limits)) for limits in ("../../docs/limits.md", ""))
    for name in ("method.md", "output-check.md", "verdict-rules.md"):
        assert f"[docs/{name}](../../docs/{name})" in within and f"docs/{name}" in outside
    assert "](" not in outside.replace("](REPORT.md)", "")


def test_what_looks_like_a_link_in_data_is_left_alone() -> None:
    for text in (Markdown.escape("[evil](#nowhere) `"), code("[evil](#nowhere)"), Markdown("{} and {}").format("`", code("](#nowhere)"))):
        assert str(text) in pages.linked({"first.md": text})["first.md"]


def test_a_page_s_name_follows_from_its_setting_alone() -> None:
    one = record(job("int8"), 50.0)
    assert pages.of_setting(group_of([one])) == pages.of_setting(group_of([one, record(job("deepspeed", 2), 10.0)]))
    other = record(job("int8", recipe=1), 50.0)
    names = {pages.of_setting(group) for group in row_groups.build([one, other], articles.load_all())}
    assert len(names) == 2 and all(len(name) < 80 and name.startswith("inference-tools-current-published-") for name in names)


def test_an_article_of_any_name_has_a_page_of_its_own() -> None:
    assert pages.of_article("inference-tools") == "article-inference-tools.md"
    names = {pages.of_article(name) for name in ("a b", "a-b", "a.b", "A-B", "a" * 64, "a" * 63)}
    assert len(names) == 6 and all(len(name) < 70 for name in names)


def test_a_page_that_the_results_no_longer_give_goes_and_a_page_written_by_hand_stays(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [record(job("int8"), 50.0), record(job("int8", variant="controlled"), 50.0)])
    (tmp_path / "FINDINGS.md").write_text("# Findings\n")
    document.write(tmp_path / "runs", tmp_path)
    (controlled,) = tmp_path.glob("inference-tools-current-controlled-*[0-9a-f].md")
    for result in tmp_path.glob("runs/*controlled*/result.json"):
        result.unlink()
    document.write(tmp_path / "runs", tmp_path)
    assert not controlled.exists() and (tmp_path / "FINDINGS.md").exists()
    assert len(list(tmp_path.glob("inference-tools-current-published-*.md"))) == 2, "its page and its environment"


def rows_as_data(records: list) -> tuple[list[dict[str, str]], dict]:
    texts = data.files(row_groups.build(records, articles.load_all()), articles.load_all())
    return list(csv.DictReader(io.StringIO(texts[data.CSV]))), json.loads(texts[data.JSON])


def test_a_row_is_a_line_of_the_data_for_each_number_of_new_tokens() -> None:
    lines, document = rows_as_data([record(job("int8"), 71.65), record(job("deepspeed", 2, variant="controlled", new_tokens=(1, 16)), (10.0, 90.0))])
    assert [(line["case"], line["new_tokens"]) for line in lines] == [("int8", "1"), ("deepspeed", "1"), ("deepspeed", "16")]
    assert (
        float(lines[0]["mean_ms"]) == pytest.approx(71.65, rel=0.01)
        and lines[0]["published_mean_ms"] == "143.3"
        and lines[0]["gpu_peak_bytes"] == str(10 << 30)
    )
    assert [row["mean_ms"] for row in document["rows"]] == [float(line["mean_ms"]) for line in lines]
    assert document["columns"].keys() == lines[0].keys() and all(document["columns"].values())


def test_a_published_mean_stands_beside_the_very_calls_that_it_is_of() -> None:
    lines, _ = rows_as_data([record(job("int8", new_tokens=(1, 16)), (71.65, 900.0))])
    assert [(line["new_tokens"], line["published_mean_ms"]) for line in lines] == [("1", "143.3"), ("16", "")]


def test_a_row_that_failed_is_a_line_without_a_time_and_few_runs_have_no_interval() -> None:
    failed, ok = record(job("int8"), status="oom", reason="out of memory"), record(job("deepspeed", 2), 10.0)
    lines = {line["case"]: line for line in rows_as_data([failed, *synthetic.repeated(ok)])[0]}
    assert (lines["int8"]["status"], lines["int8"]["mean_ms"], lines["int8"]["runs"]) == ("oom", "", "0")
    assert lines["deepspeed"]["runs"] == "5" and float(lines["deepspeed"]["low_ms"]) < float(lines["deepspeed"]["mean_ms"]) < float(
        lines["deepspeed"]["high_ms"]
    )
    assert rows_as_data([ok])[0][0]["low_ms"] == ""


@pytest.mark.parametrize("sign", ["=", "+", "-", "@"])
def test_a_word_that_a_spreadsheet_would_run_is_a_word(sign: str) -> None:
    one = record(job("int8"), 50.0)
    one.host["gpus"][0]["name"] = f'{sign}HYPERLINK("evil")'
    lines, document = rows_as_data([one])
    assert lines[0]["device"] == f"""'{sign}HYPERLINK("evil")""" and document["rows"][0]["device"] == f'{sign}HYPERLINK("evil")'


def test_a_rate_stands_in_the_line_of_the_longest_calls_alone_and_numbers_have_six_digits() -> None:
    batch = dataclasses.replace(job("deepspeed", 2, variant="controlled", new_tokens=(1, 16)), form="batch")
    lines, _ = rows_as_data([record(batch, (10.0, 96.0), spread=0.0)])
    assert [line["items_per_s"] for line in lines] == ["", "10.4167"]


def test_the_data_lie_beside_the_pages_and_are_linked(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [record(job("int8"), 50.0)])
    document.write(tmp_path / "runs", tmp_path)
    assert "[results.csv](results.csv), [results.json](results.json)" in reports.text_of(tmp_path)
    assert (tmp_path / "results.csv").read_text().count("\n") == 2 and json.loads((tmp_path / "results.json").read_text())["rows"]


def rows_of(records: list) -> row_pages.RowPages:
    known = articles.load_all()
    return row_pages.made(row_groups.build(records, known), known, "runs")


def test_a_row_s_page_has_every_call_of_every_run_and_the_command_that_repeats_it() -> None:
    runs = synthetic.repeated(record(job("int8"), 50.0))
    made = rows_of(runs)
    ((name, text),) = made.texts.items()
    (picture,) = made.pictures.values()
    calls = sum(len(call["timed_ms"]) for run in runs for call in run.guest.measurements)
    assert picture.count('class="s0 hollow"') == calls == 50 and picture.count('class="s1 fill"') == 1
    assert "int8 ×1: the means of 5 runs lie between" in picture
    assert all(f"](runs/{run.id}/{file})" in text for run in runs for file in ("result.json", "job.json"))
    assert "`make bench-int8 ARTICLE=inference-tools VARIANT=published STACK=current" in text and "| mean\\_ms | 50" in text
    assert f"](plots/{name.removesuffix('.md')}.svg)" in text and made.pictures.keys() == {name.removesuffix(".md")}


def test_a_row_without_a_time_has_a_page_with_its_reason_and_no_picture() -> None:
    made = rows_of([record(job("int8"), status="oom", reason="no room | left")])
    (text,) = made.texts.values()
    assert "**oom**: no room \\| left" in text and not made.pictures


def test_every_row_s_place_on_its_setting_s_page_has_a_page(tmp_path: Path) -> None:
    records = synthetic.article_runs()
    synthetic.write(tmp_path / "runs", records)
    document.write(tmp_path / "runs", tmp_path)
    made = rows_of(records)
    places = set(re.findall(r'<a id="([^"]+--[^"]+)"></a>', reports.text_of(tmp_path)))
    assert places and places <= made.of_place.keys() and len(set(made.of_place.values())) == len(made.texts)


def test_a_mistake_in_an_article_s_file_costs_no_row_its_page(tmp_path: Path, mistaken: Callable[..., None]) -> None:
    synthetic.write(tmp_path / "runs", [record(job("int8"), 50.0), record(job("deepspeed", 2), 10.0)])
    whole = row_pages.of_runs(tmp_path / "runs", "runs")
    mistaken("mine")
    assert row_pages.of_runs(tmp_path / "runs", "runs") == whole
    mistaken("inference-tools")
    assert row_pages.of_runs(tmp_path / "runs", "runs").texts.keys() == whole.texts.keys()


@pytest.mark.parametrize(("status", "passed", "right"), [("ok", True, True), ("ok", False, False), ("failed", True, None), ("failed", False, False)])
def test_the_output_of_a_row_that_failed_is_not_called_right(status: str, passed: bool, right: bool | None) -> None:
    line = types.SimpleNamespace(row=types.SimpleNamespace(status=status), check=lambda name: passed)
    assert data._output_right(line) is right  # type: ignore[arg-type]
