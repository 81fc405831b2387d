"""Which names are allowed in an article's file and in a record, and how errors quote other ones.

A name becomes a folder, a part of a run's id and a link in the report.
"""

import difflib
import re
from collections.abc import Iterable

#: The name of an article, a case, a variant, a backend, a stack and the like.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"

#: The id of a run: the names of what it measured, 12 hex digits, and its number. A folder's name has at most 255 bytes.
RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,239}-[0-9]{2,9}\Z"

#: A batch size as the key of a table.
SIZE = r"^[1-9][0-9]{0,8}\Z"

WORDS = "letters, digits, '.', '_' and '-', at most 64, the first a letter or a digit"

#: What the keys of a table may be, in words.
WORDS_OF = {NAME: WORDS, SIZE: "batch sizes, whole numbers from 1"}


def slug(text: str) -> str:
    """A text as a part of an id or of a file's name: "NVIDIA H200" is "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def shortened(typed: str) -> str:
    """A typed text as an error quotes it: its first 60 characters, and … where more follow."""
    return typed if len(typed) <= 60 else typed[:60] + "…"


def nearest(typed: str, known: Iterable[str]) -> str:
    """The known name that a typed one most likely means; the first where none is like it."""
    names = list(known)
    return next(iter(difflib.get_close_matches(typed.lower(), names, n=1, cutoff=0.5)), names[0])
