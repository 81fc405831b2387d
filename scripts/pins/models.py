"""The pins of the articles' models: commits in docker/pins.toml, the files of those commits in docker/models.json.

`make lock-models` writes docker/models.json. Of a model that is missing there the kit knows only the commit.
"""

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.job import write_whole
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.pins.model import ORIGINS

LOCK = Path("docker/models.json")


class ModelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a commit. `digest` is "sha256:…" of a large file, "git:…" (the id of its git blob) of a small one."""

    name: str
    size_bytes: int
    digest: str


class LockedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A commit, and those of its files that the kit uses."""

    commit: str
    files: tuple[ModelFile, ...]


@dataclass(frozen=True)
class ModelPin:
    """`commit` is "" where it is unknown; `locked` is None until `make lock-models` has asked the hub."""

    commit: str
    locked: LockedModel | None = None


def load(root: Path = ROOT) -> dict[str, ModelPin]:
    """{name: pin}; raises KitError with the place of a mistake."""
    locked = read_lock(root)
    return {name: _pin(name, table, locked.get(name)) for name, table in _tables(root).items()}


@functools.cache
def _tables(root: Path) -> dict[str, dict[str, str]]:
    path = root / "docker" / "pins.toml"
    try:
        tables: dict[str, dict[str, str]] = tomllib.loads(path.read_text(encoding="utf-8")).get("models", {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise KitError(f"{path} cannot be read ({error}); restore it with `git checkout docker/pins.toml`") from error
    return tables


def _pin(name: str, table: Mapping[str, str], locked: LockedModel | None) -> ModelPin:
    commit = table.get("commit", "main")
    if (commit and not is_commit(commit)) or table.get("origin") not in ORIGINS or not table.get("why"):
        needed = f'a commit (40 hex digits, or ""), an origin ({", ".join(ORIGINS)}) and a why'
        has = f"commit is {commit!r}; " if "commit" in table else "there is no commit; "
        raise KitError(f'docker/pins.toml, [models."{name}"]: {has}a model needs {needed}')
    if locked and commit and locked.commit != commit:
        locked = None  # the pin has changed since
    return ModelPin(commit or (locked.commit if locked else ""), locked)


def is_commit(text: str) -> bool:
    """Is this a whole commit id, not a branch or a tag, which can move?"""
    return bool(re.fullmatch(r"[0-9a-f]{40}", text))


def read_lock(root: Path = ROOT) -> dict[str, LockedModel]:
    """{name: its commit and files}; {} before the first `make lock-models`."""
    path = root / LOCK
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, LockedModel])
    except msgspec.MsgspecError as error:
        raise KitError(f"{path} cannot be read ({error}); restore it with `git checkout {LOCK}`") from error


def write_lock(locked: Mapping[str, LockedModel], root: Path = ROOT) -> None:
    """Write the whole docker/models.json, sorted by name."""
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(locked.items()))), indent=1).decode()
    write_whole(root / LOCK, text + "\n")
