"""From numbers to pixels, and which numbers stand along an axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Above this ratio of the largest number to the smallest an axis is logarithmic.
LOG_ABOVE = 20
MOST_TICKS = 7


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, drawn from pixel `start` to pixel `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        """The pixel of a number; numbers outside the axis stand at its ends."""
        inside = min(max(value, self.low), self.high)
        low, high, here = (math.log(number) for number in (self.low, self.high, inside)) if self.logarithmic else (self.low, self.high, inside)
        return self.start + (self.end - self.start) * ((here - low) / (high - low))

    @property
    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.logarithmic else _even_ticks(self.low, self.high)


def finite(values: Sequence[float | None]) -> list[float]:
    """Those that an axis can show: positive, and neither infinite nor missing."""
    return [value for value in values if value is not None and math.isfinite(value) and value > 0]


def for_values(values: Sequence[float], start: float, end: float, logarithmic: bool | None = None, margin: float = 1.15) -> Scale:
    """An axis that holds positive numbers: from 0, or logarithmic where they lie far apart (or where the caller says so)."""
    least, most = min(values), max(values)
    if logarithmic if logarithmic is not None else most / least > LOG_ABOVE:
        return Scale(least / margin, most * margin, start, end, True)
    return Scale(0.0, most * 1.06, start, end, False)


def _even_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, fewer where those are too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]
        if len(ticks) <= MOST_TICKS + 2:
            break
    return ticks[:: math.ceil(len(ticks) / (MOST_TICKS + 2))] if ticks else [low, high]


def label(value: float) -> str:
    """ "0.5", "20", "1e+06"."""
    return f"{value:g}"
