"""python -m scripts.commands.variables NAME KNOWN…: suggest a known variable in place of an unknown one. The Makefile runs it."""

import difflib
import sys
from collections.abc import Sequence


def advice(name: str, variables: Sequence[str]) -> str:
    """One line with the variable and the nearest variable of the kit; patterns such as `PIP_%` are not suggested."""
    near = difflib.get_close_matches(name.upper(), [variable for variable in variables if "%" not in variable], n=1, cutoff=0.5)
    return f"{name} is not a variable of the kit; " + (f"did you mean {near[0]}? " if near else "") + "Try: make help"


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that has no … shows ? in its place
    print(advice(sys.argv[1], sys.argv[2:]))
