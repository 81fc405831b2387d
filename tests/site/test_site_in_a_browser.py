"""The site of the committed results, as a reader sees it: wide and narrow, light and dark, with a mouse or without."""

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.site.chromium import Chromium
from tests.site.page import Page

#: Widths in px, schemes, and how many pages of settings, so that any two of these come together once. A narrow dark page shows most of
#: what may be wrong.
FEW, ALL = 3, 10_000
LOOKS = [
    (390, "dark", FEW),
    *(pytest.param(*look, marks=pytest.mark.full) for look in ((1280, "light", FEW), (1280, "dark", ALL), (390, "light", ALL))),
]

#: What a first visit may load: every file that the first page asks for, as many bytes as it has on the disk; a host that compresses sends less.
FIRST_VISIT_BYTES = 1_500_000

#: How far a page goes beyond its window to the right.
OVERHANG_PX = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

WITHOUT_CONTRAST = """axe.run({runOnly: ["color-contrast"]}).then((found) => found.violations.flatMap(
    (rule) => rule.nodes.map((node) => `${node.target}: ${node.any[0].message}`)))"""

#: Hide rows whose colours another row of the table has: of equal elements, classes and own styles, of the same parity. The time that axe takes
#: grows with the square of what is shown.
HIDE_ALIKE = """document.querySelectorAll("tbody").forEach((body) => {
    const seen = new Set();
    for (const row of body.rows) {
        const looks = [row, ...row.querySelectorAll("*")].map((one) => `${one.tagName}.${one.className}.${one.getAttribute("style")}`);
        const key = `${row.rowIndex % 2} ${looks}`;
        if (seen.has(key)) row.style.display = "none";
        seen.add(key);
    }
})"""

#: Rows of a table's body as texts of a column.
COLUMN = "[...document.activeElement.closest('table').tBodies[0].rows].map((row) => row.cells[{}].textContent.trim())"


def _pages(site: Path, alike: int) -> list[Path]:
    """All pages, but of rows and of environments the three largest, and of settings so many as `alike` says."""
    environments = set(site.glob("*-environment.html"))
    settings = {path for path in site.glob("*-*-*.html") if path.with_name(f"{path.stem}-environment.html") in environments}
    apart = set(site.glob("without-containers/*.html"))
    left_out = [_smaller(pages, most) for pages, most in ((set(site.glob("row-*.html")), FEW), (environments, FEW), (settings, alike), (apart, FEW))]
    assert len(settings) > FEW and len(apart) > FEW
    return sorted({*site.glob("*.html"), *site.glob("docs/*.html"), *apart}.difference(*left_out))


def _smaller(pages: set[Path], most: int) -> set[Path]:
    """All but the largest."""
    return pages - set(sorted(pages, key=lambda path: path.stat().st_size)[-most:])


def _tab_to(browser: Chromium, selector: str) -> None:
    """Press Tab until an element of this selector has the focus."""
    for _ in range(300):
        browser.press("Tab")
        if browser.value(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"300 times Tab reach no {selector}")


@pytest.mark.parametrize(("width_px", "scheme", "alike"), LOOKS)
def test_no_page_scrolls_sideways_complains_or_has_text_without_contrast(built, browser, axe_core, width_px, scheme, alike):
    browser.look(width_px, scheme)
    found = {}
    for page in _pages(built, alike):
        browser.open(page)
        overhang_px = browser.value(OVERHANG_PX)
        browser.value(f"{HIDE_ALIKE};{axe_core};0")
        wrong = [*browser.complaints, *([f"scrolls sideways by {overhang_px} px"] if overhang_px > 0 else []), *browser.value(WITHOUT_CONTRAST)]
        if wrong:
            found[page.name] = wrong
    assert not found
    dark = browser.value("document.body.dataset.mdColorScheme") == "slate"
    assert dark == (scheme == "dark"), "the site took the reader's scheme"


def test_these_checks_see_what_is_wrong(browser, axe_core, tmp_path):
    page = tmp_path / "wrong.html"
    page.write_text(
        "<!doctype html><html lang=en><title>t</title><style>body { background: #fff }</style><p style='color: #bbb; width: 2000px'>pale and wide</p>"
        "<table><tbody><tr><td>1<tr><td>2<tr><td>3<tr><td style='color: #bbb'>pale<tr><td><b style='color: #bbb'>pale</b></table>"
        "<img alt='' src='none.svg'><script>console.error('of a script'); throw new Error('thrown')</script>"
    )
    browser.look(390, "light")
    browser.open(page)
    browser.value(f"{HIDE_ALIKE};{axe_core};0")
    assert browser.value(OVERHANG_PX) > 1000
    assert len(browser.value(WITHOUT_CONTRAST)) == 3
    assert browser.value("[...document.querySelectorAll('tr')].map((row) => row.checkVisibility())") == [True, True, False, True, True]
    assert [any(word in one for one in browser.complaints) for word in ("of a script", "thrown", "none.svg")] == [True] * 3, browser.complaints


def test_every_link_and_anchor_of_every_page_resolves(built):
    pages = {path.relative_to(built).as_posix(): Page(path) for path in built.rglob("*.html")}
    links = {(name, link) for name, page in pages.items() for link in [*page.links, *page.loaded] if not urlsplit(link).scheme}
    assert len(links) > 1000 and any(name.startswith("row-") for name, _ in links)
    wrong = []
    for name, link in sorted(links):
        target = unquote(urlsplit(link).path)
        path, place = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name, unquote(urlsplit(link).fragment)
        there = (built / path).is_file()
        if not there or (place and path in pages and place not in pages[path].ids):
            wrong.append(f"{name}: {link}")
    assert not wrong


def test_a_first_visit_loads_little_and_nothing_from_elsewhere(built, browser):
    browser.look(1280, "light")
    browser.open(built / "index.html")
    loaded = set(browser.loaded)
    assert {path.suffix for path in loaded} >= {".html", ".css", ".js", ".svg"}
    assert [path for path in loaded if not path.is_relative_to(built)] == []
    assert sum(path.stat().st_size for path in loaded) < FIRST_VISIT_BYTES


SHOWN = """[...document.querySelectorAll('article tbody tr')].filter((row) => row.checkVisibility())
    .map((row) => [...row.cells].map((cell) => cell.textContent.trim()))"""


def _choose(browser: Chromium, name: str, value: str) -> None:
    """Choose a value as a reader does by keyboard: Tab to the choice, and type how the value begins."""
    for _ in range(300):
        browser.press("Tab")
        if browser.value("document.activeElement.matches('select') ? document.activeElement.parentElement.firstChild.textContent.trim() : ''") == name:
            break
    else:
        raise AssertionError(f"300 times Tab reach no choice of {name}")
    for key in value:
        browser.press(key)
    assert browser.value("document.activeElement.value") == value


def test_rows_are_chosen_by_gpu_stack_and_batch_by_keyboard(built, browser):
    browser.look(1280, "light")
    browser.open(built / "rows.html")
    headings = browser.value("[...document.querySelectorAll('article th')].map((cell) => cell.textContent.trim())")
    gpu, stack, batch = (headings.index(name) for name in ("GPU", "stack", "batch"))
    every = browser.value(SHOWN)
    expected = every
    for name, column, value in (("GPU", gpu, "NVIDIA H200"), ("stack", stack, "hopper"), ("batch", batch, "1")):
        _choose(browser, name, value)
        expected = [row for row in expected if row[column] == value]
        assert 0 < len(expected) < len(every) or name == "GPU"
        assert browser.value(SHOWN) == expected
        assert browser.value("document.querySelector('.filter-count').textContent") == f"{len(expected)} of {len(every)} rows"


def test_a_table_sorts_by_keyboard(built, browser):
    pages = (path for path in built.glob("inference-tools-*.html") if "environment" not in path.name)
    setting = max(pages, key=lambda path: path.stat().st_size)  # one with several systems
    browser.look(1280, "light")
    browser.open(setting)
    _tab_to(browser, "th")
    before = browser.value(COLUMN.format(0))
    browser.press("Enter")
    rising = browser.value(COLUMN.format(0))
    assert browser.value("document.activeElement.getAttribute('aria-sort')") == "ascending"
    browser.press(" ")
    falling = browser.value(COLUMN.format(0))
    assert browser.value("document.activeElement.getAttribute('aria-sort')") == "descending"
    assert sorted(rising) == sorted(before) and len(set(rising)) > 1
    assert rising != falling and rising[0] == falling[-1]


#: A click on a column's heading of the first table that has it; the texts of the column after it.
SORTED_BY = """(() => {{
    const heading = [...document.querySelectorAll('article th')].find((cell) => cell.textContent.trim() === {heading!r});
    heading.click();
    return [...heading.closest('table').tBodies[0].rows].map((row) => row.cells[heading.cellIndex].textContent.trim());
}})()"""


def _minutes(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * {"min": 1, "h": 60}[unit]


@pytest.mark.parametrize(
    ("page", "heading", "of"),
    [
        ("article-batch-generate.html", "texts", lambda cell: int(cell.replace(",", ""))),
        ("without-containers/batch-generate-current-controlled-450569fa.html", "10,000 items take", _minutes),
        ("runs.html", "started, UTC", str),
        ("index.html", "ms/token", lambda cell: float(cell.split()[0])),
    ],
)
def test_thousands_hours_and_dates_are_sorted_by_what_they_mean(built, browser, page, heading, of):
    browser.look(1280, "light")
    browser.open(built / page)
    cells = [cell for cell in browser.value(SORTED_BY.format(heading=heading)) if cell != "—"]
    assert len(set(cells)) > 2
    assert list(map(of, cells)) == sorted(map(of, cells))


MARKED = """[...document.querySelectorAll('article td')].map((cell) => [cell.textContent.trim(), cell.classList.contains('verdict')])"""


def test_a_cell_that_is_a_verdict_has_its_sign_and_prose_has_none(built, browser):
    browser.look(1280, "light")
    told = {}
    for page in (built / "FINDINGS.html", *built.glob("article-*.html")):
        browser.open(page)
        told |= {words: marked for words, marked in browser.value(MARKED) if re.match(r"holds|undecided|refuted|not tested", words)}
    verdict = r"(holds in part|holds|undecided|refuted|not tested)( \(judged by the variant \w+\))?( on \d GPUs? \(the article: \d\))?"
    assert {words: bool(re.fullmatch(verdict, words)) for words in told} == told
    assert True in told.values() and any(words.startswith("refuted") and not marked for words, marked in told.items())


COLOURS = """(() => {
    const colour = (element) => getComputedStyle(element).color;
    const link = [...document.querySelectorAll('article td a')].find((link) => link.parentElement.textContent.trim().startsWith('▼ ' + link.textContent));
    return [colour(link), colour(document.querySelector('article td a')), colour(link.parentElement.querySelector('.verdict-not-tested'))];
})()"""


def test_a_sign_has_a_colour_and_the_link_beside_it_that_of_links(built, browser):
    browser.look(1280, "light")
    browser.open(built / "index.html")
    link, any_link, sign = browser.value(COLOURS)
    assert link == any_link != sign


def test_on_a_narrow_screen_a_picture_keeps_the_size_of_its_words_and_scrolls_in_its_line(built, browser):
    browser.look(390, "light")
    browser.open(built / "index.html")
    width, line, inside = browser.value("""(() => {
        const picture = document.querySelector('article img[src*="plots/"]'), line = picture.parentElement;
        return [picture.getBoundingClientRect().width, line.clientWidth, line.scrollWidth];
    })()""")
    assert width == 820 and inside >= 820 > line


CUT = """[...document.querySelectorAll('.md-typeset__scrollwrap')].filter((wrap) => wrap.scrollWidth > wrap.clientWidth)
    .map((wrap) => getComputedStyle(wrap).backgroundAttachment)"""


def test_no_table_of_the_first_page_is_cut_and_one_that_is_has_a_shadow(built, browser):
    browser.look(1280, "light")
    browser.open(built / "index.html")
    assert browser.value(CUT) == []
    assert browser.value("document.querySelector('.md-sidebar--primary').checkVisibility()") is False, "it would hold a single word"
    browser.look(390, "light")
    browser.open(built / "index.html")
    assert set(browser.value(CUT)) == {"local, local, scroll, scroll"}
