"""`fastest` or `slowest`, `than`: one case against each of several others, in every batch size where some are named."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

from scripts.verdicts.lookup import Rows
from scripts.verdicts.parts import HOLDS, Part, decides
from scripts.verdicts.relations.base import PublishedRatio, Relation
from scripts.verdicts.relations.speed import Speed


class Extreme(Relation, frozen=True, kw_only=True):
    """Every comparison must hold, each by the rule of a direction.

    than         the other cases
    ratios       the published ratio over each of them, in their order
    batch_sizes  the comparisons are made in each of these, by ms/token
    """

    than: list[str]
    ratios: list[float] | None = None
    batch_sizes: list[int] | None = None

    def __post_init__(self) -> None:
        if not self.than:
            raise ValueError("`than` names at least one case")
        if self.ratios is not None and len(self.ratios) != len(self.than):
            raise ValueError(f"`ratios` holds one for each of the {len(self.than)} cases of `than`, found {len(self.ratios)}")
        if self.ratios is not None and self.batch_sizes is not None:
            raise ValueError("`ratios` are of no batch size: leave them or `batch_sizes` out")
        self.speeds()  # raises ValueError for an impossible comparison

    def speeds(self) -> list[Speed]:
        """Its comparisons."""
        ratios: Sequence[float | None] = self.ratios or [None] * len(self.than)
        sizes: Sequence[int | None] = self.batch_sizes or [None]
        return [self.speed(case, ratio, size) for size, (case, ratio) in itertools.product(sizes, zip(self.than, ratios, strict=True))]

    def speed(self, case: str, ratio: float | None, batch_size: int | None) -> Speed:
        raise NotImplementedError

    def published(self, part: Part) -> PublishedRatio | None:
        """The published ratio of the comparison that decides the part."""
        ratios = (speed.published(part) for speed in self.speeds() if part.cases == (speed.faster, speed.slower))
        return next(filter(None, ratios), None)

    def names(self) -> list[str]:
        return [self.KEY]

    def parts(self, rows: Rows) -> list[Part]:
        sizes_of = [(part, speed.batch_size) for speed in self.speeds() for part in speed.judge(rows)]
        compared = [part for part, _ in sizes_of]
        deciding = decides(compared)
        if deciding.has_rows:
            notes = _notes(deciding, compared, next(size for part, size in sizes_of if part is deciding))
            deciding = dataclasses.replace(deciding, notes=(*notes, *deciding.notes), doubts=(*notes, *deciding.doubts))
        else:
            deciding = dataclasses.replace(deciding, why=rows.why_none(self.rows(), [part.why for part in compared if not part.has_rows]))
        deciding = dataclasses.replace(deciding, compared=tuple(compared))
        closest = f"the closest of {len(compared)}: " if _is_closest(deciding, compared) else ""
        held = f"; {beside}" if (beside := deciding.comparisons or _on_different_gpus(compared)) else ""
        return [dataclasses.replace(deciding, sentence=deciding.sentence and f"{closest}{deciding.sentence}{held}")]


def _is_closest(deciding: Part, compared: Sequence[Part]) -> bool:
    return len(compared) > 1 and deciding.word == HOLDS


def _notes(deciding: Part, compared: Sequence[Part], batch_size: int | None) -> list[str]:
    """What a reader of the deciding ratio alone would miss: its batch size, that it is the closest of several, and how many of these share no GPU."""
    notes = [f"batch {batch_size}"] if batch_size is not None else []
    notes += [f"the closest of {len(compared)} comparisons"] if _is_closest(deciding, compared) else []
    return notes + list(filter(None, [_on_different_gpus(compared)]))


def _on_different_gpus(compared: Sequence[Part]) -> str:
    """ "11 of the 18 on different GPUs", where several comparisons all hold: these 11 ratios are partly ratios of machines; "" else."""
    count = sum(part.is_apart for part in compared)
    all_hold = len(compared) > 1 and all(part.word == HOLDS for part in compared)
    return f"{count} of the {len(compared)} on different GPUs" if count and all_hold else ""


class Fastest(Extreme, frozen=True, kw_only=True):
    """`fastest` takes less time than each of `than`."""

    KEY: ClassVar[str] = "fastest"

    fastest: str

    def speed(self, case: str, ratio: float | None, batch_size: int | None) -> Speed:
        return Speed(faster=self.fastest, slower=case, ratio=ratio, batch_size=batch_size)


class Slowest(Extreme, frozen=True, kw_only=True):
    """`slowest` takes more time than each of `than`."""

    KEY: ClassVar[str] = "slowest"

    slowest: str

    def speed(self, case: str, ratio: float | None, batch_size: int | None) -> Speed:
        return Speed(faster=case, slower=self.slowest, ratio=ratio, batch_size=batch_size)
