"""Does the form of each case fit its backend? Both say so in their modules, so nothing has to be loaded to know."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bench import forms
from scripts.errors import KitError

if TYPE_CHECKING:
    from scripts.articles.model import Case


def check(cases: Iterable["Case"], file: str) -> None:
    """Raise KitError, in one line, for the first case whose form needs what its backend does not give, or that names a module that is not there."""
    for case in cases:
        place = f"{file}, [cases[{case.name}]]"
        try:
            reason = forms.refusal(case.form, case.backend)
        except ValueError as error:
            raise KitError(f"{place}: {error}") from error
        except ImportError as error:
            raise KitError(f"{place}: the modules of a backend and of a form import libraries inside their functions: {error}") from error
        if reason:
            raise KitError(f"{place}: {reason}")
