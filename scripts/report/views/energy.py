"""Joules a token by NVML's energy counter around the timed calls, and what a million tokens cost where a price of a GPU's hour is given."""

import dataclasses
import math
import statistics
from typing import Any

from scripts import surroundings
from scripts.articles import Article
from scripts.report import cells
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, blocks
from scripts.report.view import View
from scripts.results import Record
from scripts.verdicts import rates
from scripts.verdicts.row import Row, median
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import energy_of


@dataclasses.dataclass(frozen=True)
class Spent:
    """A row's calls of `new_tokens` tokens; `gpus` is what scripts/machine/energy.py gives for each GPU, [] where nothing was told.

    `calls` is the number of further calls that were watched in place of the timed ones; None where the timed calls were watched.
    """

    row: Row
    new_tokens: int
    gpus: list[dict[str, Any]]
    calls: int | None = None

    @property
    def made_tokens(self) -> int:
        """New tokens of all timed calls and all sequences."""
        told = rates.made_tokens(self.row.record, self.new_tokens)
        return sum(told) if told else self.new_tokens * self.row.sequences * len(self.row.timed_ms(self.new_tokens))

    @property
    def codes(self) -> list[str]:
        """Why the joules do not count, each reason once."""
        return sorted({gpu["code"] for gpu in self.gpus} - {"ok"})

    def joules(self, name: str = "joules") -> float | None:
        """Of all GPUs; None where one of them has no valid number."""
        values = [gpu.get(name) for gpu in self.gpus]
        return None if self.codes or None in values or not values else math.fsum(value for value in values if value is not None)

    def per_token(self, name: str = "joules") -> float | None:
        total = self.joules(name)
        made = self.new_tokens * self.row.sequences * self.calls if self.calls else self.made_tokens
        return total / made if total is not None and made else None

    @property
    def over_runs(self) -> list[float]:
        """J a token of each run of the row that tells it, the least first."""
        each = (_of_run(self.row, run, self.new_tokens).per_token() for run in self.row.runs_of(self.new_tokens))
        return sorted(value for value in each if value is not None)

    @property
    def watts(self) -> float | None:
        total, seconds = self.joules(), self.gpus[0].get("seconds") if self.gpus else None
        return total / seconds if total is not None and seconds else None

    @property
    def idle_w(self) -> float | None:
        values = [gpu.get("idle_w") for gpu in self.gpus]
        return None if None in values or not values else math.fsum(value for value in values if value is not None)

    def price(self, per_gpu_hour: float) -> float | None:
        """The price of a million new tokens."""
        hours = math.fsum(self.row.timed_ms(self.new_tokens)) / 3.6e6
        return 1e6 * per_gpu_hour * self.row.count * hours / self.made_tokens if self.made_tokens else None


ALL_GPUS = Markdown("All GPUs of a row count, also those that hold no part of its model.")
ALL_SEQUENCES = Markdown("*New tokens*: of one sequence. *J a token*: the energy over the new tokens of all sequences of the calls.")


def spent(row: Row) -> list[Spent]:
    return [_of_calls(row, count) for count in row.new_tokens]


def _of_calls(row: Row, new_tokens: int) -> Spent:
    """The calls of the run with the middle time among runs whose joules count; those of the row's median run where no joules count."""
    valid = [one for run in row.runs_of(new_tokens) if (one := _of_run(row, run, new_tokens)).joules() is not None]
    return median(valid, lambda one: statistics.fmean(one.row.timed_ms(new_tokens))) if valid else _of_run(row, row.record, new_tokens)


def _of_run(row: Row, run: Record, new_tokens: int) -> Spent:
    told = energy_of(run, new_tokens)
    return Spent(dataclasses.replace(row, record=run), new_tokens, told.get("gpus", []), told.get("calls"))


def section(group: Group, article: Article | None) -> Markdown:
    price = surroundings.current().cost_per_gpu_hour
    of_tokens = [row for row in group.rows if row.status == "ok" and not row.is_workload and not row.is_calibration]
    rows = [one for row in of_tokens for one in spent(row) if group.key.device == "cuda" and (one.gpus or price)]
    told = any(one.gpus for one in rows)
    columns = [
        Column[Spent]("case", lambda one: cells.judged_case(one.row), words=True),
        Column[Spent](cells.devices(group), lambda one: one.row.count),
        Column[Spent]("new tokens", lambda one: one.new_tokens),
        Column[Spent]("J a token", lambda one: ", ".join(one.codes) or cells.significant(one.per_token()), when=told),
        Column[Spent]("least to most of the runs, J a token", _spread, when=any(len(one.over_runs) > 1 for one in rows)),
        Column[Spent]("J a token by sampled power", lambda one: cells.significant(one.per_token("power_joules")), when=told),
        Column[Spent]("power / before the calls, W", lambda one: cells.beside(cells.decimal(one.watts, 0), cells.decimal(one.idle_w, 0)), when=told),
        Column[Spent]("window, s", lambda one: cells.decimal(one.gpus[0].get("seconds") if one.gpus else None, 1), when=told),
        Column[Spent]("further calls in it", lambda one: str(one.calls or NONE), when=any(one.calls for one in rows)),
        Column[Spent](f"a million new tokens at {price:g} a GPU's hour" if price else NONE, lambda one: _price(one, price), when=bool(price)),
    ]
    beside = ", or of further calls where these are too short" if any(one.calls for one in rows) else ""
    words = Markdown("Energy of the timed calls{}; of several runs that tell it, of the one that took the middle time:").format(beside)
    notes = (
        ALL_SEQUENCES if any(one.row.sequences > 1 for one in rows) else Markdown(),
        ALL_GPUS if any(one.row.empty_devices for one in rows) else Markdown(),
    )
    return blocks(words, table(columns, rows), *notes) if rows else Markdown()


def _spread(one: Spent) -> str:
    """ "0.081 to 0.094 in 5 runs"; GPUs of one model differ in power."""
    each = one.over_runs
    return f"{cells.significant(each[0])} to {cells.significant(each[-1])} in {len(each)} runs" if len(each) > 1 else NONE


def _price(one: Spent, per_gpu_hour: float | None) -> str:
    return cells.significant(one.price(per_gpu_hour)) if per_gpu_hour else NONE


VIEW = View("energy", section, summary="Energy a token")
