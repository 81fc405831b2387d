"""make lock-models: ask the hub once for the files of each model's commit and write them into docker/models.json."""

from collections.abc import Callable, Iterable
from pathlib import Path

from scripts.errors import KitError
from scripts.models import files, hub, wanted
from scripts.models.wanted import ArticleModel
from scripts.paths import ROOT
from scripts.pins import models as model_pins
from scripts.pins.models import LockedModel


def lock_all(models: Iterable[ArticleModel], on_line: Callable[[str], None], root: Path = ROOT) -> list[KitError]:
    """Lock every model that is not locked yet; returns the errors of models that could not be locked. A locked model stays as it is."""
    locked, refused = model_pins.read_lock(root), []
    for model in models:
        if model.locked:
            on_line(f"{model.name}: {model.commit} stays locked")
            continue
        try:
            locked[model.name] = _ask(model)
        except KitError as error:  # an error of one model does not stop the others
            refused.append(error)
            continue
        model_pins.write_lock(locked, root)
        size_bytes = sum(file.size_bytes for file in locked[model.name].files)
        on_line(f"{model.name}: {locked[model.name].commit} locked, {len(locked[model.name].files)} files, {size_bytes / 1e9:.1f} GB")
    return refused


def _ask(model: ArticleModel) -> LockedModel:
    commit, all_files = hub.files_of(model.name, model.commit or "main")
    used = files.used(model.name, all_files)
    wanted.refuse_other_size(model, used, f"the hub's commit {commit[:12]}")
    return LockedModel(commit, used)
