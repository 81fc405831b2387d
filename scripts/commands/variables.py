"""python -m scripts.commands.variables NAME KNOWN…: what to type in place of a variable that the kit does not know. The Makefile asks."""

import difflib
import sys
from collections.abc import Sequence


def advice(name: str, known: Sequence[str]) -> str:
    """One line that names the variable and the nearest known one; patterns such as `PIP_%` and lower-case names are not suggested."""
    plain = [word for word in known if word.replace("_", "").isalpha()]
    near = difflib.get_close_matches(name.upper(), plain, n=1, cutoff=0.5)
    return f"{name} is no variable of the kit; " + (f"did you mean {near[0]}? " if near else "") + "Try: make help"


if __name__ == "__main__":
    print(advice(sys.argv[1], sys.argv[2:]))
