"""What stands on which page of the report, each part from the view or the template that owns it."""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

from scripts import pins
from scripts.articles import Article
from scripts.report import cells, failures, noise, pages, rerun_command
from scripts.report.cells import MARK, NONE
from scripts.report.templating import render
from scripts.report.text import Markdown, anchor, blocks, code, folded, lines, link, prose
from scripts.report.verdict_marks import legend
from scripts.report.view import View
from scripts.report.views import VIEWS, article_setting, claims, fastest, matrix, overview, profiles, provenance, same_work, systems
from scripts.results import Record, Skipped, rules_version
from scripts.units import counted
from scripts.verdicts import calibration, lookup, row_groups
from scripts.verdicts.calibration import Calibration
from scripts.verdicts.judging import ArticleVerdicts
from scripts.verdicts.parts import NOT_TESTED, SIZE_FACTOR, listed
from scripts.verdicts.row_groups import Group

#: What stands in the settings of the index, for a reader who has seen nothing else.
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
    """What a report is made of.

    by_article  {slug: its groups}, articles in the order of the report
    verdicts    {slug: what scripts/verdicts/judging.py gives} of the articles that the kit has
    pictures    {"<group>-<view>", or views/overview.py's: SVG}
    broken      the names of the views that the report goes without, because their own code fails
    """

    records: Sequence[Record]
    known: Mapping[str, Article]
    by_article: Mapping[str, Sequence[Group]]
    verdicts: Mapping[str, ArticleVerdicts]
    pictures: Mapping[str, str]
    links: "Links"
    broken: Collection[str] = ()

    @property
    def groups(self) -> list[Group]:
        return list(itertools.chain.from_iterable(self.by_article.values()))


@dataclasses.dataclass(frozen=True)
class Beside:
    """Another report: how many results it shows, the link to it, and the names of its groups."""

    count: int
    link: str
    groups: Collection[str]


@dataclasses.dataclass(frozen=True)
class Links:
    """Where a report leads to: it follows from the places of the report and its runs, not from what the runs hold.

    runs      the link to the folder of runs
    command   what stands for that folder in a command; "" where the kit takes it of itself
    beside    of the report on runs without containers, for the first report; None where there is none
    first     the link to the first report, in that on runs without containers; "" in any other
    limits    the link to docs/limits.md; "" in a report that lies outside of the kit
    """

    runs: str = "runs"
    command: str = ""
    beside: Beside | None = None
    first: str = ""
    limits: str = ""


@dataclasses.dataclass(frozen=True)
class Body:
    """The pages as far as they follow from results: `whole` pages, and the parts of the index and of the page of runs by their names in the templates."""

    whole: Mapping[str, Markdown]
    index: Mapping[str, object]
    rows: Markdown
    runs: Markdown


def body(content: Content) -> Body:
    """The pages of these results."""
    whole: dict[str, Markdown] = {}
    for slug in content.by_article:
        with failures.part(f"the page of {slug}", row_groups.runs_of(content.by_article[slug])):
            whole[pages.of_article(slug)] = article_page(slug, content)
    calibrations = calibration.of_groups(content.groups)
    for group in content.groups:
        whole[pages.of_setting(group)] = setting_page(group, content, calibrations)
        with failures.part(f"the environment of {group.heading}", row_groups.runs_of([group])):
            whole[pages.of_environment(group)] = provenance.environment(group, content.known.get(group.key.article))
    with failures.part("the tables of all runs", content.records):
        index, rows = index_parts(content), provenance.rows_tables(content.groups, content.records)
        runs = provenance.runs_table(content.records, content.links.runs)
        whole |= {pages.METHOD: method_page(content.records)} if content.records else {}
    if profiled := [record for record in sorted(content.records, key=lambda record: record.id) if record.job.kind == "profile"]:
        sections = blocks(*(_profile(record, content.known.get(record.job.article)) for record in profiled))
        whole[pages.PROFILES] = render("profiles", profiles=sections)
        index["profiles"] = True
    made = Body(whole, index, rows, runs)
    with failures.part("the links between the pages", content.records):
        texts(made, [], with_findings=False)
    return made


def texts(body: Body, skipped: Sequence[Skipped], with_findings: bool) -> dict[str, str]:
    """{name: text} of every page, the index first; `with_findings` tells whether FINDINGS.md lies beside them. Raises KitError for a link to nowhere."""
    index = render("index", **body.index, skipped_count=sum(skip.is_run for skip in skipped), with_findings=with_findings)
    every = {pages.INDEX: index, **body.whole}
    if body.index["any_run"] or skipped:
        every[pages.RUNS] = render("runs", rows=body.rows, runs=body.runs, skipped=provenance.skipped_list(skipped))
    return pages.linked(every)


def index_parts(content: Content) -> dict[str, object]:
    """What templates/index.md.j2 shows of the results."""
    judged = [verdicts for verdicts in content.verdicts.values() if verdicts.claims]
    return {
        "any_run": bool(content.records),
        "overview": overview.section(
            content.verdicts,
            overview.PICTURE in content.pictures,
            fastest.section(content.groups),
            overview.limits(content.records, _elsewhere(content.links.beside), content.links.limits),
        ),
        "legend": legend() if judged else "",
        "articles": [_of_index(slug, content) for slug in content.by_article],
        "not_run": [
            (article, code(rerun_command.whole_article(article, content.records, content.links.command)))
            for slug, article in content.known.items()
            if judged and article.claims and slug not in content.verdicts
        ],
        "glossary": glossary(content.groups),
        "article_links": Markdown(" · ").join(_article_link(slug, content) for slug in content.by_article),
        "profiles": False,
        "first": Markdown(content.links.first),
    }


def _elsewhere(beside: Beside | None) -> Markdown:
    """ ", 186 results without containers in a report of their own"."""
    if beside is None:
        return Markdown()
    return Markdown(", {} without containers in {}").format(counted(beside.count, "result"), link("a report of their own", beside.link))


def _of_index(slug: str, content: Content) -> dict[str, Markdown]:
    """Settings with random weights that no verdict rests on stand behind a click, unless an article has no other setting of a full model on a GPU."""
    verdicts, groups = content.verdicts.get(slug), content.by_article[slug]
    earlier = [group for group in groups if _has_earlier_weights(group)]
    later = [group for group in groups if not _has_earlier_weights(group)]
    if all(group.cannot_judge() for group in later):
        earlier, later = [], list(groups)
    summary = f"{counted(len(earlier), 'earlier setting')}: random weights (recipe 1) that support no verdict"
    return {
        "heading": _article_link(slug, content),
        "claims": overview.claim_lines(verdicts) if verdicts else Markdown(),
        "settings": matrix.table(later, verdicts),
        "earlier": folded(summary, matrix.table(earlier, verdicts) if earlier else Markdown()),
    }


def _has_earlier_weights(group: Group) -> bool:
    """All rows of a group share their weights."""
    return not lookup.weights_can_judge(group.rows[0])


def _article_link(slug: str, content: Content) -> Markdown:
    return link(content.known[slug].title if slug in content.known else slug, f"#article-{slug_of(slug)}")


def slug_of(article: str) -> str:
    """An article's name as its anchors have it: that of its page."""
    return pages.of_article(article).removeprefix("article-").removesuffix(".md")


def glossary(groups: Sequence[Group]) -> Markdown:
    """What the stacks, weights and variants of these groups are, a line each."""
    stacks = pins.load().stacks
    keys = [group.key for group in groups]
    named = {name: stacks[name]["summary"] for name in dict.fromkeys(key.stack for key in keys) if name in stacks}
    for name in dict.fromkeys([*(key.weights for key in keys), *(key.scale for key in keys), *(key.variant for key in keys)]):
        named |= {name: WORDS[name]} if name in WORDS else {}
    return lines(*(Markdown("- *{}*: {}").format(name, prose(words)) for name, words in named.items()))


def method_page(records: Sequence[Record]) -> Markdown:
    return render("method", rules=rules_version, size_factor=SIZE_FACTOR, first=_first_judged(records))


def _first_judged(records: Sequence[Record]) -> str:
    """ "all 187 results": how many were first judged by version 1 of the rules."""
    earlier = sum(rules_version.first_judged_by(record) == 1 for record in records)
    return "" if not earlier else f"all {earlier}" if earlier == len(records) else f"{earlier} of the {len(records)}"


def article_page(slug: str, content: Content) -> Markdown:
    """One article: what it is, its main table, its settings, its claims in full and what it really measured."""
    article, verdicts, groups = content.known.get(slug), content.verdicts.get(slug), content.by_article[slug]
    values: dict[str, object] = {"claims": Markdown(), "notes": []}
    if article:
        facts = [article.date, article.hardware and f"{article.hardware['gpus']} × {article.hardware['gpu']}", article.model["name"]]
        values |= {
            "facts": [fact for fact in facts if fact],
            "references": Markdown(" · ").join(Markdown(f"<{reference}>") for reference in article.references),
            "measured": Markdown(article.measured.strip()),
            "same_work": same_work.section(content.by_article[slug], article),
            "measured_heading": "What the article really measured" if article.claims else "What this shows",
            "notes": [case for case in article.cases if case.note],
        }
    if verdicts and verdicts.claims:
        reason = claims.common_reason(claims.first_lines(verdicts))
        values |= {"claim_lines": overview.claim_lines(verdicts), "claims": claims.first_page(verdicts, reason)}
        values |= {"reason": claims.said_once(reason), "verdicts": claims.elsewhere_in_full(verdicts)}
    nearest = nearest_of(groups, verdicts)
    return render(
        "article",
        anchor=anchor(f"article-{slug_of(slug)}"),
        slug=slug,
        article=article,
        tested=_told_of(nearest, verdicts)[0],
        nearest=systems.main_table(nearest, article),
        nearest_link=link(nearest.heading, f"#{nearest.slug}"),
        legend=legend() + "." if verdicts and verdicts.claims else Markdown(),
        settings=matrix.table(groups, verdicts),
        **values,
    )


def nearest_of(groups: Sequence[Group], verdicts: ArticleVerdicts | None) -> Group:
    """The group that tested most of the article's claims, else that most are told of; the first where none is."""
    return max(groups, key=lambda group: _told_of(group, verdicts))


def _told_of(group: Group, verdicts: ArticleVerdicts | None) -> tuple[int, int]:
    """(how many claims this group tested, how many are told of it)."""
    words = [claim.headline.verdict.word for claim in (verdicts.claims if verdicts else []) if claim.headline.group is group]
    return sum(word != NOT_TESTED for word in words), len(words)


def setting_page(group: Group, content: Content, calibrations: Sequence[Calibration]) -> Markdown:
    """One group: its plots, its main table, what failed, its verdicts, and every other number behind a click."""
    article, verdicts, pictures = content.known.get(group.key.article), content.verdicts.get(group.key.article), content.pictures
    runs, cannot_judge = row_groups.runs_of([group]), group.cannot_judge()
    folds = []
    for view in VIEWS:
        if view.name in content.broken:
            continue
        with failures.part(f"the view {view.name} of {group.heading}", runs, view.name):
            figure = _plot(view, group, pictures) if view.folded else Markdown()
            folds.append(folded(view.summary, blocks(figure, view.section(group, article))))
    with failures.part(f"the page of {group.heading}", runs):
        judged = verdicts.of_group(group) if verdicts else []
        judges = article and (article.claims or any(case.published for case in article.cases))
        folds.append(folded("Speed-ups, published and measured", claims.speed_ups(group, judged)))
        return render(
            "setting",
            anchor=anchor(group.slug),
            group=group,
            apart=article_setting.place(group) if article_setting.is_told(article) else "",
            up=link(article.title if article else group.key.article, f"#article-{slug_of(group.key.article)}"),
            note=article.variants.get(group.key.variant, {}).get("note", NONE) if article else NONE,
            models=_models(group),
            cannot_judge=cannot_judge if judges else "",
            plots=blocks(*(_plot(view, group, pictures) for view in VIEWS if not view.folded)),
            systems=systems.section(group, article),
            differs=any(row.differences for row in group.rows),
            stand_in=_on_stand_in(group),
            mark=MARK,
            noise=noise.section(group, calibrations, judged),
            claims_anchor=anchor(matrix.claims_of(group)),
            claims=claims.of_group(group, judged, article) if article else Markdown(),
            folds=blocks(*folds),
        )


def _models(group: Group) -> str:
    """ "Models: bloom-7b1 (ds-inference, ds-zero) and gpt-j-6B (gptj-deepspeed)": the shapes of the rows' models; "" where no row has one."""
    cases: dict[str, list[str]] = {}
    for row in group.rows:
        if row.shape:
            cases.setdefault(row.shape, []).append(row.case)
    if len(cases) < 2:
        return "".join(f"Model: {shape}" for shape in cases)
    return "Models: " + listed([f"{shape} ({', '.join(dict.fromkeys(of_shape))})" for shape, of_shape in cases.items()])


def _on_stand_in(group: Group) -> str:
    """ "All rows": those whose image, or its base, is a stand-in; "" for none."""
    rows = [row for row in group.rows if row.is_on_stand_in]
    return "" if not rows else "All rows" if len(rows) == len(group.rows) else listed([cells.on(row) for row in rows])


def _plot(view: View, group: Group, pictures: Mapping[str, str]) -> Markdown:
    name = f"{group.slug}-{view.name}"
    return Markdown("![{}: {}]({})").format(view.title, group.heading, Markdown(f"plots/{name}.svg")) if name in pictures else Markdown()


def _profile(record: Record, article: Article | None) -> Markdown:
    with failures.part("the view of profiles", [record]):
        return profiles.section(record, article)
