"""Tables in Markdown: columns, each with its header and its cell, over items. Units stand in every header."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from scripts.report.text import Markdown

Item = TypeVar("Item")


@dataclass(frozen=True)
class Column(Generic[Item]):
    """One column of a table.

    cell   what stands in it for an item; anything but Markdown is escaped
    when   whether the column stands in the table at all
    words  words stand on the left, numbers on the right
    """

    header: object
    cell: Callable[[Item], object]
    when: bool = True
    words: bool = False


def table(columns: Iterable[Column[Item]], items: Sequence[Item]) -> Markdown:
    """A table with a line for each item; empty where there is no item."""
    return with_header(columns, items) if items else Markdown()


def with_header(columns: Iterable[Column[Item]], items: Sequence[Item]) -> Markdown:
    """A table that has its header even where there is no item."""
    return _table(_cells(columns, items))


def aligned(columns: Iterable[Column[Item]], items: Sequence[Item]) -> Markdown:
    """A table of words whose cells stand under each other on a terminal too; the last column is left as it is."""
    header, _, *rows = _cells(columns, items)
    widths = [max(3, *(len(cells[place]) for cells in [header, *rows])) for place in range(len(header) - 1)]
    marks = [Markdown(":".ljust(width, "-")) for width in [*widths, 3]]
    return _table([Markdown(str(cell).ljust(width)) for cell, width in zip(cells, [*widths, 0], strict=True)] for cells in [header, marks, *rows])


def _cells(columns: Iterable[Column[Item]], items: Sequence[Item]) -> list[list[Markdown]]:
    """Header, marks and rows."""
    shown = [column for column in columns if column.when]
    marks = [Markdown(":--" if column.words else "--:") for column in shown]
    rows = [[Markdown.escape(column.cell(item)) for column in shown] for item in items]
    return [[Markdown.escape(column.header) for column in shown], marks, *rows]


def _table(rows: Iterable[Iterable[Markdown]]) -> Markdown:
    return Markdown("\n").join(Markdown("| {} |").format(Markdown(" | ").join(cells)) for cells in rows)
