"""What version 1 of the rules said of the results that it judged: a file that was written once, before version 2, and is only read.

The file names the commit whose code wrote it. A verdict of it stands for a claim in one group of rows, by the group's name.
"""

from pathlib import Path
from typing import Literal

import msgspec

from scripts.errors import KitError
from scripts.paths import ROOT

FILE = ROOT / "reports" / "verdicts-version-1.json"

#: (the claim's id, the group's name, new tokens).
Place = tuple[str, str, int]


class Frozen(msgspec.Struct, frozen=True):
    """One verdict of version 1, with the keys that are read; `headline` marks the one that stood for its claim."""

    claim: str
    group: str
    new_tokens: int
    word: Literal["reproduced", "not reproduced", "not tested"]
    headline: bool


class File(msgspec.Struct, frozen=True):
    verdicts: list[Frozen]
    commit: str


def read(path: Path = FILE) -> dict[Place, Frozen]:
    """The verdicts by their places, {} where there is no such file; raises KitError for one that is damaged."""
    try:
        verdicts = msgspec.json.decode(path.read_bytes(), type=File).verdicts
    except FileNotFoundError:
        return {}
    except (msgspec.MsgspecError, OSError) as error:
        raise KitError(f"{path.name} is damaged: {error}; try git checkout {path.parent.name}/{path.name}") from error
    return {(verdict.claim, verdict.group, verdict.new_tokens): verdict for verdict in verdicts}
