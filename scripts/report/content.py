"""What a report is made of: its runs in groups, the verdicts on them, its pictures and its links."""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

from scripts.articles import Article
from scripts.results import Record
from scripts.verdicts.judging import ArticleVerdicts
from scripts.verdicts.row_groups import Group


@dataclasses.dataclass(frozen=True)
class Beside:
    """Another report: how many results it shows, the link to it, and the names of its groups."""

    count: int
    link: str
    groups: Collection[str]


@dataclasses.dataclass(frozen=True)
class Links:
    """The links of a report, which follow from the places of the report and its runs, not from what the runs hold.

    runs      the link to the folder of runs
    command   how a command names that folder; "" where the kit takes the folder by default
    beside    in the first report, the report on runs without containers; None where there is none
    first     in the report on runs without containers, the link to the first report; "" in any other
    limits    the link to docs/limits.md; "" in a report that lies outside of the kit
    """

    runs: str = "runs"
    command: str = ""
    beside: Beside | None = None
    first: str = ""
    limits: str = ""


@dataclasses.dataclass(frozen=True)
class Content:
    """What a report is made of.

    by_article  {slug: its groups}, articles in the order of the report
    verdicts    {slug: what scripts/verdicts/judging.py gives} of the articles that the kit has
    pictures    {"<group>-<view>", or views/overview.py's: SVG}
    broken      the names of the views that are left out because their own code fails
    """

    records: Sequence[Record]
    known: Mapping[str, Article]
    by_article: Mapping[str, Sequence[Group]]
    verdicts: Mapping[str, ArticleVerdicts]
    pictures: Mapping[str, str]
    links: Links
    broken: Collection[str] = ()

    @property
    def groups(self) -> list[Group]:
        return list(itertools.chain.from_iterable(self.by_article.values()))
