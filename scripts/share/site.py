"""make report FORMAT=html: the report as a small static site, in reports/site or OUT/site.

Made by mkdocs-material from the very Markdown that `make report` writes, with the raw results beside it. Nothing in it is fetched from
elsewhere, so it opens from a disk without a network.
"""

import html
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts import results, surroundings
from scripts.errors import KitError
from scripts.machine import locks
from scripts.report import pages, row_pages
from scripts.results import door
from scripts.share import rebuilt, ro_crate, runs_place, site_pages

FILES = Path(__file__).resolve().parent / "site_files"

#: The titles of the first tabs.
TITLES = {pages.INDEX: "Report", site_pages.FINDINGS: "Findings"}
#: The pages with tabs after the articles; links on the tabs' pages lead to the settings and their environments.
LAST = (pages.METHOD, pages.PROFILES, pages.RUNS)
ROWS = {"Rows": row_pages.ALL}

#: The files that a site shows beside its pages. HTML or a program would run in a reader's browser, so no other name is let in.
FOLDERS = {"plots": ("*.svg",), "instruments": ("*.json", "*.md")}
#: Nsight Systems compresses its report, in which the name of the machine, its user and variables stand: nobody could search it for them, so a site lacks it.
OF_RUNS = ("result.json", "job.json", "tokens.json", "outputs.jsonl", "trace.json.gz")


def settings(docs: Path, out: Path, nav: list[dict[str, Any]]) -> dict[str, Any]:
    """mkdocs' own settings. `font: false` and no search plugin: both would fetch from a network."""
    toggles = [
        {"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": {"icon": "material/weather-night", "name": "to dark"}},
        {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": {"icon": "material/weather-sunny", "name": "to light"}},
    ]
    return {
        "site_name": "LLM inference, measured again",
        "docs_dir": str(docs),
        "site_dir": str(out),
        "use_directory_urls": False,
        "strict": True,
        "nav": nav,
        "theme": {"name": "material", "font": False, "features": ["navigation.tabs", "navigation.top", "toc.follow"], "palette": toggles},
        "plugins": [],
        "markdown_extensions": ["tables", "md_in_html", {"toc": {"permalink": True, "toc_depth": "2-3"}}],
        "extra": {"generator": False},
        "extra_javascript": [f"site_files/{name}.js" for name in ("sort", "filter", "verdicts")],
        "extra_css": ["site_files/style.css"],
        "validation": {"links": {"anchors": "warn", "not_found": "warn", "unrecognized_links": "warn"}},
    }


def _nav(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tabs: the report, the findings, the articles, and what stands behind all of them."""
    first = [{title: site_pages.FIRST[name]} for name, title in TITLES.items() if name in texts]
    articles = [{_title(texts[name]): name} for name in texts if name.startswith("article-")]
    last = [{_title(texts[name]): name} for name in LAST if name in texts]
    middle: list[dict[str, Any]] = [{"Articles": articles}, ROWS] if articles else []
    return [*first, *middle, *last]


def _title(text: str) -> str:
    """A page's first heading without Markdown's escapes."""
    heading = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "Page")
    return html.unescape(re.sub(r"\\(.)", r"\1", heading))


def _work_folder(report: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder on the disk of the site, so that the site is swapped at once; folders of builds that were killed are removed."""
    for left in report.glob(".site-*"):
        shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=".site-", dir=report)


def _shown(folder: Path, target: Path, patterns: Sequence[str]) -> None:
    """Copy the files of these names from a folder, but no links, nothing from a folder that is a link, and no file larger than the door lets in."""
    for path in sorted(folder.iterdir()) if door.is_plain(folder) else ():
        shown = path.is_file() and door.is_plain(path) and any(path.match(pattern) for pattern in patterns)
        if shown and path.stat().st_size <= door.LIMITS_BYTES.get(path.name, door.LIMITS_BYTES["result.json"]):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.name, follow_symlinks=False)


def _fill(docs: Path, report: Path, runs: Path, texts: Mapping[str, str]) -> None:
    """Put everything that a site is made of into `docs`."""
    place_of_runs = runs_place.within(report, runs)
    rows = row_pages.of_runs(runs, place_of_runs.as_posix())
    (docs / ro_crate.NAME).write_text(ro_crate.text({place_of_runs.as_posix(): results.load_all(runs)[0]}), encoding="utf-8")
    _fill_beside(docs, report, runs, place_of_runs)
    (docs / "plots").mkdir(exist_ok=True)
    for name, picture in rows.pictures.items():
        (docs / "plots" / f"{name}.svg").write_text(picture, encoding="utf-8")
    every = [*site_pages.within("", {**texts, **rows.texts, row_pages.ALL: rows.overview}), *_of_the_kit(docs, report, texts)]
    for place, text in site_pages.written(every, lambda place: (docs / place).is_file(), rows.of_place):
        (docs / place).parent.mkdir(parents=True, exist_ok=True)
        (docs / place).write_text(text, encoding="utf-8")
    shutil.copytree(FILES, docs / FILES.name)


def _of_the_kit(docs: Path, report: Path, texts: Mapping[str, str]) -> list[site_pages.Page]:
    """The pages beside the report to which the findings lead: notes, and the report without containers, whose files are put into `docs`."""
    if site_pages.FINDINGS not in texts:
        return []
    apart, runs = report / site_pages.APART, report / site_pages.APART / results.WITHOUT_CONTAINERS.name
    if not (apart / pages.INDEX).is_file() or not runs.is_dir() or not all(map(door.is_plain, (apart, runs))):
        return site_pages.notes()
    _fill_beside(docs / apart.name, apart, runs, Path(runs.name))
    return [*site_pages.notes(), *site_pages.within(apart.name, site_pages.of_report(apart))]


def _fill_beside(docs: Path, report: Path, runs: Path, place_of_runs: Path) -> None:
    """Put what the pages of a report show and lead to into `docs`: rows as data, plots, measurements and raw results."""
    docs.mkdir(exist_ok=True)
    for name in rebuilt.DATA_FILES:
        if (report / name).is_file() and door.is_plain(report / name):
            shutil.copyfile(report / name, docs / name, follow_symlinks=False)
    for name, patterns in FOLDERS.items():
        if (report / name).is_dir():
            _shown(report / name, docs / name, patterns)
    for run in runs.iterdir():
        if run.is_dir():
            _shown(run, docs / place_of_runs / run.name, OF_RUNS)


def refuse_foreign(report: Path) -> None:
    """KitError where the folder of the site holds something else than a site of the kit, which a new site would replace."""
    out = report / "site"
    is_foreign = out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / FILES.name).is_dir())
    if is_foreign:
        raise KitError(f"{out} was not written by the kit, and the site has this place; type OUT=/another/folder, or move it away")


def build(report: Path, runs: Path) -> Path:
    """Build the site of a report's folder; returns its first page. A whole new site replaces the old one; one process at a time builds."""
    refuse_foreign(report)
    out = report / "site"
    with locks.held(report / ".site.lock"), _work_folder(report) as work:
        docs, made = Path(work, "docs"), Path(work, "site")
        docs.mkdir()
        texts = site_pages.of_report(report)
        _fill(docs, report, runs, texts)
        config = Path(work, "mkdocs.yml")
        config.write_text(yaml.safe_dump(settings(docs, made, _nav(texts))), encoding="utf-8")
        environment = {**surroundings.current().variables, "NO_MKDOCS_2_WARNING": "1"}
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
        if done.returncode != 0:
            raise KitError(f"the site was not built: {(done.stdout + done.stderr).strip()[-2000:]}")
        # The map for search engines carries today's date, but the same runs must give the same site; a 404 page would lead to the host's root.
        for name in ("sitemap.xml", "sitemap.xml.gz", "404.html"):
            (made / name).unlink(missing_ok=True)
        if out.exists():
            out.rename(Path(work, "old"))
        made.rename(out)
    return out / "index.html"
