"""python -m scripts.report.document [RUNS [OUT]]: write OUT/REPORT.md and OUT/plots from the runs folder alone.

The same runs give the same bytes. RUNS and OUT may also come from the environment; they are reports/runs and reports.
"""

import collections
import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.job import write_whole
from scripts import articles, pins, results, stats
from scripts.articles import Article
from scripts.errors import KitError
from scripts.machine.steps import Steps
from scripts.report import headlines, tables
from scripts.report.plots import bars, throughput, token_curves
from scripts.report.tables import NONE, anchor, prose, text
from scripts.report.views import batches, claims, mechanisms, profiles, provenance, token_table
from scripts.report.views.claims import Judged
from scripts.results import Record, Skipped
from scripts.verdicts import row_groups
from scripts.verdicts.row_groups import Group

NOTHING_YET = """
There is no result here yet. Type

- `make demo` — runs every backend that a CPU can run, on tiny models; no GPU and no Docker needed,
- `make bench-layer-parallel` — runs the first article's first row in its pinned image,

and then `make report`.
""".strip().splitlines()


#: While plots are drawn a line goes out so often.
TELL_EVERY_S = 2.0

#: What stands in the columns of the first table, for a reader who has seen nothing else.
WORDS = {
    "random": "seeded random weights: the texts are not the model's",
    "random (recipe 2)": "as random, with larger matrices of attention and of the layers' outputs, so that a fault shows in the tokens (docs/output-check.md)",
    "full": "the model's own shape, so that times and memory are those of the real model",
    "tiny": "a model with the same architecture and a few small layers: times and memory say nothing about the real model",
    "hub": "the model's own weights",
    "published": "the article's own arguments and dtypes, to the letter",
    "controlled": "the same dtype, token ids and lengths for every row",
}


def glossary(mine: Sequence[Group]) -> list[str]:
    """What the stacks, weights and variants of these groups are, a line each."""
    stacks = pins.load().stacks
    keys = [group.key for group in mine]
    told = {name: stacks[name]["summary"] for name in dict.fromkeys(key.stack for key in keys) if name in stacks}
    for name in dict.fromkeys([*(key.weights for key in keys), *(key.scale for key in keys), *(key.variant for key in keys)]):
        told |= {name: WORDS[name]} if name in WORDS else {}
    return [*(f"- *{text(name)}*: {prose(words)}" for name, words in told.items()), ""]


#: What the words and brackets in the tables of claims mean.
VERDICTS = """
*Reproduced*: the whole 95 % interval lies on the claim's side, and so does every pair of repeated runs. *Not reproduced*: it does not, so the claim
may be wrong here or only undecided. *Not tested*: a row is missing, or its output is wrong. Behind a ratio stand its 95 % interval within one run,
then the smallest and the largest ratio over pairs of repeated runs, then the published ratio.
""".strip()


def claim_sections(known: Mapping[str, Article], judged: Mapping[str, list[Judged]]) -> list[str]:
    """The claims of each article that was run, and the names of those that were not."""
    told = [slug for slug, verdicts in judged.items() if verdicts]
    if not told:
        return []
    lines = [VERDICTS, ""]
    for slug in told:
        article = known[slug]
        lines += [anchor(f"claims-{slug}"), "", f"## Claims of “{prose(article.title)}”", ""]
        lines += [f"[What the article really measured](#measured-{slug}).", ""] if article.measured else []
        lines += claims.first_page(judged[slug], article)
    for slug, article in known.items():
        if article.claims and slug not in judged:
            lines += [f"Not run yet: none of the {len(article.claims)} claims of “{prose(article.title)}” was tested; `make article-{slug}` does.", ""]
    return lines


def ran_on(by_article: Mapping[str, list[Group]]) -> list[str]:
    """What was run on what: a line a group."""
    rows = []
    for slug, mine in by_article.items():
        for group in mine:
            key = group.key
            good = [row for row in group.rows if tables.status(row) == "ok"]
            unchecked = sum(not row.check for row in good)
            aside = f", {unchecked} of them without an output to check" if unchecked else ""
            link = f"[{text(key.variant)}](#{group.slug})"
            what = [text(slug), text(key.device_words), text(key.stack), row_groups.ENGINES[key.engine], f"{key.weights}, {key.scale}", link]
            rows.append([*what, f"{len(good)} of {len(group.rows)}{aside}"])
    return tables.table(["article", "device", "stack", "engine", "weights", "variant", "rows that ran with the right output"], rows, left=6)


def group_section(group: Group, article: Article | None, pictures: Mapping[str, str]) -> list[str]:
    """One group: plots, tables, what failed, relations and claims."""
    lines = [anchor(group.slug), "", f"### {text(group.heading)}", ""]
    variant = article.variants.get(group.key.variant, {}) if article else {}
    lines += [f"{text(group.key.model)}: {text(group.key.facts)}. Variant {text(group.key.variant)}: {prose(variant.get('note', NONE))}.", ""]
    reason = group.cannot_judge()
    if article and reason and (article.claims or any(case.published for case in article.cases)):
        lines += [f"A {reason}: the article's numbers are not set beside these rows, and they judge none of its claims.", ""]
    kinds = {
        "throughput": "Items a second over the batch size",
        "tokens": "Milliseconds per token over the batch size",
        "time": "Time of the timed calls",
        "memory": "Peak memory",
    }
    for kind, word in kinds.items():
        name = f"{group.slug}-{kind}"
        lines += [f"![{word}: {text(group.heading)}](plots/{name}.svg)", ""] if name in pictures else []
    lines += batches.section(group, article)
    lines += token_table.table(group, article)
    lines += tables.time_table(group, article)
    lines += tables.remarks(group)
    lines += tables.around_table(group)
    lines += tables.memory_table(group)
    lines += mechanisms.section(group, article)
    parts = tables.parts_table(group)
    lines += ["<details><summary>Where the time of each run went</summary>", "", *parts, "</details>", ""] if parts else []
    if any(row.deviations() for row in group.rows):
        lines += [f"{tables.MARK} not exactly the pinned environment, see [its environment](#environment-{group.slug}).", ""]
    if article and not reason:
        lines += claims.speed_ups(group, article) + claims.of_group(group, article)
    return lines


def article_section(slug: str, mine: Sequence[Group], article: Article | None, judged: Sequence[Judged], pictures: Mapping[str, str]) -> list[str]:
    """One article: what it is, its groups, and what it really measured."""
    lines = [anchor(f"article-{slug}"), "", f"## {prose(article.title) if article else text(slug)}", ""]
    if article is None:
        lines += [f"The kit has no article {text(slug)} any more; its runs stand here without published numbers.", ""]
    else:
        lines += _about(article)
        every = claims.everywhere(judged, article)
        lines += [anchor(f"verdicts-{slug}"), "", "### Verdicts in every setting", "", *every] if every else []
    for group in mine:
        lines += group_section(group, article, pictures)
    if article and article.measured:
        title = "What the article really measured" if article.claims else "What this shows"
        lines += [anchor(f"measured-{slug}"), "", f"### {title}", "", article.measured.strip(), ""]
    return lines


def _about(article: Article) -> list[str]:
    facts = [article.date, article.hardware.get("gpu") and f"{article.hardware['gpus']} × {article.hardware['gpu']}", article.model["name"]]
    lines = [", ".join(text(fact) for fact in facts if fact) + ".", ""]
    lines += [" · ".join(f"<{link}>" for link in article.references), ""] if article.references else []
    notes = [f"- {text(case.name)}: {prose(case.note)}" for case in article.cases if case.note]
    return [*lines, *notes, ""] if notes else lines


def markdown(
    records: Sequence[Record],
    skipped: Sequence[Skipped],
    known: Mapping[str, Article],
    by_article: Mapping[str, list[Group]],
    judged: Mapping[str, list[Judged]],
    pictures: Mapping[str, str],
    runs_link: str,
    with_findings: bool = False,
) -> str:
    """The report's text; `judged` is what `judge` gives, `with_findings` tells whether FINDINGS.md lies beside it."""
    lines = ["<!-- Generated by `make report` from the runs alone; change nothing here. -->", "", "# LLM inference, measured again", ""]
    lines += ["What these numbers mean, and why they are as they are: [FINDINGS.md](FINDINGS.md), written by hand.", ""] if with_findings else []
    if skipped:
        lines += [f"**{len(skipped)} of the runs are left out** because they are damaged or did not finish: [which and why](#skipped).", ""]
    if not records:
        lines += [*NOTHING_YET, ""]
    else:
        short = [line for slug, verdicts in judged.items() for line in claims.in_short(verdicts, known[slug])]
        lines += ["## In short", "", *short, ""] if short else []
        lines += [anchor("ran"), "", "## What was run on what", "", *glossary(list(itertools.chain.from_iterable(by_article.values()))), *ran_on(by_article)]
        lines += claim_sections(known, judged)
        for slug, mine in by_article.items():
            lines += article_section(slug, mine, known.get(slug), judged.get(slug, []), pictures)
        lines += profiles.section(records, known)
        lines += [anchor("environment"), "", "## Environment and provenance", ""]
        for group in itertools.chain.from_iterable(by_article.values()):
            lines += provenance.environment(group, known.get(group.key.article))
        lines += [anchor("method"), "", "## How the numbers are measured", "", *provenance.METHOD, ""]
        lines += [anchor("runs"), "", "## Runs", "", *provenance.runs_table(records, runs_link)]
    if skipped:
        lines += [anchor("skipped"), "", "## Skipped", "", "Under the runs folder, but no result:", "", *provenance.skipped_list(skipped)]
    return "\n".join(lines).rstrip() + "\n"


def judge(by_article: Mapping[str, list[Group]], known: Mapping[str, Article]) -> dict[str, list[Judged]]:
    """{slug: the verdicts on the claims} of every article that the kit has."""
    return {slug: claims.judge_article(mine, known[slug]) for slug, mine in by_article.items() if slug in known}


def draw(mine: Sequence[Group], known: Mapping[str, Article]) -> dict[str, str]:
    """{name: SVG} of every picture that the groups give; standard error shows how far it is."""
    kinds = {
        "time": bars.time_plot,
        "memory": lambda group, _: bars.memory_plot(group),
        "throughput": lambda group, _: throughput.draw(group),
        "tokens": token_curves.batch_plot,
    }
    pictures, steps, told_at = {}, Steps(len(mine) * len(kinds)), 0.0
    for group, (word, plot) in itertools.product(mine, kinds.items()):
        how_far = steps.next()
        if time.monotonic() - told_at > TELL_EVERY_S:
            told_at = time.monotonic()
            print(f"report: drawing plots {how_far}", file=sys.stderr, flush=True)
        picture = plot(group, known.get(group.key.article))
        if picture:
            pictures[f"{group.slug}-{word}"] = picture
    return pictures


def save(out: Path, page: str, pictures: Mapping[str, str]) -> Path:
    """Write the report and its plots, and remove plots of groups that are gone."""
    try:
        (out / "plots").mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            write_whole(out / "plots" / f"{name}.svg", picture)
        for old in (out / "plots").glob("*.svg"):
            if old.stem not in pictures:
                old.unlink()
        write_whole(out / "REPORT.md", page)
    except OSError as error:
        why = f"cannot write the report to {out}: {error.strerror or error}"
        raise KitError(f"{why}; the runs are as they were, type OUT=<another folder> make report") from error
    return out / "REPORT.md"


def show(mine: Sequence[Group], skipped: Sequence[Skipped], verdicts: Sequence[str]) -> None:
    """The rows as compact tables on the terminal; below them how many agree with plain transformers, the verdicts, and skipped files."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for group in mine:
        grid = Table(title=escape(f"{group.key.article}: {group.heading}"), title_justify="left")
        for header in ("case", "n", "status", "ms (new tokens)", "ms/token"):
            grid.add_column(header, justify="left" if header in ("case", "status") else "right", no_wrap=True)
        for row in group.rows:
            ok = row.status == "ok"
            fewest = row.new_tokens[0] if ok and row.new_tokens else 0
            times = f"{tables.mean_std(stats.summarise(row.timed_ms(fewest)))} ({fewest})" if fewest else NONE
            further = tables.further_token(row).partition(" (")[0] if ok else NONE
            grid.add_row(escape(row.name), str(row.count), tables.status(row).replace("*", ""), times, further)
        console.print(grid)
    if mine:
        console.print("n: devices; ms: mean ± std of the timed calls; ms/token: each token after those", markup=False, highlight=False)
        rows = [row for group in mine for row in group.rows]
        ended = collections.Counter(tables.status(row).replace("*", "") for row in rows)
        others = "".join(f", {count} {word}" for word, count in sorted(ended.items()) if word != "ok")
        checked = sum(tables.status(row) == "ok" and bool(row.check) for row in rows)
        unchecked = f", {ended['ok'] - checked} ran without an output check" if ended["ok"] > checked else ""
        console.print(f"{checked} of {len(rows)} rows agree with plain transformers{unchecked}{others}", markup=False, highlight=False)
    for line in verdicts:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for one in skipped:
        console.print(f"skipped {one.path}: {one.reason}", markup=False, highlight=False, soft_wrap=True)


def _place(article: Article | None) -> tuple[bool, str]:
    """Articles in the order of their time, then what made no claims."""
    return not (article and article.claims), article.stack if article else ""


def _by_article(mine: Sequence[Group], known: Mapping[str, Article]) -> dict[str, list[Group]]:
    """{slug: its groups}, articles in the order of the report."""
    by_article = {slug: list(found) for slug, found in itertools.groupby(mine, key=lambda group: group.key.article)}
    return dict(sorted(by_article.items(), key=lambda pair: _place(known.get(pair[0]))))


def check_headlines() -> None:
    """Raise KitError where the README's table of headlines is not what the kit's own results give."""
    records, _ = results.load_all(results.RUNS)
    known = articles.load_all()
    headlines.check(headlines.table(judge(_by_article(row_groups.build(records, known), known), known), known))


def write(runs: Path, out: Path) -> Path:
    """Write the report on a runs folder to `out`, print its table and its path, return the path; raises KitError."""
    records, skipped = results.load_all(runs)
    known = articles.load_all()
    mine = row_groups.build(records, known)
    by_article = _by_article(mine, known)
    print(f"report: {len(records)} runs in {len(mine)} groups; judging the articles' claims", file=sys.stderr, flush=True)
    judged, pictures = judge(by_article, known), draw(mine, known)
    print("report: writing the text", file=sys.stderr, flush=True)
    runs_link = Path(os.path.relpath(runs, out)).as_posix()
    path = save(out, markdown(records, skipped, known, by_article, judged, pictures, runs_link, (out / "FINDINGS.md").exists()), pictures)
    if (runs, out) == (results.RUNS, results.RUNS.parent):
        headlines.save(headlines.table(judged, known))
    show(mine, skipped, [line for lines in judged.values() for line in claims.for_terminal(lines)])
    print(path)
    return path
