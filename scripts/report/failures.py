"""A report is made whatever a result holds: a run on which a part of the report raises is left out and named.

A part that raises on too many runs has a mistake in its own code: one line tells the mistake, and a view is left out instead of the runs.
"""

import contextlib
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.report.text import plain
from scripts.results import Record, Skipped

Made = TypeVar("Made")

#: A failure on more runs than these, and on more than a tenth of all runs, is the kit's own fault and not a result's.
MOST_LEFT_OUT = 3


class Broken(Exception):
    """A part of the report raised `error` on some of `records`. `view` names the view that the part belongs to, "" for none."""

    def __init__(self, part: str, records: Sequence[Record], cause: Exception, view: str = "") -> None:
        super().__init__(f"{part}: {type(cause).__name__}: {cause}")
        self.records, self.error, self.view = records, cause, view


class OwnFault(KitError):
    """A part of the report raises on so many runs that the mistake is in its code. `view` as in Broken; `code` is the view, or without one the place."""

    def __init__(self, broken: Broken, records: Sequence[Record]) -> None:
        on = f", first on {records[0].id}" if records else ""
        place = _place(broken.error)
        super().__init__(f"{plain(broken)}{place}{on}; correct the code and type make report")
        self.view, self.code = broken.view, broken.view or place


def _place(error: Exception) -> str:
    """ " (scripts/report/views/times.py, line 12)": the last of the kit's own lines that an error went through; "" for none."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(path.relative_to(ROOT), line) for path, line in frames if path.is_relative_to(ROOT / "scripts") and path != Path(__file__)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


@contextlib.contextmanager
def part(name: str, records: Sequence[Record], view: str = "") -> Iterator[None]:
    """Turn an error into Broken, which names the part of the report and the runs that the part is made of; KitError and Broken pass."""
    try:
        yield
    except (Broken, KitError):
        raise
    except Exception as error:
        raise Broken(name, records, error, view) from error


def made_of(records: Sequence[Record], runs: Path, make: Callable[[Sequence[Record]], Made]) -> tuple[Made, list[Skipped]]:
    """(what `make` gives for the records on which it does not raise, the runs left out); raises OwnFault where the fault is the kit's."""
    kept = list(records)
    skipped: list[Skipped] = []
    told: list[str] = []
    faults: list[OwnFault] = []
    while True:
        try:
            made = make(kept)
        except Broken as broken:
            left_out = _culprits(broken, make)
            if not left_out:
                raise OwnFault(broken, []) from broken
            faults.append(OwnFault(broken, left_out))
            if len(skipped) + len(left_out) > max(MOST_LEFT_OUT, len(records) // 10):
                raise _most_frequent(faults) from broken
            without = ", ".join(record.id for record in left_out)
            told.append(f"report: {plain(broken)}; made again without {without}")
            skipped += [Skipped(runs / record.id, f"the report fails on it: {broken}") for record in left_out]
            gone = {record.id for record in left_out}
            kept = [record for record in kept if record.id not in gone]
        else:
            for line in told:
                print(line, file=sys.stderr, flush=True)
            return made, skipped


def _most_frequent(faults: Sequence[OwnFault]) -> OwnFault:
    """The first fault of the code that raised most often: other code may have raised on a damaged run before it."""
    counts = Counter(fault.code for fault in faults)
    return max(faults, key=lambda fault: counts[fault.code])


def _culprits(broken: Broken, make: Callable[[Sequence[Record]], object]) -> Sequence[Record]:
    """The run on which `make` raises, found by halving the broken part's runs; [] for a part without runs.

    Where `make` raises only on several runs together, the first run without which it does not raise, else the last.
    """

    def fails(records: Sequence[Record]) -> bool:
        try:
            make(records)
        except Broken:
            return True
        return False

    suspects = broken.records
    while len(suspects) > 1:
        half = len(suspects) // 2
        failing = next((some for some in (suspects[:half], suspects[half:]) if fails(some)), None)
        if failing is None:  # raises only on runs of both halves together
            return [next((record for record in suspects if not fails([other for other in suspects if other is not record])), suspects[-1])]
        suspects = failing
    return suspects
