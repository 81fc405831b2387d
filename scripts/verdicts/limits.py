"""How far a row is from what its GPUs can do: bytes to read and operations to make, over the GPUs' own rates and the nominal ones.

docs/method.md holds the formulas and their sources.
"""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence

from bench.measuring import work
from bench.models import weights
from scripts.machine import nominal_rates
from scripts.verdicts import rates, token_times
from scripts.verdicts.row import Row, median

#: Forms whose calls make the steps of one batch; others answer workloads.
FORMS = ("generate", "batch", "transformers-pipeline", "transformers-pipeline-sequences", "padded-sentences")


@dataclasses.dataclass(frozen=True)
class Rates:
    """The rates of all GPUs that hold weights, together; None where they are not known."""

    bytes_per_s: float | None
    flop_per_s: float | None


@dataclasses.dataclass(frozen=True)
class Distance:
    """What a step (one token for each sequence) or a prompt needs, and what it took, in the run of a row whose step or prompt took the median time.

    row           the row; all else is told of one run
    run           that run, as a row of its own
    further       whether `ms` is the time of one further token, or of the prompt and one token; else `ms` is a whole call over its tokens
    stamped       whether `ms` is the median time between stamped tokens
    """

    row: Row
    run: Row
    further: bool
    stamped: bool
    ms: float
    weight_bytes: float
    cache_bytes: float
    flop: float

    @functools.cached_property
    def measured(self) -> Rates:
        """By the run's own probe."""
        return measured(self.run)

    @functools.cached_property
    def nominal(self) -> Rates:
        return nominal(self.run)

    @property
    def products_ms(self) -> float | None:
        """The model's matrix products alone, of a step; None where the run did not measure them, or measured them for another number of sequences."""
        products = self.run.figures.get("products") or {}
        times = products.get("step_us") if products.get("rows") == self.run.sequences else None
        return statistics.median(times) / 1000 if times else None

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.cache_bytes

    def reading_ms(self, rates: Rates) -> float | None:
        return 1000 * self.total_bytes / rates.bytes_per_s if rates.bytes_per_s else None

    def computing_ms(self, rates: Rates) -> float | None:
        return 1000 * self.flop / rates.flop_per_s if rates.flop_per_s else None

    def bandwidth_share(self, rates: Rates) -> float | None:
        """Model bandwidth utilisation."""
        limit_ms = self.reading_ms(rates)
        return limit_ms / self.ms if limit_ms is not None else None

    def matrix_share(self, rates: Rates) -> float | None:
        """Model FLOP utilisation."""
        limit_ms = self.computing_ms(rates)
        return limit_ms / self.ms if limit_ms is not None else None


def steps(row: Row) -> Distance | None:
    """The decoding step of a row; None where it makes no step after the prompt's, or its work is not known."""
    return _median(row, _steps)


def steps_of_runs(row: Row) -> Sequence[Distance]:
    """The decoding step of each run that counts, oldest first; [] where the row has none."""
    return _of_runs(row, _steps)


def prompt(row: Row) -> Distance | None:
    """The prompt of a row that timed calls of one new token; None for other rows, or where the work is not known."""
    return _median(row, _prompt)


def _median(row: Row, of_run: Callable[[Row], Distance | None]) -> Distance | None:
    """The distance of the run with the median time; None where the row has none."""
    found = _of_runs(row, of_run)
    return dataclasses.replace(median(found, lambda distance: distance.ms), row=row) if found else None


def _of_runs(row: Row, of_run: Callable[[Row], Distance | None]) -> Sequence[Distance]:
    """The distances of the runs that count; [] for a row with a wrong output.

    Times of stamped tokens and differences of calls are two clocks: where a run has stamps, runs without stamps are left out.
    """
    counts = row.status == "ok" and row.new_tokens and not row.wrong_runs
    runs = row.runs_of(row.new_tokens[-1]) if counts else ()
    told = [distance for run in runs if (distance := of_run(dataclasses.replace(row, record=run, runs=(run,))))]
    return [distance for distance in told if distance.stamped] or told


def _steps(row: Row) -> Distance | None:
    model = _model_of(row)
    if model is None or row.new_tokens[-1] < 2:
        return None
    short, long = row.new_tokens[0], row.new_tokens[-1]
    between_ms = _between_ms(row, long)
    further = bool(between_ms) or short == 1
    ms = between_ms or _of_calls_ms(row, short, long)
    if ms is None or ms <= 0:
        return None
    # The context in the middle of the timed steps: those after the first token, or all of a call.
    context = prompt_tokens(row) + (1 + long if further else long) / 2
    return Distance(
        row=row,
        run=row,
        further=further,
        stamped=bool(between_ms),
        ms=ms,
        weight_bytes=work.weight_bytes(model, row.dtype),
        cache_bytes=work.cache_bytes(model, row.dtype, row.sequences, context),
        flop=work.step_flop(model, row.sequences, context),
    )


def _of_calls_ms(row: Row, short: int, long: int) -> float | None:
    """The time of a further token, where the row has calls of one token; else the time of a call over its tokens.

    None where no call is known to have made all its steps.
    """
    whole = _whole_calls_ms(row, long)
    if not whole:
        return None
    whole_ms = statistics.fmean(whole)
    return (whole_ms - statistics.fmean(row.timed_ms(short))) / (long - short) if short == 1 else whole_ms / long


def _whole_calls_ms(row: Row, new_tokens: int) -> list[float]:
    """The timed calls that are known to have made `new_tokens` steps.

    A batch takes as many steps as its longest answer has tokens. Where answers may end earlier, the guest counts the tokens of all answers of a call:
    if they are more than all answers together can have one step earlier, one answer made the last step.
    """
    times = row.timed_ms(new_tokens)
    if not any(run.get("up_to") for run in row.record.job.runs):
        return times
    most_before = row.sequences * (new_tokens - 1)
    made = rates.made_tokens(row.record, new_tokens) or [0] * len(times)  # nothing is known about calls without a count
    return [ms for ms, tokens in zip(times, made, strict=True) if tokens > most_before]


def _between_ms(row: Row, new_tokens: int) -> float | None:
    """The median time between two tokens of the run's stamped calls; None where it has none.

    This time goes before the difference of calls: a call of one token waits for a slow host, and a longer call hides a part of that wait.
    """
    stamped = row.figures.get("token_times") or {}
    between = token_times.between_ms([stamped])
    return statistics.median(between) if between and stamped.get("new_tokens") == new_tokens else None


def _prompt(row: Row) -> Distance | None:
    model = _model_of(row)
    if model is None or row.new_tokens[0] != 1:
        return None
    return Distance(
        row=row,
        run=row,
        further=True,
        stamped=False,
        ms=statistics.fmean(row.timed_ms(1)),
        weight_bytes=work.weight_bytes(model, row.dtype),
        cache_bytes=0.0,
        flop=work.prompt_flop(model, row.sequences, prompt_tokens(row)),
    )


def _model_of(row: Row) -> work.Model | None:
    """The products of the row's model; None where the row has no steps of them."""
    job = row.record.job
    usable = row.status == "ok" and row.new_tokens and job.device == "cuda" and job.model.get("scale") == "full" and job.form in FORMS
    shape = job.model.get("shape")
    if not usable or row.dtype not in work.VALUE_BYTES or shape not in weights.SHAPES:
        return None
    return work.model_of(weights.config_of(shape, "full"))


def prompt_tokens(row: Row) -> int:
    """Of one sequence, with its padding."""
    padded = row.figures.get("padded_prompt_tokens")
    return int(padded) // row.batch_size if padded else (row.guest.prompt_tokens if row.guest else None) or 0


def _used_gpus(row: Row) -> int:
    return max(1, row.count - row.empty_devices)


def measured(row: Row) -> Rates:
    """By the run's own probe. Of several GPUs the slowest stands for each."""
    devices = (row.figures.get("roof") or {}).get("devices") or []
    reads = [device["read_bytes"] / statistics.median(device["read_us"]) * 1e6 for device in devices]
    products = [device["matrix_flop"] / statistics.median(device["matrix_us"]) * 1e6 for device in devices]
    return Rates(min(reads) * _used_gpus(row), min(products) * _used_gpus(row)) if devices else Rates(None, None)


def nominal(row: Row) -> Rates:
    """By the driver, as far as it told; else by the vendor's data sheet."""
    gpus = row.record.host.get("gpus") or []
    sheets = [nominal_rates.RATES.get(gpu["name"]) for gpu in gpus]
    reads = [gpu.get("memory_bytes_per_s") or (sheet.memory_bytes_per_s if sheet else None) for gpu, sheet in zip(gpus, sheets, strict=True)]
    products = [sheet.matrix_flop_per_s if sheet else None for sheet in sheets]
    return Rates(_together(reads, row), _together(products, row))


def _together(rates: Sequence[float | None], row: Row) -> float | None:
    """All GPUs at the rate of the slowest; None where the rate of one is not known."""
    known = [rate for rate in rates if rate]
    return min(known) * _used_gpus(row) if known and len(known) == len(rates) else None
