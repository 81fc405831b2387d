"""models, verify-models, lock-models: fetch, check and lock the articles' models."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from scripts.commands import values
from scripts.commands.measure import MODELS
from scripts.commands.values import option
from scripts.errors import KitError
from scripts.models import article_models, locking, store
from scripts.models.article_models import ArticleModel
from scripts.run import conversion
from scripts.run.options import Options
from scripts.run.progress import JobDisplay

ARTICLE = option("ARTICLE", values.Text(), "of one article only", "")


@click.command
@ARTICLE
@MODELS
def models(article: str, models: Path) -> None:
    """Fetch the articles' models at their commits (HF_TOKEN for gated ones), and make safetensors of pickles."""

    def fetch(model: ArticleModel) -> None:
        held = store.provide(model, models)
        if held.in_pickles:
            with JobDisplay(f"{model.name}: conversion of its pickles") as display:
                held = conversion.loadable(model, held, Options(models=models), display.line)
        print(f"{model.name} at {held.commit[:12]}: {held.folder}")

    _raise_all(_for_each(article_models.of_articles(article), fetch))


@click.command
@ARTICLE
@MODELS
def verify_models(article: str, models: Path) -> None:
    """Check every file of the models on this machine; a wrong file is set aside and fetched again."""

    def verify(model: ArticleModel) -> None:
        held = store.verify(model, models)
        print(f"{model.name} at {held.commit[:12]}: every file is right" if held else f"{model.name} is not on this machine; make models fetches it")

    _raise_all(_for_each(article_models.of_articles(article), verify))


@click.command
def lock_models() -> None:
    """Ask the hub for the files of each model's commit and write them into docker/models.json; needs the network."""
    _raise_all(_for_each(article_models.of_articles(), lambda model: print(locking.lock(model))))


def _for_each(models: Sequence[ArticleModel], action: Callable[[ArticleModel], None]) -> list[KitError]:
    """Run an action for every model and return its errors: an error of one model does not stop the others."""
    errors = []
    for model in models:
        try:
            action(model)
        except KitError as error:
            errors.append(error)
    return errors


def _raise_all(errors: Sequence[KitError]) -> None:
    """Raise the errors as one, of the first one's type."""
    if errors:
        raise type(errors[0])("\n       ".join(str(error) for error in errors))
