"""The first page of the report: the overview, each article with its settings, and what their words mean."""

from collections.abc import Sequence

from scripts import pins
from scripts.report import pages, rerun_command
from scripts.report.content import Beside, Content
from scripts.report.text import Markdown, blocks, code, folded, lines, link, prose
from scripts.report.verdict_marks import legend
from scripts.report.views import fastest, many_texts, matrix, overview
from scripts.units import counted
from scripts.verdicts import lookup
from scripts.verdicts.row_groups import Group

#: {a word in the settings of the index: its meaning}, for a reader who has seen nothing else.
WORDS = {
    "random": "seeded random weights of recipe 1: the texts are not the model's, and no verdict rests on them",
    "random (recipe 2)": "seeded random weights, with larger matrices of attention and of the layers' outputs: a fault shows in the tokens",
    "full": "the model's own shape, so that times and memory are those of the real model",
    "tiny": "a model with the same architecture and a few small layers: times and memory say nothing about the real model",
    "hub": "the model's own weights",
    "published": "the article's own arguments and dtypes, to the letter",
    "controlled": "the same dtype, token ids and lengths for every row",
}


def parts(content: Content) -> dict[str, object]:
    """What templates/index.md.j2 shows of the results."""
    judged = [verdicts for verdicts in content.verdicts.values() if verdicts.claims]
    return {
        "any_run": bool(content.records),
        "overview": overview.section(
            content.verdicts,
            overview.PICTURE in content.pictures,
            blocks(fastest.section(content.groups), many_texts.pointer([group for group in content.groups if group.key.article in content.known])),
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
        "profiles": any(record.job.kind == "profile" for record in content.records),
        "first": Markdown(content.links.first),
    }


def _elsewhere(beside: Beside | None) -> Markdown:
    """ ", 186 results without containers in a report of their own"."""
    if beside is None:
        return Markdown()
    return Markdown(", {} without containers in {}").format(counted(beside.count, "result"), link("a report of their own", beside.link))


def _of_index(slug: str, content: Content) -> dict[str, Markdown]:
    """Settings whose random weights support no verdict stand behind a click, unless the article has no other setting of a full model on a GPU."""
    verdicts, groups = content.verdicts.get(slug), content.by_article[slug]
    earlier = [group for group in groups if _has_earlier_weights(group)]
    later = [group for group in groups if not _has_earlier_weights(group)]
    if all(group.cannot_judge() for group in later):
        earlier, later = [], list(groups)
    summary = f"{counted(len(earlier), 'earlier setting')}: random weights (recipe 1) that support no verdict"
    return {
        "heading": _article_link(slug, content),
        "claims": overview.claim_lines(overview.in_brief(verdicts)) if verdicts else Markdown(),
        "settings": matrix.table(later, verdicts),
        "earlier": folded(summary, matrix.table(earlier, verdicts) if earlier else Markdown()),
    }


def _has_earlier_weights(group: Group) -> bool:
    """The first row tells: all rows of a group share their weights."""
    return not lookup.weights_can_judge(group.rows[0])


def _article_link(slug: str, content: Content) -> Markdown:
    return link(content.known[slug].title if slug in content.known else slug, f"#{pages.anchor_of_article(slug)}")


def glossary(groups: Sequence[Group]) -> Markdown:
    """What the stacks, weights and variants of these groups are, a line each."""
    stacks = pins.load().stacks
    keys = [group.key for group in groups]
    named = {name: stacks[name]["summary"] for name in dict.fromkeys(key.stack for key in keys) if name in stacks}
    for name in dict.fromkeys([*(key.weights for key in keys), *(key.scale for key in keys), *(key.variant for key in keys)]):
        named |= {name: WORDS[name]} if name in WORDS else {}
    return lines(*(Markdown("- *{}*: {}").format(name, prose(words)) for name, words in named.items()))
