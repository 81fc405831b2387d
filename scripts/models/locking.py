"""make lock-models: ask the hub once for the files of each model's commit and write them into docker/models.json."""

from pathlib import Path

from scripts.models import article_models, files, hub, store
from scripts.models.article_models import ArticleModel
from scripts.paths import ROOT
from scripts.pins import models as model_pins
from scripts.pins.models import LockedModel


def lock(model: ArticleModel, root: Path = ROOT) -> str:
    """Lock a model that is not locked yet; a locked model stays as it is. Returns a line for the user. Raises KitError."""
    if model.locked:
        return f"{model.name}: {model.commit} stays locked"
    entry = _ask(model)
    model_pins.write_lock({**model_pins.read_lock(root), model.name: entry}, root)
    size_bytes = sum(file.size_bytes for file in entry.files)
    return f"{model.name}: {entry.commit} locked, {len(entry.files)} files, {size_bytes / 1e9:.1f} GB"


def _ask(model: ArticleModel) -> LockedModel:
    commit, all_files = hub.files_of(model.name, model.commit or store.UNPINNED)
    used = files.used(model.name, all_files)
    article_models.refuse_other_size(model, used, f"the hub's commit {commit[:12]}")
    return LockedModel(commit, used)
