"""What each system wrote with real weights: its first new tokens after the check's prompt, side by side, those of the reference marked."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.articles import Article
from scripts.report import cells
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks, code, lines
from scripts.report.view import View
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

REFERENCE = "plain transformers, float32"
WORDS = Markdown(
    "The first new tokens after the prompt of the output check. Bold: the token that the reference, {}, has at the same place. ↵ is a new line."
).format(REFERENCE)

#: (token id, the text that it adds).
Piece = tuple[int, str]


@dataclass(frozen=True)
class Wrote:
    """The new tokens of a system, beside those of its reference; both are the same for the reference itself."""

    name: str
    count: object
    pieces: tuple[Piece, ...]
    reference: tuple[Piece, ...]

    @property
    def equal(self) -> list[bool]:
        """For each token: has the reference the same one at its place?"""
        expected = [token for token, _ in self.reference]
        return [expected[place : place + 1] == [token] for place, (token, _) in enumerate(self.pieces)]

    @property
    def share(self) -> str:
        """ "28 of 30"."""
        return f"{sum(self.equal)} of {len(self.pieces)}" if self.reference else cells.NONE

    @property
    def text(self) -> Markdown:
        """The text with the equal tokens bold."""
        runs = itertools.groupby(zip(self.equal, self.pieces, strict=True), key=lambda pair: pair[0])
        return Markdown().join(_run("".join(text for _, (_, text) in tokens), bold) for bold, tokens in runs)


def _run(text: str, bold: bool) -> Markdown:
    """Consecutive tokens as one text. The tag works where Markdown's `**` does not: beside spaces and within Chinese."""
    shown = text.replace("\r", "").replace("\n", " ↵ ")
    before, after = (" " if edge.isspace() else "" for edge in (shown[:1], shown[-1:]))
    words = Markdown.escape(shown)
    if not words:
        return Markdown(before)
    return Markdown(f"{before}<b>{words}</b>{after}" if bold else f"{before}{words}{after}")


def _of(row: Row) -> Wrote | None:
    figure = row.figures.get("wrote")
    if row.status != "ok" or not figure:
        return None
    return Wrote(cells.case(row), row.count, _pieces(figure["system"]), _pieces(figure.get("reference")))


def _pieces(read: Sequence[Sequence[Any]] | None) -> tuple[Piece, ...]:
    """A result's pieces as tuples, which JSON does not have."""
    return tuple((token, text) for token, text in read or ())


def _references(systems: Sequence[Wrote]) -> list[Wrote]:
    """The references of all systems, without those that are the beginning of a longer one."""
    every = list(dict.fromkeys(wrote.reference for wrote in systems if wrote.reference))
    longest = [one for one in every if not any(other != one and other[: len(one)] == one for other in every)]
    return [Wrote(REFERENCE, cells.NONE, one, one) for one in longest]


def weights(group: Group) -> Markdown:
    """The real weights of a group's rows, a line each: commit, digest, and what made safetensors of pickles."""
    told = []
    for model in (row.record.job.model for row in group.rows if row.figures.get("wrote")):
        digest = f", weights {model['weights_sha256'][:12]}" if model.get("weights_sha256") else ""
        made = f", safetensors made of its pickles by {model['converted_by']}" if model.get("converted_by") else ""
        told.append(Markdown("- {} at {}{}{}").format(code(model.get("name")), code((model.get("revision") or "?")[:12]), digest, made))
    return lines(*dict.fromkeys(told))


def section(group: Group, article: Article | None) -> Markdown:
    systems = [wrote for row in group.rows if (wrote := _of(row))]
    if not systems:
        return Markdown()
    columns = [
        Column[Wrote]("system", lambda wrote: wrote.name, words=True),
        Column[Wrote](cells.devices(group), lambda wrote: wrote.count),
        Column[Wrote]("tokens as the reference's", lambda wrote: wrote.share),
        Column[Wrote]("text", lambda wrote: wrote.text, words=True),
    ]
    return blocks(WORDS, weights(group), table(columns, [*_references(systems), *systems]))


VIEW = View("texts", section, summary="What each system wrote")
