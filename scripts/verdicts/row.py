"""One case in one batch size on one number of devices, with all runs of it."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bench.job import Result
from bench.models import weights
from scripts import stats
from scripts.articles import Article
from scripts.results import Record
from scripts.results.marks import counting, disturbed_by
from scripts.results.output import check_of
from scripts.units import counted
from scripts.verdicts.run_facts import (
    busy_shares_of,
    cold_ms_of,
    is_on_stand_in,
    is_wrong_when_padded,
    peak_of_a_gpu_bytes,
    peak_resident_bytes,
    series,
    uuids_of_runs,
    with_calls,
    wrong_output,
)

Item = TypeVar("Item")
Number = TypeVar("Number", int, float)

#: The slug of bench/articles/calibration.toml.
CALIBRATION = "calibration"

#: A row within its group: (case, batch size, devices).
Place = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Row:
    """One case in one batch size on one number of devices: `runs` are all runs of the very same job, oldest first.

    Times are those of all runs. Peaks of memory, loading, the first call and the like are those of the middle run of `shown_runs`, each by itself.
    The output is that of `output_run`. All else (outliers, drift) is that of `record`, the median run.
    """

    case: str
    count: int
    record: Record
    runs: tuple[Record, ...]

    @property
    def batch_size(self) -> int:
        return self.record.job.batch_size

    @property
    def sequences(self) -> int:
        """How many answers a call makes: one to each text of the batch, or several to one text."""
        sequences: int | None = (self.figures.get("pipeline") or {}).get("sequences")
        return sequences or self.batch_size

    @property
    def place(self) -> Place:
        return self.case, self.batch_size, self.count

    @property
    def name(self) -> str:
        """ "deepspeed", or "deepspeed b8" for a batch."""
        return self.case + (f" b{self.batch_size}" if self.batch_size != 1 else "")

    @property
    def shape(self) -> str:
        """The shape of its model, without the weights: "bloom-7b1"; "" where the job names none."""
        return self.record.job.model.get("shape") or ""

    @property
    def status(self) -> str:
        return self.record.status

    @functools.cached_property
    def ok_runs(self) -> Sequence[Record]:
        """The runs with the status ok."""
        return [run for run in self.runs if run.status == "ok"]

    @property
    def failed_runs(self) -> Sequence[Record]:
        """The runs with the status failed: runs that ran out of memory or time, or are unsupported, are not among them."""
        return [run for run in self.runs if run.status == "failed"]

    @functools.cached_property
    def _undisturbed(self) -> Sequence[Record]:
        return [run for run in self.ok_runs if not disturbed_by(run)]

    @functools.cached_property
    def _means_ms(self) -> dict[int, Sequence[float]]:
        """{new tokens: what `run_means_ms` gives}, cached: a report asks many times, and a row may have thousands of runs."""
        return {}

    def undisturbed(self, new_tokens: int | None = None) -> Sequence[Record]:
        """The ok runs whose machine was not disturbed; where `new_tokens` is given, only runs with timed calls of so many."""
        return self._undisturbed if new_tokens is None else with_calls(self._undisturbed, new_tokens)

    @property
    def counted_runs(self) -> Sequence[Record]:
        """The runs that count where no calls are asked for: the undisturbed ones, or all ok ones where each was disturbed."""
        return self.undisturbed() or self.ok_runs

    def runs_of(self, new_tokens: int) -> Sequence[Record]:
        """The runs with timed calls of so many new tokens that count, oldest first: the undisturbed ones, or all ok ones where each was disturbed."""
        return self.undisturbed(new_tokens) or with_calls(self.ok_runs, new_tokens)

    def run_means_ms(self, new_tokens: int) -> Sequence[float]:
        """The mean timed call of each of `runs_of`, in ms."""
        if new_tokens not in self._means_ms:
            self._means_ms[new_tokens] = [statistics.fmean(series(run)[new_tokens]) for run in self.runs_of(new_tokens)]
        return self._means_ms[new_tokens]

    @property
    def guest(self) -> Result | None:
        return self.record.guest

    @property
    def output_is_right(self) -> bool:
        """Did the output pass a check?"""
        return bool(self.check and self.check.get("passed"))

    @property
    def output_is_wrong(self) -> bool:
        """Did the output fail a check? An output that no check saw is neither right nor wrong."""
        return bool(self.check) and not self.output_is_right

    @property
    def is_wrong_when_padded(self) -> bool:
        """Is the output of any run another one when padded?"""
        return any(map(is_wrong_when_padded, (self.record, *self.ok_runs)))

    @property
    def shown_tokens(self) -> list[int]:
        """The numbers of new tokens that it timed, as tables show them: [0] for a row without a time."""
        return (self.new_tokens if self.status == "ok" else []) or [0]

    @property
    def figures(self) -> dict[str, Any]:
        return self.record.figures

    def busy_shares(self, new_tokens: int) -> list[float | str]:
        """For each GPU, the middle run's share of the time of calls of so many new tokens in which a kernel ran; where no run tells a share, the latest
        code of scripts/machine/busy.py, which says why. [] where nothing was told."""
        told = [shares for run in self.shown_runs if (shares := busy_shares_of(run, new_tokens))]
        of_gpus = [[shares[place] for shares in told if place < len(shares)] for place in range(max(map(len, told), default=0))]
        return [_middle_share(of_gpu) for of_gpu in of_gpus]

    @property
    def measured_without_calls(self) -> bool:
        """Is the row ok without a timed call, so that its numbers stand in tables of their own?"""
        return self.status == "ok" and not self.new_tokens and bool(self.figures)

    @functools.cached_property
    def wrong_runs(self) -> Sequence[Record]:
        """The runs that ended well and whose output failed its check: one of them makes the row's output wrong."""
        return [run for run in self.ok_runs if (check := check_of(run)) and not check.get("passed")]

    @functools.cached_property
    def good_runs(self) -> Sequence[Record]:
        """The undisturbed ok runs whose output did not fail its check."""
        wrong = {run.id for run in self.wrong_runs}
        return [run for run in self._undisturbed if run.id not in wrong]

    @property
    def output_run(self) -> Record:
        """The run whose output stands for the row's: the first that is wrong, else the median run."""
        return next(iter(self.wrong_runs), self.record)

    @property
    def has_unchecked_runs(self) -> bool:
        """Did a run end well without a check of its output?"""
        return not all(map(check_of, self.ok_runs))

    @property
    def check(self) -> dict[str, Any] | None:
        """The check of `output_run`; None where no output is wrong and one was not checked."""
        return None if self.has_unchecked_runs and not self.wrong_runs else check_of(self.output_run)

    @property
    def dtype(self) -> str:
        """The dtype of the loaded model, as the guest reported it; without a report the dtype of the job."""
        used = self.guest.used.get("dtype") if self.guest else None
        return str(used or self.record.job.load.get("dtype", ""))

    @property
    def recipe(self) -> int:
        """The recipe of its random weights; real weights count as the newest recipe."""
        model = self.record.job.model
        return weights.recipe_of(model) if model.get("weights") == "random" else weights.RECIPE

    @property
    def environment(self) -> Mapping[str, Any]:
        """What the guest found where it ran; {} where it did not answer."""
        return self.guest.environment if self.guest else {}

    @property
    def packages(self) -> Mapping[str, str]:
        """{package: version} of the guest's environment; {} where the guest reported none."""
        return self.environment.get("packages") or {}

    def version(self, package: str) -> str:
        """The version of a package in the guest's environment; "" where the guest reported none."""
        return str(self.packages.get(package, ""))

    @property
    def is_workload(self) -> bool:
        """Are its calls the batches of a stream of texts, so that the time of a single call means nothing?"""
        return bool(self.figures.get("workload"))

    @property
    def is_calibration(self) -> bool:
        """Is it a row of `make calibrate`, without a model and an output?"""
        return self.record.job.article == CALIBRATION

    @property
    def empty_devices(self) -> int:
        """The number of its GPUs without a parameter; 0 where the guest reports no GPU with one. A part may lie on the CPU too."""
        held = (self.guest.used.get("parameters_per_device") if self.guest else None) or {}
        on_gpus = sum(name.startswith("cuda") for name in held)
        return max(0, self.count - on_gpus) if on_gpus and self.record.job.device == "cuda" else 0

    @property
    def new_tokens(self) -> list[int]:
        return sorted(series(self.record))

    def timed_ms(self, new_tokens: int) -> list[float]:
        return series(self.record).get(new_tokens, [])

    def calls_ms(self, new_tokens: int) -> list[float]:
        """The timed calls of so many new tokens, of all runs that count."""
        return [call for run in self.runs_of(new_tokens) for call in series(run)[new_tokens]]

    def summary(self, new_tokens: int) -> stats.Summary:
        """The Summary of the runs' mean calls, with Student's interval from stats.LEAST_RUNS runs on, and the p95 of all calls. Of a single run it
        is the Summary of its calls, without an interval, because the calls of one run do not show how runs scatter."""
        means, calls = self.run_means_ms(new_tokens), self.calls_ms(new_tokens)
        return dataclasses.replace(stats.summarise(calls if len(means) == 1 else means, stats.over_runs(means)), p95=stats.percentile(calls, 95))

    @property
    def differences(self) -> list[str]:
        """Where versions or files are not the pinned ones, in words."""
        return [str(difference) for difference in self.record.host.get("differences") or []]

    @property
    def is_on_stand_in(self) -> bool:
        return is_on_stand_in(self.record)

    @property
    def peak_of_a_gpu_bytes(self) -> int | None:
        """The most that any of its GPUs held, of the middle run; None without a sample."""
        return self.middle(peak_of_a_gpu_bytes)

    @property
    def peak_resident_bytes(self) -> int | None:
        """The most memory of the host that its measured processes held together, of the middle run; None where no guest told it."""
        return self.middle(peak_resident_bytes)

    @property
    def load_s(self) -> float | None:
        """Loading the model, of the middle run."""
        return self.middle(lambda run: run.guest.load_s if run.guest else None)

    @property
    def cold_ms(self) -> float | None:
        """The first call after loading, of the middle run."""
        return self.middle(cold_ms_of)

    def torch_peak_bytes(self, name: str) -> int | None:
        """The largest of its devices' "peak_allocated_bytes" or "peak_reserved_bytes", of the middle run."""
        return self.middle(lambda run: max((device[name] for device in run.guest.memory.get("devices") or []), default=None) if run.guest else None)

    @property
    def shown_runs(self) -> Sequence[Record]:
        """The runs whose memory and loading the row shows: those that count, or `record` alone where it did not end well."""
        return self.counted_runs if self.status == "ok" else [self.record]

    def middle(self, read: Callable[[Record], Number | None]) -> Number | None:
        """The lower median of what the shown runs tell, which is a number of one of them; None where none tells a number."""
        return _middle(map(read, self.shown_runs))

    def unusable(self, new_tokens: int | None = None) -> str:
        """Why this row cannot support a claim, or "": each of its runs has to have a right output."""
        if self.status != "ok" and len(self.ok_runs) < stats.LEAST_RUNS:
            return f"{self.name} {'failed' if self.status == 'failed' else f'is {self.status}'}: {self.record.reason}"
        if self.wrong_runs:
            return f"{self.name}'s {wrong_output(self.check or {})}: its numbers do not count"
        if self.has_unchecked_runs:
            return f"{self.name}'s output was not checked"
        if self.is_wrong_when_padded:
            return f"{self.name}'s output is another one when padded: its numbers do not count"
        if new_tokens is not None and not self.runs_of(new_tokens):
            return f"{self.name} has no run of {new_tokens} new tokens"
        return ""


def apart(faster: Row, slower: Row) -> bool:
    """Did two rows run on different GPUs, in all of their runs that count? Their difference may then come from their hosts."""
    uuids, slower_uuids = (uuids_of_runs(row.counted_runs) for row in (faster, slower))
    return bool(uuids and slower_uuids) and not uuids & slower_uuids


def gpus(count: int) -> str:
    """ "2 GPUs"."""
    return counted(count, "GPU")


def rows_of(records: Sequence[Record], article: Article | None) -> tuple[Row, ...]:
    """The rows of one group's records, in the order of the article's cases. A row has the runs that measured the same as its latest one."""
    by_case: dict[tuple[str, int, int], list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.host["started_at"], record.number, record.id)):
        by_case.setdefault((record.job.case, record.job.device_count, record.job.batch_size), []).append(record)
    rows = []
    for (case, count, _), same in by_case.items():
        latest = _identity(same[-1])
        runs = tuple(record for record in same if _identity(record) == latest)
        rows.append(Row(case, count, _median_run(runs), runs))
    order = {case.name: place for place, case in enumerate(article.cases if article else [])}
    return tuple(sorted(rows, key=lambda row: (order.get(row.case, len(order)), row.case, row.count, row.batch_size)))


def _median_run(runs: tuple[Record, ...]) -> Record:
    """The median of the undisturbed runs by the mean of its longest calls; of an even number of runs the later of the two in the middle. `runs`: oldest first.

    A single run on a busy machine then does not decide a row. Where the latest run ran out of memory or time, or is unsupported, it counts. A run that
    failed counts only where all failed. Runs that timed other things than calls have no median: the latest undisturbed one counts.
    """
    latest = next((run for run in reversed(runs) if run.status != "failed"), runs[-1])
    if latest.status != "ok":
        return latest
    counted = counting([record for record in runs if record.status == "ok"])
    timed = [record for record in counted if series(record)]
    if not timed:
        return counted[-1]
    return median(timed, lambda record: statistics.fmean(series(record)[max(series(record))]))


def median(items: Sequence[Item], key: Callable[[Item], float]) -> Item:
    """The median of one or more items, oldest first; of an even number the later of the two in the middle."""
    by_key = sorted(enumerate(items), key=lambda placed: key(placed[1]))
    return max(by_key[(len(items) - 1) // 2 : len(items) // 2 + 1], key=lambda placed: placed[0])[1]


def _identity(record: Record) -> tuple[str | None, str]:
    """Equal for records of a group that measured the same job with the same pins. Their ids may differ, because later versions put more into an id."""
    return record.host.get("pins_id"), record.job.fingerprint()


def _middle(values: Iterable[Number | None]) -> Number | None:
    """The lower median, which is one of the values; None without any."""
    told = [value for value in values if value is not None]
    return statistics.median_low(told) if told else None


def _middle_share(told: Sequence[float | str]) -> float | str:
    """The middle share of a GPU over its runs, or the latest code where no run tells a share."""
    middle = _middle(share for share in told if not isinstance(share, str))
    return told[-1] if middle is None else middle
