"""What each system wrote: the first tokens side by side, those of the reference marked; only where the weights are real."""

from pathlib import Path

import pytest

from scripts import articles, results
from scripts.report import document
from scripts.report.text import Markdown
from scripts.report.views import texts
from scripts.results import Record
from scripts.verdicts import row_groups
from tests import reports, synthetic

REFERENCE = [[5, "the"], [6, " next"], [7, " stage"]]
HUB = {"name": "someone/model", "revision": "1" * 40, "weights_sha256": "a" * 64}


def a_row(case: str, system: list | None, reference: list | None = REFERENCE, weights: str = "hub", **model: object) -> Record:
    job = synthetic.job(case, weights=weights)
    job.model.update(HUB if weights == "hub" else {}, **model)
    record = synthetic.record(job)
    if system is not None and record.guest:
        record.guest.figures = {"wrote": {"system": system, "reference": reference}}
    return record


def section(*records: Record) -> Markdown:
    (group,) = row_groups.build(list(records), articles.load_all())
    return texts.section(group, None)


def table(*records: Record) -> list[str]:
    return [line for line in section(*records).splitlines() if line.startswith("|")][2:]


def test_each_system_has_a_line_below_the_reference_and_its_equal_tokens_are_bold() -> None:
    same, other = [*REFERENCE], [[5, "the"], [9, " last"], [7, " stage"]]
    reference, *systems = table(a_row("transformers", same), a_row("int8", other))
    assert reference == "| plain transformers, float32 | — | 3 of 3 | <b>the next stage</b> |"
    assert sorted(systems) == ["| int8 | 1 | 2 of 3 | <b>the</b> last <b>stage</b> |", "| transformers | 1 | 3 of 3 | <b>the next stage</b> |"]


def test_a_token_counts_as_equal_by_its_id_and_not_by_its_text() -> None:
    assert table(a_row("int8", [[99, "the"]]))[1] == "| int8 | 1 | 0 of 1 | the |"


def test_a_shorter_reference_that_begins_a_longer_one_has_no_line_of_its_own() -> None:
    lines = table(a_row("transformers", REFERENCE[:1], REFERENCE[:1]), a_row("int8", REFERENCE))
    assert len(lines) == 3 and "the next stage" in lines[0]


def test_without_a_reference_nothing_is_marked() -> None:
    assert table(a_row("int8", REFERENCE, None)) == ["| int8 | 1 | — | the next stage |"]


def test_random_weights_and_rows_without_texts_have_no_section() -> None:
    assert section(a_row("int8", None)) == section(a_row("int8", None, weights="random")) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a ↵ b"), ("<script>", "&lt;script&gt;"), ("a | b", r"a \| b"), ("**x**", r"\*\*x\*\*"), ("结核病。", "结核病。"), ("\x1b[31m", r"\[31m")],
)
def test_a_text_means_nothing_but_itself(text: str, shown: str) -> None:
    assert table(a_row("int8", [[1, text]], None)) == [f"| int8 | 1 | — | {shown} |"]
    assert f"<b>{shown}</b>" in table(a_row("int8", [[1, text]], [[1, text]]))[1]


def test_the_weights_are_told_once_with_commit_digest_and_conversion() -> None:
    told = section(a_row("transformers", REFERENCE), a_row("int8", REFERENCE))
    assert told.count("- `someone/model` at `111111111111`, weights aaaaaaaaaaaa\n") == 1 and "pickles" not in told
    assert "aaaaaaaaaaaa, safetensors made of its pickles by torch 2.11.0" in section(a_row("int8", REFERENCE, converted_by="torch 2.11.0"))


def test_the_report_shows_the_texts_and_reads_them_from_the_results(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [a_row("int8", REFERENCE), a_row("transformers", None, weights="random")])
    document.write(tmp_path / "runs", tmp_path)
    page = reports.text_of(tmp_path)
    assert page.count("<summary>What each system wrote</summary>") == 1 and "<b>the next stage</b>" in page


@pytest.mark.parametrize("wrote", [{}, {"system": "text"}, {"system": [[1]]}, {"system": [["a", 1]]}, {"system": [[-1, "a"]]}])
def test_a_damaged_text_makes_a_result_that_cannot_be_read(tmp_path: Path, wrote: dict) -> None:
    record = a_row("int8", REFERENCE)
    assert record.guest
    record.guest.figures = {"wrote": wrote}
    synthetic.write(tmp_path / "runs", [record])
    records, skipped = results.load_all(tmp_path / "runs")
    assert records == [] and "damaged result.json: guest.figures.wrote" in skipped[0].reason
