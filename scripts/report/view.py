"""What a figure is in the report: a part of each group's section, and a plot."""

from collections.abc import Callable
from dataclasses import dataclass

from scripts.articles import Article
from scripts.report.text import Markdown
from scripts.verdicts.row_groups import Group


@dataclass(frozen=True)
class View:
    """One figure; a group that has no row of it gets an empty section and no plot.

    heading  views that follow one another and have the same stand under it together
    plot     SVG text, which lies in plots/<group>-<name>.svg
    title    what the plot shows, in words
    """

    name: str
    section: Callable[[Group, Article | None], Markdown]
    heading: str = ""
    plot: Callable[[Group, Article | None], str | None] | None = None
    title: str = ""
