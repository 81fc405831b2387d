"""What a figure is in the report: a part of each group's section, and a plot."""

from collections.abc import Callable
from dataclasses import dataclass

from scripts.articles import Article
from scripts.report.text import Markdown
from scripts.verdicts.row_groups import Group


@dataclass(frozen=True)
class View:
    """One figure; a group without rows for it gets an empty section and no plot.

    summary  what stands on the fold that holds the section
    plot     SVG text, which lies in plots/<group>-<name>.svg
    title    what the plot shows, in words
    folded   whether the plot stands within the fold; above all folds otherwise
    """

    name: str
    section: Callable[[Group, Article | None], Markdown]
    summary: str
    plot: Callable[[Group, Article | None], str | None] | None = None
    title: str = ""
    folded: bool = False
