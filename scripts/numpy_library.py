"""numpy, imported at its first use: its import takes a sixth of a second, which a command that computes no number need not wait for.

A module that uses it keeps its annotations as text (`from __future__ import annotations`), because evaluated annotations would import it at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
else:

    class _Numpy:
        """Looks each name up in the library, once."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module("numpy"), name)
            setattr(self, name, found)
            return found

    numpy = _Numpy()

__all__ = ["numpy"]
