#!/usr/bin/env python3
"""How long a command on a terminal prints nothing.

COMMAND 2>&1 | .ci/silence.py watch FILE    pass on its lines as they end up, and write its silences into FILE, the longest first
.ci/silence.py check FILE SECONDS           print the longest ones; exit 1 where a silence is longer than SECONDS
"""

import os
import re
import sys
import time
from pathlib import Path

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def as_it_ends_up(line: str) -> str:
    """A line without colours, and without what it was before it was drawn again."""
    drawn = [part for part in ESCAPES.sub("", line).split("\r") if part.strip()]
    return drawn[-1].rstrip() if drawn else ""


def watch(path: str) -> None:
    """Any byte ends a silence; so does the end of the command."""
    silences, begun, shown, last = [], "", "", time.monotonic()
    while True:
        chunk = os.read(0, 65536)
        now = time.monotonic()
        silences.append((now - last, shown))
        if not chunk:
            break
        last = now
        *ended, begun = (begun.split("\r")[-1] + chunk.decode(errors="replace")).split("\n")
        lines = [as_it_ends_up(line) for line in ended]
        print(*lines, sep="\n", end="\n" if lines else "", flush=True)
        shown = as_it_ends_up(begun) or [shown, *filter(None, lines)][-1]
    longest = sorted(silences, reverse=True)[:10]
    Path(path).write_text("".join(f"{seconds:.1f} s after: {what}\n" for seconds, what in longest), encoding="utf-8")


def check(path: str, limit_s: str) -> None:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    print("\n".join(lines[:5]))
    if float(lines[0].split()[0]) > float(limit_s):
        sys.exit(f"silent for longer than {limit_s} s")


if __name__ == "__main__":
    {"watch": watch, "check": check}[sys.argv[1]](*sys.argv[2:])
