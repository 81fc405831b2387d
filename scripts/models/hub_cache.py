"""The cache of the hub's own client (HF_HOME), read and never written.

    models--<organisation>--<name>/snapshots/<commit>/<file>   a link to ../../blobs/<digest>, which names the content

The kit uses these files in place, once their content was checked.
"""

import re
from pathlib import Path

from scripts import surroundings
from scripts.models.files import loaded
from scripts.pins.models import ModelFile

#: A model without any of these cannot read a text.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def _snapshot(name: str, commit: str) -> Path:
    return surroundings.current().hub_cache / f"models--{name.replace('/', '--')}" / "snapshots" / commit


def file_of(name: str, commit: str, file: ModelFile) -> Path | None:
    """The path of a commit's file in the cache; None where the file is missing or has another size than in the commit."""
    path = _snapshot(name, commit) / file.name
    try:
        return path.resolve() if path.stat().st_size == file.size_bytes else None
    except OSError:
        return None


def files_of(name: str, commit: str) -> tuple[ModelFile, ...]:
    """The files of a commit, with the digests that name their blobs; () where the cache lacks a file that loading needs."""
    folder = _snapshot(name, commit)
    files = tuple(file for path in sorted(folder.glob("*")) if path.is_file() and (file := _file_of(path)))
    names = {file.name for file in files}
    complete = "config.json" in names and names.intersection(TOKENIZERS) and _has_weights(folder, names)
    return files if complete else ()


def _has_weights(folder: Path, names: set[str]) -> bool:
    try:
        return bool(loaded(names, folder))
    except ValueError:
        return False


def _file_of(path: Path) -> ModelFile | None:
    blob = path.resolve()
    kind = {64: "sha256", 40: "git"}.get(len(blob.name)) if re.fullmatch("[0-9a-f]+", blob.name) else None
    return ModelFile(path.name, blob.stat().st_size, f"{kind}:{blob.name}") if kind else None
