"""The committed results, read once for all tests of a process, which change none of them."""

import functools
from collections.abc import Sequence

from scripts import results
from scripts.results import Record


@functools.cache
def contained() -> Sequence[Record]:
    """The runs of the first report."""
    return tuple(results.load_all(results.RUNS)[0])


@functools.cache
def apart() -> Sequence[Record]:
    """The runs without containers."""
    return tuple(results.load_all(results.WITHOUT_CONTAINERS)[0])


def every() -> Sequence[Record]:
    return (*contained(), *apart())
