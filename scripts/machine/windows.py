"""The window in which the GPUs' slow counters are read for a run's calls: that of the longer calls (bench/measuring/longer.py), else of the timed ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """`began` and `ended` in seconds since the epoch; `calls` were made in it, None for the timed calls themselves."""

    new_tokens: int
    began: float
    ended: float
    calls: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What a result says of the calls beside what was read in their window."""
        return {"new_tokens": self.new_tokens} | ({"calls": self.calls} if self.calls else {})


def _window(one: Mapping[str, Any], at: Sequence[float], calls: int | None = None) -> Window:
    return Window(one["new_tokens"], at[0], at[1], calls)


def of_calls(measurements: Iterable[Mapping[str, Any]], longer: Iterable[Mapping[str, Any]]) -> list[Window]:
    """The window of each measurement that tells one."""
    made = {one["new_tokens"]: _window(one, one["at"], one["calls"]) for one in longer if one.get("at") and one.get("calls")}
    timed = [_window(one, one["timed_at"]) for one in measurements if one.get("timed_at")]
    return [made.get(window.new_tokens, window) for window in timed]
