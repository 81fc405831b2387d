"""Property tests: the same bounded examples in every run, few in the fast lane and many under the mark `full`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy


def holds_for(fast: int = 25, full: int = 500, **strategies: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """A test that its function holds for drawn arguments: of `fast` examples, and of `full` ones under the mark `full`.

    Examples follow from the code alone, so a failure comes again; no example is stored, and a slow machine fails none.
    """
    many = pytest.param(full, marks=pytest.mark.full, id="full")

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [pytest.param(fast, id="fast"), many])
        def test(examples: int) -> None:
            chosen = settings(max_examples=examples, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            chosen(given(**strategies)(check))()

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        return test

    return decorate
