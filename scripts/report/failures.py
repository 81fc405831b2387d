"""A report that comes whatever a result holds: the run that a part of the report raises on is left out and named."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from scripts.errors import KitError
from scripts.report.text import plain
from scripts.results import Record, Skipped

Made = TypeVar("Made")

#: What fails on more runs than these, and on more than a tenth of them, is the kit's own fault and not a result's.
MOST_LEFT_OUT = 3


class Broken(Exception):
    """A part of the report raised on some of these runs; the cause is what it raised."""

    def __init__(self, part: str, records: Sequence[Record], cause: Exception) -> None:
        super().__init__(f"{part}: {type(cause).__name__}: {cause}")
        self.records = records


@contextlib.contextmanager
def part(name: str, records: Sequence[Record]) -> Iterator[None]:
    """Name a part of the report, and the runs that it is made of, where it raises."""
    try:
        yield
    except (Broken, KitError):
        raise
    except Exception as error:
        raise Broken(name, records, error) from error


def made_of(records: Sequence[Record], runs: Path, make: Callable[[Sequence[Record]], Made]) -> tuple[Made, list[Skipped]]:
    """What `make` gives of all records but those on which it raises, and those; raises Broken where the fault is the kit's."""
    kept = list(records)
    skipped: list[Skipped] = []
    while True:
        try:
            return make(kept), skipped
        except Broken as broken:
            left_out = _culprits(broken, make)
            if len(skipped) + len(left_out) > max(MOST_LEFT_OUT, len(records) // 10):
                raise
            without = ", ".join(record.id for record in left_out)
            print(f"report: {plain(broken)}; made again without {without}", file=sys.stderr, flush=True)
            skipped += [Skipped(runs / record.id, f"the report fails on it: {broken}") for record in left_out]
            gone = {record.id for record in left_out}
            kept = [record for record in kept if record.id not in gone]


def _culprits(broken: Broken, make: Callable[[Sequence[Record]], object]) -> Sequence[Record]:
    """The fewest of the broken part's runs that halving finds and that `make` raises on by themselves."""

    def fails(records: Sequence[Record]) -> bool:
        try:
            make(records)
        except Broken:
            return True
        return False

    if not broken.records:
        raise broken
    suspects = broken.records
    while len(suspects) > 1:
        half = len(suspects) // 2
        failing = next((some for some in (suspects[:half], suspects[half:]) if fails(some)), None)
        if failing is None:  # only together
            return [next((record for record in suspects if not fails([other for other in suspects if other is not record])), suspects[-1])]
        suspects = failing
    return suspects
