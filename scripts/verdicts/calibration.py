"""How steady a machine is, by `make calibrate`: the rows of bench/articles/calibration.toml, and the machine that they speak for."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scripts import stats
from scripts.results import Record
from scripts.verdicts.row import CALIBRATION, Row
from scripts.verdicts.row_groups import Group
from scripts.verdicts.run_facts import series, uuids_of_runs

#: The cases: calls that do nothing, and the fixed piece of work.
EMPTY, KERNEL = "empty", "fixed-kernel"

#: The calls of a row of the calibration count as calls of one new token; a kernel makes none.
NEW_TOKENS = 1

#: The machine whose noise a calibration tells on a group's page, the nearest first.
THIS, PARTLY, KIND, ANOTHER = ORDER = (
    "this machine",
    "a machine of this kind, with one of these GPUs",
    "a machine of this kind",
    "a machine of this kind, with another GPU",
)


@dataclass(frozen=True)
class Calibration:
    """One row of a calibration: `alone` are its runs without other jobs beside them, `calls_ms` their timed calls, `beside` the runs with others (JOBS)."""

    group: Group
    row: Row

    @property
    def calls_ms(self) -> list[float]:
        return [call for run in self.alone for call in series(run)[NEW_TOKENS]]

    @property
    def median_ms(self) -> float:
        return stats.percentile(self.calls_ms, 50)

    @property
    def p99_ms(self) -> float:
        return stats.percentile(self.calls_ms, 99)

    @property
    def mad_share(self) -> float:
        """The median absolute deviation as a share of the median."""
        return stats.mad(self.calls_ms) / self.median_ms

    @property
    def alone(self) -> list[Record]:
        return [run for run in self.row.runs_of(NEW_TOKENS) if not run.host.get("shared_with")]

    @property
    def beside(self) -> list[Record]:
        return [run for run in self.row.ok_runs if run.host.get("shared_with") and series(run).get(NEW_TOKENS)]

    @property
    def runs(self) -> int:
        return len(self.alone)

    @property
    def noise_floor(self) -> float | None:
        """The share by which two rows of as many runs must differ here; None for too few runs."""
        return stats.noise_floor(means_ms(self.alone))

    def longer_beside(self) -> dict[int, stats.Estimate]:
        """{number of other jobs: how many times as long a run beside them took as alone}."""
        numbers = sorted({run.host["shared_with"] for run in self.beside})
        shared = {number: [run for run in self.beside if run.host["shared_with"] == number] for number in numbers}
        return {number: stats.ratio_over_runs(means_ms(runs), means_ms(self.alone)) for number, runs in shared.items()}

    def speaks_for(self, group: Group) -> bool:
        """Was it measured on the same kind of machine in the same way, whatever the libraries?"""
        own, other = self.group.key, group.key
        return (own.engine, own.device, own.kind) == (other.engine, other.device, other.kind)

    def machine_of(self, group: Group) -> str:
        """ "this machine" where the calibration ran on all GPUs of the group's runs; a GPU identifies its machine, and without one only the kind is known."""
        own, other = uuids_of_runs(self.alone), uuids_of_runs(run for row in group.rows for run in row.runs)
        if own and other:
            return THIS if other <= own else PARTLY if other & own else ANOTHER
        return KIND


def means_ms(runs: Iterable[Record]) -> list[float]:
    """The mean call of each run."""
    return [statistics.fmean(series(run)[NEW_TOKENS]) for run in runs]


def of_groups(groups: Iterable[Group], case: str = KERNEL) -> list[Calibration]:
    """The rows of a case of the calibration that have times."""
    of_calibration = [group for group in groups if group.key.article == CALIBRATION]
    every = [Calibration(group, row) for group in of_calibration for row in group.rows if row.case == case]
    return [calibrated for calibrated in every if calibrated.alone]


def of_machine(known: Sequence[Calibration], group: Group) -> Calibration | None:
    """The calibration of a group's machine: one on the same GPUs before others, then one with the same stack."""
    fitting = [calibrated for calibrated in known if calibrated.speaks_for(group)]
    return min(fitting, key=lambda one: (ORDER.index(one.machine_of(group)), one.group.key.stack != group.key.stack), default=None)
