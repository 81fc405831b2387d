"""A page per row, for site and bundle: every call as a dot, every number with its meaning, the raw results and the command that repeats the row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts import articles, results
from scripts.articles import Article
from scripts.report import cells, data, failures, pages, rerun_command, text
from scripts.report.data import Line
from scripts.report.plots import call_dots
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, lines, link
from scripts.report.views import systems
from scripts.results import Record
from scripts.verdicts import row_groups
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

#: The page that lists the rows of all settings.
ALL = "rows.md"


@dataclass(frozen=True)
class RowPages:
    """`texts` and `pictures` by their names; `of_place` leads from a row's anchor on its setting's page to the row's page; `overview` is the page ALL."""

    texts: Mapping[str, str]
    pictures: Mapping[str, str]
    of_place: Mapping[str, str]
    overview: str


def of_runs(runs: Path, runs_link: str) -> RowPages:
    """The pages of all rows of a folder of results. As in the report, runs on which a page fails are left out, and an article with a mistake gives no facts.

    The report is written first: it tells such a mistake, and a report that the kit keeps stops at it.
    """
    return of_records(results.load_runs(runs)[0], articles.without_mistakes(), runs, runs_link)


def of_records(records: Sequence[Record], known: Mapping[str, Article], runs: Path, runs_link: str) -> RowPages:
    """As of_runs, for results that are read already."""
    return failures.made_of(records, runs, lambda kept: made(row_groups.build(kept, known), known, runs_link))[0]


def made(groups: Sequence[Group], known: Mapping[str, Article], runs_link: str) -> RowPages:
    """The pages of all rows; `runs_link` leads from the report to the runs. Raises failures.Broken, which names the row and its runs."""
    texts, pictures, of_place = {}, {}, {}
    for group in groups:
        for row in group.rows:
            with failures.part(f"the page of {row.name} of {group.heading}", row.runs):
                name = name_of(group, row)
                if picture := call_dots.plot(row, group.heading):
                    pictures[name] = picture
                texts[f"{name}.md"] = f"{pages.MARKER}\n\n{_page(group, row, known.get(group.key.article), name, bool(picture), runs_link)}\n"
                of_place[systems.place_of(group, row)] = f"{name}.md"
    return RowPages(texts, pictures, of_place, f"{pages.MARKER}\n\n{_all_rows(groups, known)}\n")


def _all_rows(groups: Sequence[Group], known: Mapping[str, Article]) -> Markdown:
    """The names of the columns GPU, stack and batch are those that scripts/share/site_files/filter.js looks for."""
    columns = [
        Column[Line]("row", lambda line: link(line.row.name, f"{name_of(line.group, line.row)}.md"), words=True),
        Column[Line]("article", lambda line: line.group.key.article, words=True),
        Column[Line]("variant", lambda line: line.group.key.variant, words=True),
        Column[Line]("stack", lambda line: line.group.key.stack, words=True),
        Column[Line]("GPU", lambda line: line.group.key.model, words=True),
        Column[Line]("GPUs", lambda line: line.row.count),
        Column[Line]("batch", lambda line: line.row.batch_size),
        Column[Line]("new tokens", lambda line: line.new_tokens or cells.NONE),
        Column[Line]("ms", lambda line: data.shown(line.summary.mean) if line.summary else cells.NONE),
        Column[Line]("check", lambda line: cells.status(line.row), words=True),
    ]
    return blocks(
        Markdown("# All rows"),
        Markdown("Rows of all settings; mean call in ms. Every column of them: [results.csv]({}), [results.json]({}).").format(data.CSV, data.JSON),
        table(columns, [line for group in groups for line in data.lines_of(group, known.get(group.key.article))]),
    )


def name_of(group: Group, row: Row) -> str:
    """ "row-inference-tools-hopper-published-1f09c1d2-deepspeed-2"."""
    return f"row-{pages.of_setting(group).removesuffix('.md')}-{text.name_of(systems.place_of(group, row).removeprefix(f'{group.slug}--'))}"


def _page(group: Group, row: Row, article: Article | None, name: str, pictured: bool, runs_link: str) -> Markdown:
    up = link(group.heading, pages.of_setting(group)) + Markdown(" · ") + link("environment", pages.of_environment(group))
    again = rerun_command.shown(row.record, article)
    return blocks(
        Markdown("# {}: {}").format(cells.on(row), group.key.article),
        up,
        Markdown("![Every timed call of {}]({})").format(row.name, Markdown(f"plots/{name}.svg")) if pictured else Markdown(),
        Markdown("**{}**: {}").format(row.status, row.record.reason) if row.status != "ok" else Markdown(),
        *(_numbers(line) for line in data.lines_of_row(group, row, article)),
        Markdown("## Runs"),
        lines(*(_run(run, run is row.output_run, runs_link) for run in row.runs)),
        blocks(Markdown("## The same again"), again) if again else Markdown(),
    )


def _numbers(line: Line) -> Markdown:
    columns = [
        Column[data.Column]("number", lambda column: column.name, words=True),
        Column[data.Column]("value", lambda column: data.shown(column.value(line)), words=True),
        Column[data.Column]("meaning", lambda column: column.meaning, words=True),
    ]
    heading = Markdown("## Calls of {}").format(cells.tokens(line.new_tokens)) if line.new_tokens else Markdown("## Its numbers")
    return blocks(heading, table(columns, [column for column in data.COLUMNS if column.value(line) not in (None, "")]))


def _run(run: Record, is_shown: bool, runs_link: str) -> Markdown:
    counts = Markdown(" (its output stands in the tables)") if is_shown else Markdown()
    files = Markdown(", ").join(link(name, f"{runs_link}/{run.id}/{name}") for name in ("result.json", "job.json"))
    return Markdown("- {}{}, {}: {}").format(run.id, counts, run.status, files)
