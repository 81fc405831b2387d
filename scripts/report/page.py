"""The report's page: sections in their order, each from the view or the template that owns it."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from scripts import pins
from scripts.articles import Article
from scripts.report import cells, failures
from scripts.report.cells import MARK, NONE
from scripts.report.tables import Column, with_header
from scripts.report.templating import render
from scripts.report.text import Markdown, anchor, blocks, lines, link, prose
from scripts.report.views import VIEWS, claims, overview, profiles, provenance, same_work
from scripts.results import Record, Skipped, rules_version
from scripts.verdicts.judging import ArticleVerdicts
from scripts.verdicts.parts import SIZE_FACTOR
from scripts.verdicts.row_groups import Group

#: What stands in the columns of the first table, for a reader who has seen nothing else.
WORDS = {
    "random": "seeded random weights: the texts are not the model's",
    "random (recipe 2)": "seeded random weights, with larger matrices of attention and of the layers' outputs: a fault shows in the tokens",
    "full": "the model's own shape, so that times and memory are those of the real model",
    "tiny": "a model with the same architecture and a few small layers: times and memory say nothing about the real model",
    "hub": "the model's own weights",
    "published": "the article's own arguments and dtypes, to the letter",
    "controlled": "the same dtype, token ids and lengths for every row",
}


@dataclasses.dataclass(frozen=True)
class Content:
    """What a page is made of.

    by_article  {slug: its groups}, articles in the order of the report
    verdicts    {slug: what scripts/verdicts/judging.py gives} of the articles that the kit has
    pictures    {"<group>-<view>", or views/overview.py's: SVG}
    """

    records: Sequence[Record]
    known: Mapping[str, Article]
    by_article: Mapping[str, Sequence[Group]]
    verdicts: Mapping[str, ArticleVerdicts]
    pictures: Mapping[str, str]

    @property
    def groups(self) -> list[Group]:
        return list(itertools.chain.from_iterable(self.by_article.values()))


def runs_of(groups: Sequence[Group]) -> list[Record]:
    """Every run that groups are made of."""
    return [record for group in groups for row in group.rows for record in row.runs]


def body(content: Content, runs_link: str) -> dict[str, object]:
    """The parts of the page that follow from results, by their names in templates/page.md.j2; `runs_link` leads from the report to the runs."""
    profiled = [record for record in sorted(content.records, key=lambda record: record.id) if record.job.kind == "profile"]
    with failures.part("the tables of all runs", content.records):
        parts: dict[str, object] = {
            "any_run": bool(content.records),
            "overview": overview.section(content.verdicts, content.records, overview.PICTURE in content.pictures),
            "glossary": glossary(content.groups),
            "ran_on": ran_on(content.groups),
            "claims": claim_sections(content),
            "runs": provenance.runs_table(content.records, runs_link),
        }
    sections = [_profile(record, content.known.get(record.job.article)) for record in profiled]
    return parts | {
        "articles": blocks(*(article_section(slug, content) for slug in content.by_article)),
        "profiles": render("profiles", profiles=blocks(*sections)) if sections else Markdown(),
        "environments": blocks(*(_environment(group, content.known.get(group.key.article)) for group in content.groups)),
    }


def text(parts: Mapping[str, object], skipped: Sequence[Skipped], with_findings: bool) -> str:
    """The page; `with_findings` tells whether FINDINGS.md lies beside it."""
    page = render("page", **parts, skipped=provenance.skipped_list(skipped), skipped_count=len(skipped), with_findings=with_findings)
    return f"{page}\n"


def glossary(groups: Sequence[Group]) -> Markdown:
    """What the stacks, weights and variants of these groups are, a line each."""
    stacks = pins.load().stacks
    keys = [group.key for group in groups]
    named = {name: stacks[name]["summary"] for name in dict.fromkeys(key.stack for key in keys) if name in stacks}
    for name in dict.fromkeys([*(key.weights for key in keys), *(key.scale for key in keys), *(key.variant for key in keys)]):
        named |= {name: WORDS[name]} if name in WORDS else {}
    return lines(*(Markdown("- *{}*: {}").format(name, prose(words)) for name, words in named.items()))


def ran_on(groups: Sequence[Group]) -> Markdown:
    """What was run on what: a line a group."""
    columns = [
        Column[Group]("article", lambda group: group.key.article, words=True),
        Column[Group]("device", lambda group: group.key.device_words, words=True),
        Column[Group]("stack", lambda group: group.key.stack, words=True),
        Column[Group]("engine", lambda group: group.key.engine_words, words=True),
        Column[Group]("weights", lambda group: f"{group.key.weights}, {group.key.scale}", words=True),
        Column[Group]("variant", lambda group: link(group.key.variant, f"#{group.slug}"), words=True),
        Column[Group]("rows that ran with the right output", _right_rows),
    ]
    return with_header(columns, groups)


def _right_rows(group: Group) -> str:
    right = [row for row in group.rows if cells.status(row) == "ok"]
    unchecked = sum(not row.check for row in right)
    return f"{len(right)} of {len(group.rows)}" + (f", {unchecked} of them without an output to check" if unchecked else "")


def claim_sections(content: Content) -> Markdown:
    """The claims of each article that was run, and the names of those that were not."""
    known = [verdicts for verdicts in content.verdicts.values() if verdicts.claims]
    if not known:
        return Markdown()
    reason = claims.common_reason([judged for verdicts in known for judged in claims.first_lines(verdicts)])
    return render(
        "claims",
        judged=[(verdicts.article, claims.first_page(verdicts, reason)) for verdicts in known],
        not_run=[article for slug, article in content.known.items() if article.claims and slug not in content.verdicts],
        rules=rules_version,
        size_factor=SIZE_FACTOR,
        first=_first_judged(content.records),
        reason=claims.said_once(reason),
    )


def _first_judged(records: Sequence[Record]) -> str:
    """ "all 187 results": how many were first judged by an earlier version of the rules."""
    earlier = sum(rules_version.first_judged_by(record) < rules_version.VERSION for record in records)
    return "" if not earlier else f"all {earlier}" if earlier == len(records) else f"{earlier} of the {len(records)}"


def article_section(slug: str, content: Content) -> Markdown:
    """One article: what it is, its groups, and what it really measured."""
    article, verdicts = content.known.get(slug), content.verdicts.get(slug)
    values: dict[str, object] = {}
    if article:
        facts = [article.date, article.hardware.get("gpu") and f"{article.hardware['gpus']} × {article.hardware['gpu']}", article.model["name"]]
        values = {
            "facts": [fact for fact in facts if fact],
            "references": Markdown(" · ").join(Markdown(f"<{reference}>") for reference in article.references),
            "verdicts": claims.everywhere(verdicts) if verdicts else Markdown(),
            "measured": Markdown(article.measured.strip()),
            "same_work": same_work.section(content.by_article[slug], article),
        }
    sections = [group_section(group, article, verdicts, content.pictures) for group in content.by_article[slug]]
    return render("article", anchor=anchor(f"article-{slug}"), slug=slug, article=article, groups=blocks(*sections), **values)


def group_section(group: Group, article: Article | None, verdicts: ArticleVerdicts | None, pictures: Mapping[str, str]) -> Markdown:
    """One group: plots, tables, what failed, relations and claims."""
    runs, cannot_judge = runs_of([group]), group.cannot_judge()
    figures = []
    for heading, views in itertools.groupby(VIEWS, key=lambda view: view.heading):
        sections = []
        for view in views:
            with failures.part(f"the view {view.name} of {group.heading}", runs):
                sections.append(view.section(group, article))
        below = blocks(*sections)
        figures += [Markdown(f"#### {heading}") if heading and below else Markdown(), below]
    with failures.part(f"the section of {group.heading}", runs):
        judged = verdicts.of_group(group) if verdicts else []
        judges = article and (article.claims or any(case.published for case in article.cases))
        return render(
            "group",
            group=group,
            note=article.variants.get(group.key.variant, {}).get("note", NONE) if article else NONE,
            cannot_judge=cannot_judge if judges else "",
            plots=[view for view in VIEWS if f"{group.slug}-{view.name}" in pictures],
            figures=blocks(*figures),
            deviates=any(row.deviations() for row in group.rows),
            mark=MARK,
            speed_ups=claims.speed_ups(group, judged),
            claims=claims.of_group(judged),
        )


def _profile(record: Record, article: Article | None) -> Markdown:
    with failures.part("the view of profiles", [record]):
        return profiles.section(record, article)


def _environment(group: Group, article: Article | None) -> Markdown:
    with failures.part(f"the environment of {group.heading}", runs_of([group])):
        return provenance.environment(group, article)
