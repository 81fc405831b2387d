"""A report that comes whatever a result holds: the run that a part of the report raises on is left out and named.

A part that raises on too many runs has a mistake in its own code: that is told in one line, and a view is left out in place of the runs.
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

#: What fails on more runs than these, and on more than a tenth of them, is the kit's own fault and not a result's.
MOST_LEFT_OUT = 3


class Broken(Exception):
    """A part of the report raised on some of these runs; the cause is what it raised. `view` is the name of the view whose part it is, "" for none."""

    def __init__(self, part: str, records: Sequence[Record], cause: Exception, view: str = "") -> None:
        super().__init__(f"{part}: {type(cause).__name__}: {cause}")
        self.records, self.error, self.view = records, cause, view


class OwnFault(KitError):
    """A part of the report raises on so many runs that its code has the mistake; `view` as in Broken, `code` its place where no view has it."""

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
    """Name a part of the report, and the runs that it is made of, where it raises."""
    try:
        yield
    except (Broken, KitError):
        raise
    except Exception as error:
        raise Broken(name, records, error, view) from error


def made_of(records: Sequence[Record], runs: Path, make: Callable[[Sequence[Record]], Made]) -> tuple[Made, list[Skipped]]:
    """What `make` gives of all records but those on which it raises, and those; raises OwnFault where the fault is the kit's."""
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
    """The fewest of the broken part's runs that halving finds and that `make` raises on by themselves; none where it raises without any."""

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
        if failing is None:  # only together
            return [next((record for record in suspects if not fails([other for other in suspects if other is not record])), suspects[-1])]
        suspects = failing
    return suspects
