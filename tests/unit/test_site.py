"""make report FORMAT=html: a site that opens from a disk without a network."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from scripts.errors import KitError
from scripts.machine import locks
from scripts.report import document
from scripts.report.verdict_marks import SIGNS
from scripts.report.views import overview
from scripts.results import door
from scripts.share import site, site_pages
from scripts.verdicts.parts import HOLDS, IN_PART, NOT_TESTED, REFUTED, UNDECIDED
from tests import synthetic
from tests.site.page import Page

pytestmark = pytest.mark.slow  # a whole site

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    synthetic.write(folder / "runs", synthetic.article_runs())
    text = "# Findings\n\nSee [the runs](runs.md), [all of it](REPORT.md#all-pages) and [the rules](../docs/verdict-rules.md).\n"
    (folder / "FINDINGS.md").write_text(f"{text}\n- claim\n{overview.NESTED}part\n- another\n")
    document.write(folder / "runs", folder)
    return site.build(folder, folder / "runs")


def test_nothing_is_loaded_from_elsewhere_and_all_of_it_is_there(built):
    loaded = {one for path in built.parent.glob("*.html") for one in Page(path).loaded if not one.startswith("/")}
    assert any(one.endswith(".svg") for one in loaded) and any(one.endswith("sort.js") for one in loaded)
    for one in loaded:
        assert not urlsplit(one).scheme and not one.startswith("//"), one
        assert (built.parent / unquote(urlsplit(one).path)).is_file(), one


def test_every_link_within_the_site_leads_somewhere(built):
    pages = {path.name: Page(path) for path in built.parent.glob("*.html")}
    inside = [(name, link) for name, page in pages.items() for link in page.links if not urlsplit(link).scheme]
    assert len(inside) > 20 and {("FINDINGS.html", "runs.html"), ("FINDINGS.html", "index.html#all-pages")} <= set(inside)
    for name, link in inside:
        path, place = unquote(urlsplit(link).path) or name, unquote(urlsplit(link).fragment)
        assert (built.parent / path).exists(), link
        assert not place or path not in pages or place in pages[path].ids, link
    assert "See <a" in (findings := (built.parent / "FINDINGS.html").read_text()) and '<a href="docs/verdict-rules.html">the rules</a>' in findings


def test_the_notes_are_in_the_site_whose_links_lead_into_it_and_are_words_where_they_lead_out_of_it(built):
    limits = Page(built.parent / "docs" / "limits.html")
    assert {"readings.html", "verdict-rules.html", "../runs.html#rows"} <= set(limits.links)
    assert not [
        link for name in site_pages.NOTES for link in Page(built.parent / "docs" / name.replace(".md", ".html")).links if link.endswith((".py", ".toml"))
    ]
    text = (built.parent / "docs" / "limits.html").read_text()
    assert re.search(r"<li>\s*(<p>)?<strong>Environment of the committed numbers.*?\n<ul>\s*<li>", text, re.S), "a list within a list"


def test_a_link_leads_to_a_page_s_place_in_the_site_and_is_words_where_the_site_has_none():
    index = "[a](article-a.md#x) [s](../scripts/x.py) ![p](plots/p.svg) [w](without-containers/REPORT.md) [l](../docs/limits.md) [f](plots) [gone](gone.md)"
    note = "[r](../reports/REPORT.md#x) [m](method.md) [d](../docs/limits.md) [t](use.md) [i](../reports/plots/p.svg) [e](https://example.org) \\[x\\](y.png)"
    pages = [site_pages.Page(*page) for page in (("REPORT.md", "index.md", index), ("article-a.md", "article-a.md", ""))]
    pages += [site_pages.Page("without-containers/REPORT.md", "without-containers/index.md", "[first](../REPORT.md) [l](../../docs/limits.md)")]
    pages += [site_pages.Page("../docs/limits.md", "docs/limits.md", note), site_pages.Page("../docs/method.md", "docs/method.md", "")]
    made = dict(site_pages.written(pages, lambda place: place == "plots/p.svg"))
    assert made["index.md"] == "[a](article-a.md#x) s ![p](plots/p.svg) [w](without-containers/index.md) [l](docs/limits.md) f [gone](gone.md)"
    assert made["without-containers/index.md"] == "[first](../index.md) [l](../docs/limits.md)"
    told = "[r](../index.md#x) [m](method.md) [d](limits.md) t [i](../plots/p.svg) [e](https://example.org) \\[x\\](y.png)"
    assert made["docs/limits.md"] == told


def test_the_script_of_the_verdicts_knows_every_word_and_the_style_a_colour_for_each(built):
    script, style = ((built.parent / "site_files" / name).read_text() for name in ("verdicts.js", "style.css"))
    for word in (HOLDS, IN_PART, UNDECIDED, REFUTED, NOT_TESTED):
        assert re.search(rf"[(|]{word}[|)]", script) and f".verdict-{word.replace(' ', '-')} {{" in style, word
        assert f'"{SIGNS[word]}": "{word.replace(" ", "-")}"' in script and f'content: "{SIGNS[word]}"' in style, word


def test_parts_of_a_claim_are_a_list_within_its_item(built):
    text = (built.parent / "FINDINGS.html").read_text()
    assert re.search(r"<li>claim\s*<ul>\s*<li>part</li>\s*</ul>\s*</li>\s*<li>another</li>", text)


def test_no_item_of_a_list_is_a_part_of_a_paragraph(built):
    """GitHub begins a list behind a line of text, the site's Markdown only behind an empty line."""
    run_on = [(path.name, text) for path in built.parent.rglob("*.html") for text in re.findall(r"<p>(.*?)</p>", path.read_text(), re.S) if "\n- " in text]
    assert not run_on


def test_tables_within_details_are_tables(built):
    (setting, *_) = sorted(built.parent.glob("inference-tools-*[0-9a-f].html"))
    assert re.search(r"<details[^>]*>\s*<summary>Where the time of a run went</summary>.*?<table>", setting.read_text(encoding="utf-8"), re.S)


def test_the_tabs_are_the_report_the_findings_the_articles_and_the_method(built):
    tabs = re.findall(r'md-tabs__link">\s*([^<]*?)\s*<', built.read_text(encoding="utf-8"))
    assert tabs == ["Report", "Findings", "Articles", "Rows", "How the numbers are measured and judged", "Runs"]


def test_a_row_of_a_setting_leads_to_its_page_with_its_raw_results(built):
    setting = sorted(built.parent.glob("inference-tools-*[0-9a-f].html"))[0]
    rows = {link for link in Page(setting).links if link.startswith("row-")}
    assert rows
    for row in rows:
        page = Page(built.parent / row)
        assert any(link.endswith("/result.json") for link in page.links) and setting.name in page.links


def test_raw_results_are_beside_the_pages(built):
    assert list(built.parent.glob("runs/*/result.json")) and not list(built.parent.rglob("log.txt"))


def test_runs_that_lie_elsewhere_are_told(tmp_path):
    with pytest.raises(KitError, match="lie outside of .*; type OUT="):
        (tmp_path / "out").mkdir()
        site.build(tmp_path / "out", tmp_path / "runs")


def test_a_site_of_runs_that_lie_elsewhere_is_refused_before_a_page_of_the_report_is_written(tmp_path):
    synthetic.write(tmp_path / "runs", [synthetic.record(synthetic.job("int8"))])
    words = ["report", "--runs", tmp_path / "runs", "--out", tmp_path / "out", "--format", "html"]
    done = subprocess.run([sys.executable, "-m", "scripts", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and re.fullmatch(r"error: the runs .* lie outside of .*; type OUT=.* with this command\n", done.stderr)
    assert not (tmp_path / "out").exists()


def test_a_build_waits_for_another_and_leaves_one_whole_site_and_nothing_else(built, tmp_path):
    folder = built.parents[1]
    shutil.copytree(folder, tmp_path / "out")
    (tmp_path / "out" / "site" / "of-an-older-report.html").write_text("")
    (tmp_path / "out" / ".site-killed").mkdir()
    code = "import sys; from pathlib import Path; from scripts.share import site; site.build(Path(sys.argv[1]), Path(sys.argv[1], 'runs'))"
    with locks.held(tmp_path / "out" / ".site.lock"):  # as the first build holds it
        second = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "out")], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(4)
        assert (tmp_path / "out" / ".site-killed").exists(), "the work of the first build stays"
    assert second.communicate()[1] == ""
    assert {path.name for path in tmp_path.joinpath("out").iterdir()} == {path.name for path in folder.iterdir()}
    names = [sorted(path.relative_to(place).as_posix() for path in place.rglob("*")) for place in (tmp_path / "out" / "site", folder / "site")]
    assert names[0] == names[1]


def test_what_a_folder_hides_links_to_or_would_run_in_a_browser_stays_out_of_the_site(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a-01"
    run.mkdir(parents=True)
    for name in ("result.json", "result.rejected.json", "log.txt", "profile.nsys-rep", ".lock", "page.html", "notes.md", "script.js"):
        (run / name).write_text("{}")
    (run / "trace.json.gz").symlink_to("/etc/passwd")
    (tmp_path / "elsewhere").write_text("secret")
    (run / "outputs.jsonl").hardlink_to(tmp_path / "elsewhere")
    os.mkfifo(run / "tokens.json")
    (tmp_path / "runs" / "b-01").symlink_to(run)
    for name in ("a-01", "b-01"):
        site._shown(tmp_path / "runs" / name, tmp_path / "site" / name, site.OF_RUNS)
    assert [path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.*")] == ["a-01/result.json"]


def test_a_result_too_large_for_the_report_fills_no_disk_with_a_site(tmp_path: Path) -> None:
    (tmp_path / "a-01").mkdir()
    (tmp_path / "a-01" / "job.json").write_text("{}")
    with (tmp_path / "a-01" / "result.json").open("wb") as sparse:
        sparse.truncate(door.LIMITS_BYTES["result.json"] + 1)
    site._shown(tmp_path / "a-01", tmp_path / "site", site.OF_RUNS)
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["job.json"]


def test_a_folder_or_a_page_beside_the_report_that_is_a_link_stays_out_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "notes.md").write_text("TOP SECRET")
    (tmp_path / "out" / "runs" / "a-01").mkdir(parents=True)
    (tmp_path / "out" / "REPORT.md").write_text("# Report")
    (tmp_path / "out" / "FINDINGS.md").symlink_to(tmp_path / "secret" / "notes.md")
    (tmp_path / "out" / "instruments").symlink_to(tmp_path / "secret")
    made = site.build(tmp_path / "out", tmp_path / "out" / "runs").parent
    assert not [path for path in made.rglob("*") if path.is_file() and b"TOP SECRET" in path.read_bytes()]


def test_a_folder_of_others_in_the_place_of_the_site_stays(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "runs", [synthetic.record(synthetic.job("int8"))])
    precious = tmp_path / "site" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "scripts", "report", "--runs", tmp_path / "runs", "--format", "html"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and re.fullmatch(r"error: .*/site was not written by the kit, .*; type OUT=/another/folder, or move it away\n", done.stderr)
    assert precious.read_text() == "mine" and not (tmp_path / "REPORT.md").exists()
    with pytest.raises(KitError, match="was not written by the kit"):
        site.build(tmp_path, tmp_path / "runs")
