"""The claims of an article in every setting: a line per setting, a column per claim, in each cell a sign and a ratio."""

import collections
from collections.abc import Sequence

from scripts import stats
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, with_header
from scripts.report.text import Markdown, blocks, link
from scripts.report.verdict_marks import SIGNS
from scripts.report.views import overview
from scripts.verdicts.judging import ArticleVerdicts, Judged
from scripts.verdicts.parts import NOT_TESTED, Part
from scripts.verdicts.row import CALIBRATION
from scripts.verdicts.row_groups import Group, claims_anchor

#: {engine: its name in few words}.
SHORT = {"docker": "containers", "podman": "Podman", "apptainer": "Apptainer", "pyxis": "pyxis", "host": "no containers"}


def setting(group: Group, with_weights: bool, with_engine: bool) -> str:
    """ "hopper, published, 1 and 2 × NVIDIA H200, 16-core host, random (recipe 2), containers"."""
    key = group.key
    weights, scale = key.weights if with_weights else "", "" if key.scale == "full" else key.scale
    return ", ".join(filter(None, [key.stack, key.variant, group.devices, key.host, weights, scale, engine(group) if with_engine else ""]))


def engine(group: Group) -> str:
    """ "containers", or "no containers"."""
    return SHORT.get(group.key.engine, group.key.engine)


def table(groups: Sequence[Group], verdicts: ArticleVerdicts | None) -> Markdown:
    """Every setting of an article with a link to its page; without claims it shows what was run where. Weights that all settings share stand above it."""
    claims = verdicts.article.claims if verdicts and any(judged.group for judged in verdicts.everywhere) else []

    def of_claim(claim_id: str) -> Column[Group]:
        return Column(claim_id, lambda group: _cell(claim_id, group, verdicts), words=True)

    engines, weights = {group.key.engine for group in groups}, {group.key.weights for group in groups}
    columns = [
        Column[Group]("setting", lambda group: link(setting(group, len(weights) > 1, len(engines) > 1), f"#{group.slug}"), words=True),
        *(of_claim(claim["id"]) for claim in claims),
        Column[Group]("rows with the right output", right_rows),
    ]
    with_model = all(group.key.article != CALIBRATION for group in groups)
    above = Markdown("All rows: {} weights.").format(*weights) if len(weights) == 1 and with_model else Markdown()
    return blocks(above, with_header(columns, groups))


def _cell(claim_id: str, group: Group, verdicts: ArticleVerdicts | None) -> Markdown | str:
    """A claim's verdict in a group, for the fewest new tokens with rows for a part; without any, for the fewest that were run, even with a wrong output."""
    lines = [judged for judged in (verdicts.of_group(group) if verdicts else []) if judged.claim["id"] == claim_id]
    shown = next((judged for judged in lines if judged.verdict.has_rows), None) or next((judged for judged in lines if judged.verdict.was_run), None)
    return link(short(shown), f"#{claims_anchor(group.slug)}") if shown else NONE


def short(judged: Judged) -> str:
    """ "● deepspeed 3.04 × tensor-parallel": the sign of the verdict and its first measured ratio, where it has one; all ratios where nothing was tested.

    Where the parts' words differ, each ratio of a tested part follows the signs of its parts: "◆ ✖ 4.62 × accelerate-fp16 b32; ● 3.24 × ds-inference b32".
    Where another ratio is over the same case, the part's name stands before the ratio. A case's gain over itself names the case once.
    """
    measured = overview.measured_ratios(judged)
    if differ := judged.verdict.parts_differ:
        measured = [(ratio, over, parts) for ratio, over, parts in measured if any(part.word != NOT_TESTED for part in parts)]
    alike = len({over for _, over, _ in measured}) < len(measured)
    cells = [
        (f"{''.join(SIGNS[part.word] for part in parts)} " if differ else "")
        + (f"{parts[0].name}: " if differ and alike else "")
        + _subject(parts[0], over)
        + f"{stats.in_words(stats.Estimate(ratio.value), least=2)} × {over}"
        for ratio, over, parts in measured
    ]
    every = differ or judged.verdict.word == NOT_TESTED
    return " ".join(filter(None, [SIGNS[judged.verdict.word], "; ".join(cells if every else cells[:1])]))


def _subject(part: Part, over: str) -> str:
    """ "deepspeed " for deepspeed's ratio over another case; "" for a case's gain from one batch size to another."""
    return f"{part.cases[0]} " if part.cases and part.cases[0].split()[0] != over.split()[0] else ""


def right_rows(group: Group) -> Markdown | str:
    """ "5 of 6, 1 FAILED, 1 unchecked, 1 unsupported": of the checked rows that came to their end, then the others; a calibration has no output."""
    if group.key.article == CALIBRATION:
        return NONE
    ended = [row for row in group.rows if row.status == "ok"]
    checked = [row for row in ended if row.check]
    right = [row for row in checked if cells.status(row) == "ok"]
    others = collections.Counter(row.status for row in group.rows if row.status != "ok")
    words = [
        f"{len(right)} of {len(checked)}",
        *([f"{len(checked) - len(right)} FAILED"] if len(checked) > len(right) else []),
        *([f"{len(ended) - len(checked)} unchecked"] if len(ended) > len(checked) else []),
        *(f"{count} {word}" for word, count in others.items()),
    ]
    return ", ".join(words)
