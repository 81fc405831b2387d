"""The models of the articles, and checks that files or a folder can be the named model."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.models import weights
from scripts import articles
from scripts.errors import KitError, UsageError
from scripts.models.files import is_weights, loaded
from scripts.pins import models as model_pins
from scripts.pins.models import LockedModel, ModelFile

#: Bytes of the weight files per parameter: 2 in float16 or bfloat16, 4 in float32, plus buffers and a tied matrix that is stored twice.
LEAST_BYTES, MOST_BYTES = 1.9, 5.0

#: Fields of a config.json that decide a model's size and have the same name in all its versions.
OF_ONE_NAME = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "n_embd", "n_layer", "num_hidden_layers", "num_key_value_heads")


@dataclass(frozen=True)
class ArticleModel:
    """A model of an article. `commit` is "" where no pin and no lock has it; `parameters` counts those of the full model."""

    name: str
    shape: str
    parameters: int
    commit: str
    locked: LockedModel | None = None


def of_articles(slug: str = "") -> list[ArticleModel]:
    """The models of one article, or of all articles that name hardware, each model once; raises UsageError for an unknown slug.

    With all articles, an article file with a mistake and a model without a pin are left out with a note, so that the other models can be fetched.
    """
    pins = model_pins.load()
    if slug:
        return [_article_model(model, pins) for model in _described([articles.find(slug)]).values()]
    found = []
    for model in _described(article for article in articles.without_mistakes_told().values() if article.hardware).values():
        try:
            found.append(_article_model(model, pins))
        except KitError as error:
            print(f"note: {model['name']} is left out: {error}", file=sys.stderr)
    return found


def find(name: str) -> ArticleModel:
    """The model with this name, whatever other models lack; raises KitError where the kit cannot recognise its real weights."""
    described = _described(articles.without_mistakes().values())
    if name not in described:
        raise KitError(f"no article uses the model {name!r}; type WEIGHTS=random")
    return _article_model(described[name], model_pins.load())


def _described(chosen: Iterable[articles.Article]) -> dict[str, Mapping[str, Any]]:
    """{name: the model's table}. Where several articles have a model, a table with the number of its parameters is taken."""
    tables = [model for article in chosen for model in (article.model, *article.models.values())]
    return {model["name"]: model for model in sorted(tables, key=lambda model: "parameters" in model)}


def _article_model(model: Mapping[str, Any], pins: Mapping[str, model_pins.ModelPin]) -> ArticleModel:
    name = model["name"]
    if name not in pins:
        raise UsageError(f'docker/pins.toml has no [models."{name}"]: real weights need a pin, as docs/adding.md says; type WEIGHTS=random')
    if "parameters" not in model:
        raise UsageError(f"the article's model {name!r} has no `parameters`, so the kit cannot tell whether real weights are its own; type WEIGHTS=random")
    return ArticleModel(name, model["shape"], model["parameters"], pins[name].commit, pins[name].locked)


def refuse_other_size(model: ArticleModel, files: Iterable[ModelFile], served_by: str) -> None:
    """Raise KitError where the weight files are too small or too large for the model's parameters."""
    size_bytes = sum(file.size_bytes for file in files if is_weights(file.name))
    if not LEAST_BYTES <= size_bytes / model.parameters <= MOST_BYTES:
        allowed = f"{_size(LEAST_BYTES * model.parameters)} to {_size(MOST_BYTES * model.parameters)}"
        have = f"{_size(size_bytes)} of weights, and {model.parameters:,} parameters have {allowed}"
        raise KitError(f"{model.name}: {served_by} has {have}, so it is another model; type MODEL_PATH=/folder of the right one, or WEIGHTS=random")


def _size(size_bytes: float) -> str:
    """In GB, or in bytes where that would be a small fraction of one."""
    return f"{size_bytes / 1e9:.2g} GB" if size_bytes >= 1e7 else f"{size_bytes:,.0f} bytes"


def refuse_lost_weights(model: ArticleModel, folder: Path, listed: Iterable[ModelFile], served_by: str) -> None:
    """Raise KitError where a loader would look for weights beside the listed files."""
    try:
        loaded({file.name for file in listed}, folder)
    except ValueError as error:
        raise KitError(f"{model.name}: {served_by} does not hold its weights: {error}; type MODEL_PATH=/folder of a whole copy, or WEIGHTS=random") from error


def refuse_other_shape(model: ArticleModel, folder: Path, served_by: str) -> None:
    """Raise KitError where the config.json of a folder describes another model."""
    path = folder / "config.json"
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")).items())
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise KitError(f"{model.name}: {served_by} has no config.json that can be read ({error}); type MODEL_PATH=/folder of the model") from error
    expected = weights.config_of(model.shape, "full")
    for field in OF_ONE_NAME:
        if field in config and field in expected and config[field] != expected[field]:
            raise KitError(
                f"{model.name}: {served_by} has {field} {config[field]!r} in its config.json, the model has {expected[field]!r}; "
                "type MODEL_PATH=/folder of the right one, or WEIGHTS=random"
            )
