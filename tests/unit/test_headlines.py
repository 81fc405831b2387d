"""scripts/report/headlines.py: the README's table says what the committed results say, and a stale table is an error."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys

import pytest

from scripts import articles, results
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.report import document, headlines
from scripts.report.views import claims, overview
from scripts.verdicts import judging
from tests import synthetic


@pytest.fixture(scope="module")
def first():
    """The kit's first report."""
    return document._written(results.RUNS, results.RUNS.parent)


@pytest.fixture(scope="module")
def apart():
    """The one on runs without containers."""
    return document._written(results.WITHOUT_CONTAINERS, results.WITHOUT_CONTAINERS.parent)


@pytest.fixture(scope="module")
def judged(first):
    return first.content.verdicts, first.content.known


@pytest.fixture
def readme(tmp_path):
    return shutil.copy(headlines.README, tmp_path / "README.md")


def rows_of(verdicts):
    """The rows of the table, each a line; the claims' numbers without their links."""
    return [re.sub(r"^\| \[([\d.]+)\]\([^)]*\)", r"| \1", line) for line in str(headlines.table(verdicts)).splitlines()[2:] if line.startswith("|")]


def _headlines(known):
    return [claim for article in known.values() for claim in article.claims if claim.get("headline")]


def test_every_headline_of_a_measured_article_has_a_row(judged):
    verdicts, known = judged
    rows = rows_of(verdicts)
    measured = {slug: known[slug] for slug, of_article in verdicts.items() if of_article.claims}
    assert {"inference-tools", "deepspeed-inference", "batch-generate"} <= set(measured)
    assert len(rows) == len(_headlines(measured))
    assert all(any(row.startswith(f"| {claim['id']} {claim['text']} |") for row in rows) for claim in _headlines(measured))


def test_the_number_of_a_claim_leads_to_its_verdict(judged):
    rows = str(headlines.table(judged[0])).splitlines()
    links = [link for row in rows if (link := re.match(r"\| \[(\d\.\d)\]\(reports/(article-\S+\.md)#(claim-\S+-\1)\) ", row))]
    assert len(links) == len(_headlines(judged[1]))
    assert all(f'<a id="{link[3]}"></a>' in (ROOT / "reports" / link[2]).read_text(encoding="utf-8") for link in links)


def test_a_row_has_the_verdict_of_the_report(judged):
    rows = rows_of(judged[0])
    of = {f"{one.headline.claim['id']} {one.headline.claim['text']}": one for verdicts in judged[0].values() for one in verdicts.claims}
    for row in rows:
        claim, *_, verdict, _ = row.strip("| ").split(" | ")
        assert verdict.startswith(str(claims.word(of[claim].headline)))


def of_five_runs(slow_ms, gpus=2):
    """The verdicts on DeepSpeed's row and layer parallelism's, five runs each."""
    records = [synthetic.record(synthetic.job(case, gpus), ms, spread=0.0) for case, ms in (("deepspeed", 10.0), ("layer-parallel", slow_ms))]
    known = articles.load_all()
    return document.judged([run for one in records for run in synthetic.repeated(one)], known).verdicts


def test_the_parts_of_a_claim_that_came_out_differently_stand_beside_its_word():
    row = next(row for row in rows_of(of_five_runs(30.0)) if "3.83 times" in row)
    assert "| **holds in part**: faster: holds; 3.83 times (3.06 to 4.79): refuted |" in row and "| 3.83 × layer-parallel | deepspeed 3.00 (2.9" in row
    assert "| **holds** |" in next(row for row in rows_of(of_five_runs(38.3)) if "3.83 times" in row)
    untested = next(row for row in rows_of(of_five_runs(38.3)) if row.startswith("| 1.2 Tensor parallelism"))
    assert "| 1.3 × layer-parallel | tensor-parallel was not run in this setting (stack current) | not tested |" in untested


@pytest.mark.parametrize(("gpus", "words"), [(2, "[2 × SYNTHETIC GPU, stack "), (1, "[1 × SYNTHETIC GPU, stack ")])
def test_a_row_names_on_how_many_gpus_it_was_measured(gpus, words):
    assert words in next(row for row in rows_of(of_five_runs(30.0, gpus)) if "3.83 times" in row)


def test_a_number_that_two_parts_of_one_relation_share_stands_behind_the_second_alone():
    (claim,) = [one.headline for one in of_five_runs(30.0)["inference-tools"].claims if one.headline.claim["id"] == "1.5"]
    assert re.fullmatch(r"\*\*holds in part\*\*: faster: holds; 3\.83 times \(3\.06 to 4\.79\): refuted, 3\.00 \(2\.9\S* to 3\.0\S*\)", overview.verdict(claim))


def test_a_row_that_was_not_tested_says_why():
    single = [synthetic.record(synthetic.job(case, 2), ms) for case, ms in (("deepspeed", 10.0), ("layer-parallel", 30.0), ("tensor-parallel", 20.0))]
    *rows, _, note = str(headlines.table(document.judged(single, articles.load_all()).verdicts)).splitlines()
    untested = [row for row in rows if "not tested" in row and " × " in row]
    assert untested and all("1 run, 5 are needed" in row for row in untested) and "docs/verdict-rules.md" in note


def test_a_published_ratio_stands_beside_the_measured_one_of_the_same_pair(judged):
    cells = [row.strip("| ").split(" | ") for row in rows_of(judged[0])]
    pairs = [(published, measured) for _, published, measured, *_ in cells if published != "—"]
    assert pairs
    assert all(published.partition(" × ")[2] == measured.partition(" × ")[2] for published, measured in pairs)


def test_no_results_give_a_table_without_rows():
    assert len(headlines.table({}).splitlines()) == 2


def test_a_claim_that_nothing_judged_is_a_row_without_numbers(judged):
    article = next(article for article in judged[1].values() if any(claim.get("headline") for claim in article.claims))
    row = rows_of({article.slug: judging.judge_article([], article)})[0]
    assert "| nothing was run yet | not tested |" in row and "×" not in row


def test_a_stale_table_is_an_error_until_it_is_written_again(judged, readme):
    table = headlines.table(judged[0])
    headlines.save(table, readme)
    headlines.check(table, readme)
    readme.write_text(readme.read_text().replace("| **refuted** |", "| **holds** |", 1))
    with pytest.raises(KitError, match="make report"):
        headlines.check(table, readme)
    headlines.save(table, readme)
    headlines.check(table, readme)


def test_the_kit_s_first_report_writes_its_headlines_and_the_quoted_numbers_of_both_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(results, "WITHOUT_CONTAINERS", tmp_path / "apart" / "runs")
    of_first, of_apart = synthetic.record(synthetic.job("int8"), 50.0), synthetic.record(synthetic.job("deepspeed", 2), 10.0)
    synthetic.write(results.RUNS, [of_first])
    synthetic.write(results.WITHOUT_CONTAINERS, [of_apart])
    saved = {}
    monkeypatch.setattr(headlines, "save", lambda table: saved.update(headlines=table))
    monkeypatch.setattr(document.quoted, "save", lambda records: saved.update(quoted=[record.id for record in records]))
    document.write(results.RUNS, tmp_path)
    assert "Tensor parallelism is somewhat faster" in saved["headlines"]
    assert saved["quoted"] == [of_first.id, of_apart.id]
    saved.clear()
    document.write(results.RUNS, tmp_path / "mine")
    assert not saved, "a report elsewhere writes nothing beside itself"


@pytest.mark.slow
def test_the_committed_report_is_that_of_the_committed_results_until_a_page_or_a_plot_differs(first, apart, monkeypatch):
    kept = {results.RUNS.parent: first, results.WITHOUT_CONTAINERS.parent: apart}
    changed = {**kept}
    monkeypatch.setattr(document, "_written", lambda runs, out: changed[out] if out == runs.parent else None)
    assert document._kept() == list(kept.values())
    document.check_pages()
    for out, other in ((out, other) for out, whole in kept.items() for other in others(whole)):
        changed = {**kept, out: other}
        with pytest.raises(KitError, match=f"is not what {out.relative_to(ROOT)}/runs gives. Try: make report"):
            document.check_pages()


#: Python up to 3.11 rounds a sum of floats after each term, and from 3.12 on it does not. Here each sums as the other does.
SUMS_AS_THE_OTHER = """
import builtins, functools, math, operator, sys

own = builtins.sum

def other(values, start=0):
    values = list(values)
    if any(isinstance(value, float) for value in values):
        return math.fsum([start, *values]) if sys.version_info < (3, 12) else functools.reduce(operator.add, values, start)
    return own(values, start)

builtins.sum = other
from scripts.report import document
document.check_pages()
"""


@pytest.mark.slow
def test_no_number_of_the_committed_report_depends_on_how_python_sums():
    done = subprocess.run([sys.executable, "-c", SUMS_AS_THE_OTHER], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_price_of_this_shell_makes_no_committed_page_stale():
    priced = os.environ | {"COST_PER_GPU_HOUR": "2.5"}
    done = subprocess.run([sys.executable, "-m", "scripts", "report", "--check"], cwd=ROOT, env=priced, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def others(whole):
    """A report with another page, a page less, another picture, and none."""
    return (
        dataclasses.replace(whole, texts={**whole.texts, "method.md": f"{whole.texts['method.md']}\n"}),
        dataclasses.replace(whole, texts={name: text for name, text in whole.texts.items() if name != "runs.md"}),
        dataclasses.replace(whole, content=dataclasses.replace(whole.content, pictures={**whole.content.pictures, "claims": "<svg/>"})),
        dataclasses.replace(whole, content=dataclasses.replace(whole.content, pictures={})),
    )


def test_a_readme_without_markers_is_an_error_that_names_them(tmp_path):
    (tmp_path / "README.md").write_text("no markers\n")
    with pytest.raises(KitError, match="headlines:begin"):
        headlines.save("", tmp_path / "README.md")


@pytest.mark.slow  # all committed results
def test_no_claim_line_of_the_first_report_is_cut(first):
    section = first.texts["REPORT.md"].partition("## Claims and settings")[2]
    lines = [line for line in section.splitlines() if line.lstrip().startswith("- ")]
    assert sum("#claim-" in line for line in lines) == 15 and not [line for line in lines if "…" in line]


@pytest.mark.slow  # all committed results
def test_the_first_report_leads_to_the_one_without_containers_and_back(first, apart):
    assert first.content.links.beside and first.content.links.beside.groups == {group.slug for group in apart.content.groups}
    count = len(apart.content.records)
    assert f"all {len(first.content.records)} results from containers" in first.texts["REPORT.md"]
    assert f"{count} results without containers in [a report of their own](without-containers/REPORT.md)" in first.texts["REPORT.md"]
    assert "# LLM inference, measured without containers" in apart.texts["REPORT.md"] and "](../REPORT.md)" in apart.texts["REPORT.md"]
