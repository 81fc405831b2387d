"""models, verify-models, lock-models: fetch, check and lock the articles' models."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from scripts.commands import values
from scripts.commands.measure import MODELS
from scripts.commands.values import option
from scripts.errors import KitError
from scripts.models import locking, store, wanted
from scripts.models.wanted import ArticleModel

ARTICLE = option("ARTICLE", values.Text(), "of one article only", "")


@click.command
@ARTICLE
@MODELS
def models(article: str, models: Path) -> None:
    """Fetch the articles' models at their commits (HF_TOKEN for gated ones)."""

    def fetch(model: ArticleModel) -> None:
        held = store.provide(model, models)
        print(f"{model.name} at {held.commit[:12]}: {held.folder}")

    _refuse(_each(wanted.of_articles(article), fetch))


@click.command
@ARTICLE
@MODELS
def verify_models(article: str, models: Path) -> None:
    """Check every file of the models that are here; a wrong file is set aside and fetched anew."""

    def verify(model: ArticleModel) -> None:
        held = store.verify(model, models)
        print(f"{model.name} at {held.commit[:12]}: every file is right" if held else f"{model.name} is not here; make models fetches it")

    _refuse(_each(wanted.of_articles(article), verify))


@click.command
def lock_models() -> None:
    """Ask the hub for the files of each model's commit and write them into docker/models.json; needs the network."""
    _refuse(locking.lock_all(wanted.of_articles(), print))


def _each(chosen: Sequence[ArticleModel], act: Callable[[ArticleModel], None]) -> list[KitError]:
    """Do it for every model; a model that cannot be had does not keep the others back."""
    refused = []
    for model in chosen:
        try:
            act(model)
        except KitError as error:
            refused.append(error)
    return refused


def _refuse(refused: Sequence[KitError]) -> None:
    if refused:
        raise type(refused[0])("\n       ".join(str(error) for error in refused))
