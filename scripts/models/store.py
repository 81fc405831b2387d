"""Real weights on this machine, each file checked once. They come from the models' folder, the hub's own cache, MODEL_PATH, or the hub.

    models/hub/<organisation>--<name>/<commit>/     files, or links into the hub's cache
    models/hub/<organisation>--<name>/path-<id>/    links into MODEL_PATH
    models/hub/<organisation>--<name>/safetensors-…/  what was made of pickles (scripts/models/converted.py)

The manifest of a folder names its files, and which of them were checked.
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.errors import KitError, UsageError
from scripts.machine import permissions
from scripts.models import article_models, converted, files, hub, hub_cache, links, manifest, place
from scripts.models.article_models import ArticleModel
from scripts.models.held import HeldModel
from scripts.models.manifest import Manifest
from scripts.pins.models import ModelFile, is_commit

#: The branch that the hub is asked for where no pin has a commit; the commit of the answer is kept.
UNPINNED = "main"


def provide(model: ArticleModel, root: Path, typed: Path | None = None) -> HeldModel:
    """The model's files under the models' folder `root`: from MODEL_PATH where the user `typed` it, else fetched where they are missing.

    Raises KitError with the next command.
    """
    home = _home(model, root)
    if typed:
        return _from_folder(model, home, typed)
    kept = _kept(model, home)
    if kept and kept.is_complete(home / kept.commit):
        return _held(model, home / kept.commit, kept)
    with place.alone(home):
        return _complete(model, home)


def commit_of(model: ArticleModel, root: Path, typed: Path | None = None) -> str:
    """The commit that `provide` will give, before any weights are fetched. Asks the hub only where no pin and no manifest has the commit."""
    if typed:
        return provide(model, root, typed).commit
    kept = _kept(model, _home(model, root))
    return model.commit or (kept.commit if kept else hub.files_of(model.name, UNPINNED)[0])


def commit_of_plan(model: ArticleModel, root: Path, typed: Path | None = None) -> str:
    """As `commit_of`, but MODEL_PATH is neither read nor linked to. Raises CannotFetch where only its files would tell the commit: no run has read them yet."""
    if not typed:
        return commit_of(model, root)
    home = _home(model, root)
    known = model.locked or _kept(model, home)
    if known:
        return known.commit
    folder = _folder_of_links(home, typed)
    read_before = manifest.read(folder)
    if not read_before or not read_before.is_complete(folder):
        raise hub.CannotFetch(f"no run has read the files of MODEL_PATH={typed} yet")
    return read_before.commit


def still_to_come_bytes(model: ArticleModel, root: Path, typed: Path | None = None) -> int | None:
    """The bytes that fetching and converting will write; None where they are not known. Asks no server and reads no weights."""
    if typed:
        return 0
    home = _home(model, root)
    known = model.locked or _kept(model, home)
    if known:
        to_fetch = sum(_still_to_come_bytes(model, home / known.commit, file) for file in known.files)
        return to_fetch + converted.still_to_write_bytes(HeldModel(home / known.commit, known.commit, known.files))
    cached = hub_cache.files_of(model.name, model.commit) if model.commit else ()
    return 0 if cached else None


def verify(model: ArticleModel, root: Path) -> HeldModel | None:
    """Check every file of a model again; a wrong file is set aside and fetched again. None where the model has no files here."""
    home = _home(model, root)
    _verify_links(model, home)
    converted.verify(model, home)
    kept = _kept(model, home)
    if not kept:
        return None
    with place.alone(home):
        kept.forget(home / kept.commit)
        return _complete(model, home)


def _home(model: ArticleModel, root: Path) -> Path:
    return root / "hub" / model.name.replace("/", "--")


def _kept(model: ArticleModel, home: Path) -> Manifest | None:
    """The manifest of the files fetched for the model's commit; for a model without a commit, of any commit that was fetched."""
    for folder in sorted(home.glob("*")):
        kept = manifest.read(folder) if is_commit(folder.name) else None
        if kept and model.commit in (kept.commit, ""):
            return kept if not model.locked or kept.files == model.locked.files else None
    return None


def _held(model: ArticleModel, folder: Path, checked: Manifest) -> HeldModel:
    served_by = f"the folder {folder}"
    article_models.refuse_other_size(model, checked.files, served_by)
    article_models.refuse_lost_weights(model, folder, checked.files, served_by)
    article_models.refuse_other_shape(model, folder, served_by)
    return HeldModel(folder, checked.commit, checked.files)


# ---------------------------------------------------------------- from the hub or its cache
def _complete(model: ArticleModel, home: Path) -> HeldModel:
    """Fetch the missing files and check the unchecked ones."""
    commit, listed = _files(model, home)
    article_models.refuse_other_size(model, listed, f"the hub's commit {commit[:12]}")
    folder = home / commit
    permissions.make(folder)
    now = Manifest(model.name, commit, listed, _seen_before(folder, listed))
    now.write(folder)
    missing = [file for file in listed if not now.is_checked(folder, file)]
    place.room_for(folder, sum(_still_to_come_bytes(model, folder, file) for file in missing))
    beside = [file for file in missing if not files.is_weights(file.name)]
    weights = [file for file in missing if files.is_weights(file.name)]
    for needed in (beside, weights):
        for file in needed:
            _obtain(model, folder, file)
            now.remember(folder, file)
        held = _held(model, folder, now)  # also before the weights: they are large, and the configuration already shows another model
    return held


def _seen_before(folder: Path, listed: tuple[ModelFile, ...]) -> dict[str, tuple[int, int]]:
    """The `seen` states of the folder's manifest, for files that it lists with the same digest."""
    before = manifest.read(folder)
    same = {file.name for file in set(listed).intersection(before.files)} if before else set()
    return {name: seen for name, seen in before.seen.items() if name in same} if before else {}


def _files(model: ArticleModel, home: Path) -> tuple[str, tuple[ModelFile, ...]]:
    """(commit, files) of the lock, else of an earlier fetch, else of the hub, else of the hub's cache."""
    if model.locked:
        return model.locked.commit, model.locked.files
    kept = _kept(model, home)
    if kept:
        return kept.commit, kept.files
    try:
        commit, all_files = hub.files_of(model.name, model.commit or UNPINNED)
    except hub.CannotFetch:
        commit, all_files = model.commit, hub_cache.files_of(model.name, model.commit) if model.commit else ()
        if not all_files:
            raise
    return commit, files.used(model.name, all_files)


def _still_to_come_bytes(model: ArticleModel, folder: Path, file: ModelFile) -> int:
    """What fetching a file will write; a part of it may be there."""
    path = folder / file.name
    if path.exists() or hub_cache.file_of(model.name, folder.name, file):
        return 0
    part = manifest.look(hub.part_of(path))
    return file.size_bytes - (part[0] if part else 0)


def _obtain(model: ArticleModel, folder: Path, file: ModelFile) -> None:
    """Put a file with the right content at its path. Raises KitError where the hub serves a wrong file twice."""
    path = folder / file.name
    if path.exists() and not _is_wrong(path, file):
        return
    cached = hub_cache.file_of(model.name, folder.name, file)
    if cached:
        links.link(path, cached)
        if not _is_wrong(path, file):
            return
    for _ in range(2):
        path.unlink(missing_ok=True)  # a broken link
        hub.download(model.name, folder.name, file, path)
        if not _is_wrong(path, file):
            permissions.open_to_all(path)
            return
    kept_as = f"the wrong file is kept as {path}{files.WRONG}"
    raise KitError(f"{model.name}: the hub served a wrong {file.name} for this commit, twice; {kept_as}; type make models, or HF_ENDPOINT= of another mirror")


def _is_wrong(path: Path, file: ModelFile) -> bool:
    """Is this another file than the commit names? A wrong file is reported and set aside."""
    wrong = files.difference(path, file)
    if not wrong:
        return False
    if path.is_symlink():
        print(f"  {wrong}: {path.resolve()} stays and is not used", file=sys.stderr, flush=True)
        path.unlink()
    else:
        aside = path.with_name(path.name + files.WRONG)
        path.replace(aside)
        print(f"  {wrong}: set aside as {aside}", file=sys.stderr, flush=True)
    return True


# ---------------------------------------------------------------- from MODEL_PATH
def refuse_no_folder(source: Path) -> None:
    """Raise UsageError where MODEL_PATH is no folder."""
    if not source.is_dir():
        raise UsageError(f"MODEL_PATH is {str(source)!r}, allowed is a folder with config.json and weights; type MODEL_PATH=/folder")


def _folder_of_links(home: Path, source: Path) -> Path:
    """Where the links into a folder of MODEL_PATH lie."""
    return home / f"path-{hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]}"


def _from_folder(model: ArticleModel, home: Path, source: Path) -> HeldModel:
    """Link to the files of MODEL_PATH: the files of the commit where they are known, else all weights of the folder, known by their digest."""
    refuse_no_folder(source)
    folder = _folder_of_links(home, source)
    kept = _kept(model, home)
    with place.alone(home):
        permissions.make(folder)
        before = manifest.read(folder) or Manifest(model.name, "", ())
        known = model.locked or kept
        now = _as_pinned(model, before, known.commit, known.files) if known else _as_found(model, folder, source, before)
        _link_all(folder, source, now)
        for file in now.files:
            if not now.is_checked(folder, file):
                _refuse_wrong(model, source, file)
                now.remember(folder, file)
        return _held(model, folder, now)


def _as_pinned(model: ArticleModel, before: Manifest, commit: str, listed: tuple[ModelFile, ...]) -> Manifest:
    """The manifest of a folder that has to hold the files of a commit."""
    return Manifest(model.name, commit, listed, before.seen if before.files == listed else {})


def _as_found(model: ArticleModel, folder: Path, source: Path, before: Manifest) -> Manifest:
    """The manifest of a folder without known files to compare with: it takes the digests that the files have now."""
    sizes = [ModelFile(path.name, path.stat().st_size, "") for path in sorted(source.glob("*")) if path.is_file()]
    try:
        chosen = files.used(model.name, sizes)
    except KitError as error:
        raise UsageError(f"MODEL_PATH is {str(source)!r}, and {error}") from error
    article_models.refuse_other_size(model, chosen, f"the folder {source}")
    known = {file.name: file for file in before.files if before.is_checked(folder, file)}
    listed = tuple(known.get(file.name) or ModelFile(file.name, file.size_bytes, files.digest_of(source / file.name)) for file in chosen)
    now = Manifest(model.name, f"folder-{files.weights_sha256(listed)[:12]}", listed)
    _link_all(folder, source, now)
    for file in listed:
        now.remember(folder, file)
    return now


def _link_all(folder: Path, source: Path, now: Manifest) -> None:
    """Give the folder a link for each file, and no other link."""
    for path in folder.glob("*"):
        if path.is_symlink() and path.name not in {file.name for file in now.files}:
            path.unlink()
    for file in now.files:
        links.link(folder / file.name, (source / file.name).resolve())


def _refuse_wrong(model: ArticleModel, source: Path, file: ModelFile) -> None:
    path = source / file.name
    wrong = files.difference(path, file) if path.is_file() else f"{file.name} is missing"
    if wrong:
        raise KitError(f"{model.name}: MODEL_PATH is {str(source)!r}, but there {wrong}; type MODEL_PATH= of another copy, or leave it out to fetch the model")


def _verify_links(model: ArticleModel, home: Path) -> None:
    """Check the files of every linked MODEL_PATH again; raises KitError for the first file that has changed."""
    for folder, listed in _linked(home):
        for file in listed.files:
            path = folder / file.name
            wrong = files.difference(path, file) if path.exists() else f"{file.name} is gone"
            if wrong:
                source = path.readlink().parent if path.is_symlink() else folder
                raise KitError(f"{model.name}: {source} has changed: {wrong}; put the right file there, or type rm -r {folder}")
            listed.remember(folder, file)


def _linked(home: Path) -> Iterator[tuple[Path, Manifest]]:
    for folder in sorted(home.glob("path-*")):
        listed = manifest.read(folder)
        if listed:
            yield folder, listed
