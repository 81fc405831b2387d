"""scripts/report/headlines.py: the README's table says what the committed results say, and a stale table is an error."""

import shutil

import pytest

from scripts import articles, results
from scripts.errors import KitError
from scripts.report import document, headlines
from scripts.verdicts import row_groups


@pytest.fixture(scope="module")
def judged():
    records, _ = results.load_all(results.RUNS)
    known = articles.load_all()
    by_article = {}
    for group in row_groups.build(records, known):
        by_article.setdefault(group.key.article, []).append(group)
    return document.judge(by_article, known), known


@pytest.fixture
def readme(tmp_path):
    return shutil.copy(headlines.README, tmp_path / "README.md")


def _headlines(known):
    return [claim for article in known.values() for claim in article.claims if claim.get("headline")]


def test_every_headline_of_a_measured_article_has_a_row(judged):
    table, known = headlines.table(*judged), judged[1]
    rows = table[2:]
    assert len(rows) == len(_headlines(known))
    assert all(any(row.startswith(f"| {claim['text']} |") for row in rows) for claim in _headlines(known))


def test_a_row_has_the_verdict_of_the_report(judged):
    rows = headlines.table(*judged)[2:]
    words = {line.claim["text"]: line.verdict.word for lines in judged[0].values() for line in reversed(lines)}
    for row in rows:
        claim, *_, verdict, _ = row.strip("| ").split(" | ")
        assert verdict == f"**{words[claim]}**"


def test_a_published_ratio_stands_beside_the_measured_one_of_the_same_pair(judged):
    cells = [row.strip("| ").split(" | ") for row in headlines.table(*judged)[2:]]
    pairs = [(published, measured) for _, published, measured, *_ in cells if published != "—"]
    assert pairs
    assert all(published.partition(" × ")[2] == measured.partition(" × ")[2] for published, measured in pairs)


def test_no_results_give_a_table_without_rows():
    assert len(headlines.table({}, {})) == 2


def test_a_claim_that_nothing_judged_is_a_row_without_numbers(judged):
    article = next(article for article in judged[1].values() if any(claim.get("headline") for claim in article.claims))
    untested = document.judge({article.slug: []}, judged[1])
    row = headlines.table(untested, judged[1])[2]
    assert "**not tested**" in row and "×" not in row


def test_a_stale_table_is_an_error_until_it_is_written_again(judged, readme):
    lines = headlines.table(*judged)
    headlines.save(lines, readme)
    headlines.check(lines, readme)
    readme.write_text(readme.read_text().replace("**reproduced**", "**not reproduced**", 1))
    with pytest.raises(KitError, match="make report"):
        headlines.check(lines, readme)
    headlines.save(lines, readme)
    headlines.check(lines, readme)


def test_the_committed_table_is_that_of_the_committed_results():
    document.check_headlines()


def test_a_readme_without_markers_is_an_error_that_names_them(tmp_path):
    (tmp_path / "README.md").write_text("no markers\n")
    with pytest.raises(KitError, match="headlines:begin"):
        headlines.save([], tmp_path / "README.md")
