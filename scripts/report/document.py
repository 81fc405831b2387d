"""From a folder of runs to the pages of the report, their plots, the README's headlines and quoted numbers: the same runs give the same bytes.

The kit keeps two reports: the first, on runs in containers of the pinned images, and one on runs without containers.
"""

import contextlib
import dataclasses
import datetime
import functools
import gc
import itertools
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.job import write_whole
from scripts import articles, results
from scripts.articles import Article
from scripts.errors import KitError, UsageError
from scripts.paths import ROOT
from scripts.report import data, failures, headlines, page, pages, quoted, row_pages, terminal
from scripts.report.content import Beside, Content, Links
from scripts.report.page import Body
from scripts.report.views import VIEWS, claims, overview
from scripts.results import Record, Skipped, ahead, json_schema
from scripts.units import counted
from scripts.verdicts import judging, row_groups, version_1
from scripts.verdicts.judging import ArticleVerdicts
from scripts.verdicts.row_groups import Group


@dataclass(frozen=True)
class Report:
    """What a report's runs give; `data` are the rows as data, {file name: text}."""

    content: Content
    body: Body
    data: Mapping[str, str]


def judged(records: Sequence[Record], known: Mapping[str, Article], links: Links = Links()) -> Content:
    """The records as groups, and the verdicts on the articles' claims, of a report with these links."""
    with failures.part("the groups of rows", records):
        by_article = _by_article(row_groups.build(records, known), known)
    earlier, beside = version_1.read(), links.beside.groups if links.beside else ()
    verdicts = {slug: _verdicts(groups, known[slug], earlier, beside) for slug, groups in by_article.items() if slug in known}
    return Content(records, known, by_article, verdicts, {}, links)


def _verdicts(groups: Sequence[Group], article: Article, earlier: Mapping[version_1.Place, version_1.Frozen], beside: Collection[str]) -> ArticleVerdicts:
    with failures.part(f"the verdicts on {article.slug}", row_groups.runs_of(groups)):
        return judging.judge_article(groups, article, earlier, beside)


def made(records: Sequence[Record], known: Mapping[str, Article], links: Links, broken: Collection[str]) -> Report:
    """Everything that is made of these records, without the `broken` views; raises failures.Broken, which names the part and its runs."""
    content = judged(records, known, links)
    pictures = drawn(content.groups, known, broken)
    with failures.part("the picture of all claims", records):
        if of_claims := overview.picture(content.verdicts):
            pictures[overview.PICTURE] = of_claims
    content = dataclasses.replace(content, pictures=pictures, broken=broken)
    with failures.part("the rows as data", records):
        rows = data.files(content.groups, known)
    return Report(content, page.body(content), rows)


def drawn(groups: Sequence[Group], known: Mapping[str, Article], broken: Collection[str] = ()) -> dict[str, str]:
    """{name: SVG} of every picture that the groups give; `broken` as in Content."""
    plots = [(view.name, view.plot) for view in VIEWS if view.plot and view.name not in broken]
    pictures = {}
    for group, (name, plot) in itertools.product(groups, plots):
        with failures.part(f"the plot {name} of {group.heading}", row_groups.runs_of([group]), name):
            picture = plot(group, known.get(group.key.article))
        if picture:
            pictures[f"{group.slug}-{name}"] = picture
    return pictures


def save(out: Path, texts: Mapping[str, str], pictures: Mapping[str, str]) -> Path:
    """Write the report's pages and plots, and remove pages and plots of groups that are gone. Raises KitError where a file of somebody else is in the way."""
    try:
        _refuse_files_of_others(out, texts)
        gone = pages.pictures_shown(out) - set(pictures)
        (out / "plots").mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            write_whole(out / "plots" / f"{name}.svg", picture)
        for name in gone:
            (out / "plots" / f"{name}.svg").unlink(missing_ok=True)
        for name, text in texts.items():
            write_whole(out / name, text)
        for path in pages.written_by_the_kit(out):
            if path.name not in texts:
                path.unlink()
    except OSError as error:
        why = f"cannot write the report to {out}: {error.strerror or error}"
        raise KitError(f"{why}; the runs are as they were, type OUT=<another folder> make report") from error
    return out / pages.INDEX


def _refuse_files_of_others(out: Path, names: Iterable[str]) -> None:
    """Raise KitError where a page, or the rows as data, would replace a file that `make report` did not write."""
    own = {path.name for path in pages.written_by_the_kit(out)}
    kept = [out / name for name in names if (out / name).exists() and name not in own and (name.endswith(".md") or not own)]
    if kept:
        raise KitError(f"{kept[0]} was not written by the kit, and the report has a page of this name; type OUT=/another/folder")


def _place(article: Article | None) -> tuple[bool, str]:
    """The sort key of an article: those with claims come first, by stack: names of stacks are dates, and `current` sorts after them."""
    return not (article and article.claims), article.stack if article else ""


def _by_article(groups: Sequence[Group], known: Mapping[str, Article]) -> dict[str, list[Group]]:
    """{slug: its groups}, articles in the order of the report."""
    by_article = {slug: list(of_article) for slug, of_article in itertools.groupby(groups, key=lambda group: group.key.article)}
    return dict(sorted(by_article.items(), key=lambda pair: _place(known.get(pair[0]))))


@dataclass(frozen=True)
class Written:
    """What `make report` writes to `out` for a folder of runs: the text of every page, of the rows as data and of the schemas; the content behind them,
    and the runs left out.

    faults  {name: its mistake} of the views that are left out
    """

    runs: Path
    out: Path
    texts: Mapping[str, str]
    content: Content
    skipped: Sequence[Skipped]
    faults: Mapping[str, failures.OwnFault]


@contextlib.contextmanager
def _records_stay() -> Iterator[None]:
    """Keep the records out of garbage collection: they are needed to the end, and scanning thousands of them takes a fifth of the time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _written(runs: Path, out: Path) -> Written:
    known = _articles_for(runs)  # before the records, which slow garbage collection down
    records, unreadable = results.load_runs(runs)
    print(f"report on {os.path.relpath(runs)}: {counted(len(records), 'run')}; judging the articles' claims", file=sys.stderr, flush=True)
    if note := ahead.note(records, datetime.datetime.now(datetime.UTC)):
        print(note, file=sys.stderr, flush=True)
    links = _links(runs, out, known)
    with _records_stay():
        report, left_out, faults = _without_faulty_views(records, runs, known, links)
    skipped = sorted([*unreadable, *left_out], key=lambda skip: skip.path)
    texts = page.texts(report.body, skipped, with_findings=(out / "FINDINGS.md").exists())
    return Written(runs, out, {**texts, **report.data, **json_schema.files()}, report.content, skipped, faults)


def _without_faulty_views(
    records: Sequence[Record], runs: Path, known: Mapping[str, Article], links: Links
) -> tuple[Report, list[Skipped], dict[str, failures.OwnFault]]:
    """(the report, the runs left out, {name: its mistake} of the views left out)."""
    faults: dict[str, failures.OwnFault] = {}
    while True:
        try:
            report, left_out = failures.made_of(records, runs, functools.partial(made, known=known, links=links, broken=tuple(faults)))
            return report, left_out, faults
        except failures.OwnFault as fault:
            if not fault.view or fault.view in faults:  # only a view can be left out, and only once
                raise
            faults[fault.view] = fault


def _articles_for(runs: Path) -> dict[str, Article]:
    """Every article for the reports that the kit keeps; for other reports, articles whose files have mistakes are left out, with notes."""
    return articles.load_all() if runs in (results.RUNS, results.WITHOUT_CONTAINERS) else articles.without_mistakes_told()


def _links(runs: Path, out: Path, known: Mapping[str, Article]) -> Links:
    first = _link(out, results.RUNS.parent / pages.INDEX) if runs == results.WITHOUT_CONTAINERS else ""
    limits = _link(out, ROOT / "docs" / "limits.md") if out.resolve().is_relative_to(ROOT) else ""
    command = "" if runs in (results.RUNS, results.WITHOUT_CONTAINERS) else "/folder/of/these/runs"  # a page does not show paths of this machine
    return Links(_link(out, runs), command, _beside(runs, out, known), first, limits)


def _link(out: Path, target: Path) -> str:
    return Path(os.path.relpath(target, out)).as_posix()


def _beside(runs: Path, out: Path, known: Mapping[str, Article]) -> Beside | None:
    """What the kit's first report says about the report on runs without containers; None for other reports, or where there are no such runs."""
    apart = results.WITHOUT_CONTAINERS
    records = results.load_all(apart)[0] if runs == results.RUNS else []
    groups = {group.slug for group in row_groups.build(records, known)}
    return Beside(len(records), _link(out, apart.parent / pages.INDEX), groups) if records else None


def _kept() -> list[Written]:
    """The reports that the kit keeps: the first, and the one on runs without containers where there are such runs, or pages on earlier ones."""
    apart = results.WITHOUT_CONTAINERS
    folders = [results.RUNS, *([apart] if results.any_run(apart) or pages.written_by_the_kit(apart.parent) else [])]
    return [_written(runs, runs.parent) for runs in folders]


def check_pages() -> None:
    """Raise KitError where a page or plot of the kit's reports, the README's headlines or a number in a page written by hand is not what its results give."""
    every = _kept()
    _refuse_faults(every)
    for written in every:
        out = written.out
        expected = {out / "plots" / f"{name}.svg": picture for name, picture in written.content.pictures.items()}
        expected |= {out / name: text for name, text in written.texts.items()}
        stale = [path for path, text in expected.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
        stale += [path for path in [*(out / "plots").glob("*.svg"), *pages.written_by_the_kit(out)] if path not in expected]
        foreign = [path for path in stale if path not in expected and path.suffix == ".svg" and path.stem not in pages.pictures_shown(out)]
        if made := [path for path in stale if path not in foreign]:
            raise KitError(f"{made[-1].relative_to(ROOT)} is not what {out.relative_to(ROOT)}/runs gives. Try: make report")
        if foreign:
            place = foreign[0].relative_to(ROOT)
            raise KitError(f"no page shows the plot {place}, and make report keeps such files; type rm {place}")
    headlines.check(headlines.table(every[0].content.verdicts))
    quoted.check([record for written in every for record in written.content.records])


def write(runs: Path, out: Path, with_rows: bool = False) -> Path:
    """Write the report on a runs folder to `out`, with a page per row if asked, print its table and its path, return the path; raises KitError.

    The report on runs without containers is written with the kit's first one. Where the code of a view fails, all else is written before the error.
    """
    if out.resolve().is_relative_to(runs.resolve()):
        raise UsageError(
            f"OUT is {str(out)!r}, which lies among the runs {runs}, allowed is a folder outside of them; leave OUT out, or type OUT=/another/folder"
        )
    is_first = (runs, out) == (results.RUNS, results.RUNS.parent)
    every = _kept() if is_first else [_written(runs, out)]
    path, *_ = [_saved(written, with_rows) for written in every]
    content, skipped = every[0].content, every[0].skipped
    if is_first:
        headlines.save(headlines.table(content.verdicts))
        quoted.save([record for written in every for record in written.content.records])
    terminal.show(content.groups, skipped, [line for verdicts in content.verdicts.values() for line in claims.for_terminal(verdicts)])
    print(path)
    _refuse_faults(every)
    return path


def _refuse_faults(every: Sequence[Written]) -> None:
    """Raise KitError where a report lacks a view: a line per view, on the fault in the first of these reports that lacks the view."""
    faults = {view: fault for written in reversed(every) for view, fault in written.faults.items()}
    if faults:
        raise KitError("\n".join(f"{fault}; until then the report is without this view" for fault in faults.values()))


def _saved(written: Written, with_rows: bool) -> Path:
    content, texts, pictures = written.content, {**written.texts}, {**written.content.pictures}
    if with_rows:
        rows = row_pages.of_records(content.records, content.known, written.runs, _link(written.out, written.runs))
        texts |= {**rows.texts, row_pages.ALL: rows.overview}
        pictures |= rows.pictures
    return save(written.out, texts, pictures)
