"""python -m scripts.commands.targets NAME [TARGET BEFORE IT]: say that the Makefile has no such target, and which is the nearest. The Makefile runs it."""

import difflib
import re
import sys
from collections.abc import Iterable

from scripts.names import shortened
from scripts.paths import ROOT

#: {beginning of a target: an example of the name behind it}, where that name is not a backend.
EXAMPLES = {"article-": "inference-tools", "instrument-": "layers CASES=int8"}


def advice(name: str, targets: Iterable[str], before: str = "") -> str:
    """One line with the nearest target; in a target such as `bench-%` the % stands for what was typed after the first hyphen.

    `before` is the word typed before `name`: `bench deepspeed` lacks a hyphen.
    """
    targets = list(targets)
    if f"{before}-%" in targets:
        return f"error: there is no target {shortened(name)!r}; did you mean {before}-{shortened(name)}? Try: make help"
    if f"{name}%" in targets:
        return f"error: {name} needs a name after its hyphen; try make {name}{EXAMPLES.get(name, 'transformers')}"
    known = [target.replace("%", name.partition("-")[2] or "…") for target in targets if "/" not in name or "%" not in target]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"error: there is no target {shortened(name)!r}; " + (f"did you mean {near[0]}? " if near else "") + "Try: make help"


def of_makefile() -> list[str]:
    """The targets that `make help` lists."""
    return re.findall(r"^([a-z][a-z%-]*):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that has no … shows ? in its place
    print(advice(sys.argv[1], of_makefile(), "".join(sys.argv[2:])))
