"""Weights that came in pickles, kept as safetensors beside them.

    models/hub/<organisation>--<name>/safetensors-<commit or path-id>/

A guest makes the safetensors (bench/models/pickles.py), so the kit takes only tensors from it, in files with the expected names. The
folder appears whole. Its manifest says which files it was made of: for other files it is made anew.
"""

import dataclasses
import os
import re
import shutil
import sys
from pathlib import Path

from scripts.errors import KitError
from scripts.machine import permissions, removal
from scripts.models import article_models, files, manifest, place
from scripts.models.article_models import ArticleModel
from scripts.models.held import HeldModel
from scripts.models.manifest import Manifest
from scripts.pins.models import ModelFile

PREFIX = "safetensors-"
INDEX = "model.safetensors.index.json"

#: What a conversion may leave, beside an index.
MADE = re.compile(r"model(-[0-9]{1,6}-of-[0-9]{1,6})?\.safetensors")

#: An index names each tensor once; that of 7 billion parameters has 30 kB.
INDEX_BYTES = 16 << 20


def folder_of(held: HeldModel) -> Path:
    return held.folder.with_name(PREFIX + held.folder.name)


def kept(held: HeldModel) -> HeldModel | None:
    """The model with its converted weights, where they were made of these very files and are unchanged since. Reads no weights."""
    folder = folder_of(held)
    made = manifest.read(folder)
    whole = made and made.made_from == held.files_sha256 and made.is_complete(folder)
    return dataclasses.replace(held, folder=folder, converted_by=made.converted_by) if made and whole else None


def still_to_write_bytes(held: HeldModel) -> int:
    """The bytes that a conversion will write; 0 where none is needed."""
    return sum(file.size_bytes for file in held.files if files.is_weights(file.name)) if held.in_pickles and not kept(held) else 0


def room_for(held: HeldModel) -> None:
    """Raise PreflightError where the disk cannot hold the safetensors beside the pickles."""
    place.room_for(held.folder, still_to_write_bytes(held))


def keep(model: ArticleModel, held: HeldModel, made: Path, converted_by: str) -> HeldModel:
    """Complete the folder `made`, which a guest has filled on the same disk, and move it to its place. Raises KitError for what does not belong there."""
    names = _expected(model, made)
    for file in held.files:
        if not files.is_weights(file.name) and not file.name.endswith(".index.json"):
            shutil.copyfile(held.folder / file.name, made / file.name)
            names.append(file.name)
    permissions.open_to_all(made)
    listed = tuple(ModelFile(name, (made / name).stat().st_size, files.digest_of(made / name)) for name in sorted(names))
    article_models.refuse_other_size(model, listed, "its conversion")
    written = Manifest(model.name, held.commit, listed, made_from=held.files_sha256, converted_by=converted_by)
    for file in listed:
        _onto_disk(made / file.name)
        written.remember(made, file)
    folder = folder_of(held)
    if folder.exists():
        removal.remove(folder)
    made.rename(folder)
    return dataclasses.replace(held, folder=folder, converted_by=converted_by)


def _expected(model: ArticleModel, made: Path) -> list[str]:
    """The names of the files that a guest left, each a file that a conversion makes."""
    names = sorted(path.name for path in made.iterdir())
    other = next((name for name in names if not (MADE.fullmatch(name) or name == INDEX) or not (made / name).is_file()), None)
    if other or not any(MADE.fullmatch(name) for name in names):
        found = f"left {other!r:.80}" if other else "left no file"
        raise KitError(f"{model.name}: its conversion {found}, allowed are model*.safetensors and their index; type make models, or WEIGHTS=random")
    if INDEX in names and (made / INDEX).stat().st_size > INDEX_BYTES:
        raise KitError(f"{model.name}: its conversion left an index of more than {INDEX_BYTES >> 20} MiB; type make models, or WEIGHTS=random")
    return names


def _onto_disk(path: Path) -> None:
    """Make sure that a file is on the disk before its folder gets its name: a machine that loses power must not keep half a file."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def verify(model: ArticleModel, home: Path) -> None:
    """Read every converted file under a model's folder again; a folder with a wrong file goes away, and is made anew when it is needed."""
    for folder in sorted(home.glob(f"{PREFIX}*")):
        made = manifest.read(folder)
        wrong = _difference(folder, made.files) if made else "its manifest cannot be read"
        if wrong:
            removal.remove(folder)
            print(f"  {model.name}: {folder.name} was removed because {wrong}; make models converts the pickles again", file=sys.stderr, flush=True)


def _difference(folder: Path, listed: tuple[ModelFile, ...]) -> str:
    for file in listed:
        path = folder / file.name
        wrong = files.difference(path, file) if path.is_file() else f"{file.name} is missing"
        if wrong:
            return wrong.replace("the commit's", "the conversion's")
    return ""
