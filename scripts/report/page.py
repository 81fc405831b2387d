"""What stands on which page of the report, each part from the view or the template that owns it."""

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence

from scripts.articles import Article
from scripts.report import cells, failures, index_page, noise, pages
from scripts.report.cells import MARK, NONE
from scripts.report.content import Content
from scripts.report.templating import render
from scripts.report.text import Markdown, anchor, blocks, folded, link
from scripts.report.verdict_marks import legend
from scripts.report.view import View
from scripts.report.views import VIEWS, article_setting, claims, fastest, many_texts, matrix, overview, profiles, provenance, same_work, systems
from scripts.results import Record, Skipped, rules_version
from scripts.verdicts import calibration, row_groups
from scripts.verdicts.calibration import Calibration
from scripts.verdicts.judging import ArticleVerdicts
from scripts.verdicts.parts import NOT_TESTED, SIZE_FACTOR, listed
from scripts.verdicts.row_groups import Group


@dataclasses.dataclass(frozen=True)
class Body:
    """The pages as far as they follow from results: `whole` pages by name, the parts of the index by their names in its template, and the tables of the
    page of runs."""

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
            whole[pages.of_environment(group)] = provenance.environment(group, content.known.get(group.key.article), content.links.runs)
    with failures.part("the tables of all runs", content.records):
        index, rows = index_page.parts(content), provenance.rows_tables(content.groups, content.records)
        runs = provenance.runs_table(content.records, content.links.runs)
        whole |= {pages.METHOD: method_page(content.records, content.links.limits)} if content.records else {}
    if profiled := [record for record in sorted(content.records, key=lambda record: record.id) if record.job.kind == "profile"]:
        sections = blocks(*(_profile(record, content.known.get(record.job.article)) for record in profiled))
        whole[pages.PROFILES] = render("profiles", profiles=sections)
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


def method_page(records: Sequence[Record], limits: str) -> Markdown:
    """`limits`: the link to docs/limits.md, beside which the notes lie that this page names; "" where the report lies outside of the kit."""
    notes = {name: _note(name, limits) for name in ("method.md", "output-check.md", "verdict-rules.md")}
    return render("method", rules=rules_version, size_factor=SIZE_FACTOR, long_prompt=fastest.LONG_PROMPT, first=_first_judged(records), notes=notes)


def _note(name: str, limits: str) -> Markdown:
    return link(f"docs/{name}", posixpath.join(posixpath.dirname(limits), name)) if limits else Markdown(f"docs/{name}")


def _first_judged(records: Sequence[Record]) -> str:
    """ "all 187", "12 of the 187": how many results were first judged by version 1 of the rules; "" for none."""
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
            "same_work": same_work.section(groups, article),
            "many_texts": many_texts.section(groups),
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
        anchor=anchor(pages.anchor_of_article(slug)),
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
    """The group that tested most of the article's claims; among equals the one with most headline verdicts, then the first."""
    return max(groups, key=lambda group: _told_of(group, verdicts))


def _told_of(group: Group, verdicts: ArticleVerdicts | None) -> tuple[int, int]:
    """(how many headline verdicts of this group tested their claim, how many headline verdicts it has)."""
    words = [claim.headline.verdict.word for claim in (verdicts.claims if verdicts else []) if claim.headline.group is group]
    return sum(word != NOT_TESTED for word in words), len(words)


def setting_page(group: Group, content: Content, calibrations: Sequence[Calibration]) -> Markdown:
    """One group: its plots, its main table, what failed, its verdicts, and every other number behind a click."""
    article, verdicts = content.known.get(group.key.article), content.verdicts.get(group.key.article)
    of_views = _folded_views(group, article, content)
    with failures.part(f"the page of {group.heading}", row_groups.runs_of([group])):
        judged = verdicts.of_group(group) if verdicts else []
        judges = article and (article.claims or any(case.published for case in article.cases))
        return render(
            "setting",
            anchor=anchor(group.slug),
            group=group,
            apart=article_setting.place(group) if article_setting.is_told(article) else "",
            up=link(article.title if article else group.key.article, f"#{pages.anchor_of_article(group.key.article)}"),
            note=article.variants.get(group.key.variant, {}).get("note", NONE) if article else NONE,
            models=_models(group),
            cannot_judge=group.cannot_judge() if judges else "",
            plots=blocks(*(_plot(view, group, content.pictures) for view in VIEWS if not view.folded)),
            systems=systems.section(group, article),
            differs=any(row.differences for row in group.rows),
            stand_in=_on_stand_in(group),
            mark=MARK,
            noise=noise.section(group, calibrations, judged),
            claims_anchor=anchor(row_groups.claims_anchor(group.slug)),
            claims=claims.of_group(group, judged, article) if article else Markdown(),
            folds=blocks(*of_views, folded("Speed-ups, published and measured", claims.speed_ups(group, judged))),
        )


def _folded_views(group: Group, article: Article | None, content: Content) -> list[Markdown]:
    """Each view of a group behind a click, without the broken ones."""
    folds = []
    for view in VIEWS:
        if view.name not in content.broken:
            with failures.part(f"the view {view.name} of {group.heading}", row_groups.runs_of([group]), view.name):
                figure = _plot(view, group, content.pictures) if view.folded else Markdown()
                folds.append(folded(view.summary, blocks(figure, view.section(group, article))))
    return folds


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
