"""models, verify-models, lock-models: fetch, check and lock the articles' models."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from scripts.commands import values
from scripts.commands.values import MODELS, option
from scripts.errors import KitError, UsageError
from scripts.models import article_models, locking, store
from scripts.models.article_models import ArticleModel
from scripts.run import conversion
from scripts.run.options import Options
from scripts.run.progress import JobDisplay

ARTICLE = option("ARTICLE", values.text(), "of one article only", "")


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

    _for_each(_of_articles(article), fetch)


@click.command
@ARTICLE
@MODELS
def verify_models(article: str, models: Path) -> None:
    """Check every file of the models on this machine; a wrong file is set aside and fetched again."""

    verified: list[str] = []

    def verify(model: ArticleModel) -> None:
        held = store.verify(model, models)
        verified.extend([model.name] if held else [])
        print(f"{model.name} at {held.commit[:12]}: every file is right" if held else f"{model.name} is not on this machine; make models fetches it")

    _for_each(_of_articles(article), verify)
    if not verified:
        raise UsageError(f"MODELS is {str(models)!r}, which holds no model to check; type make models, or MODELS=/another/folder")


@click.command
def lock_models() -> None:
    """Ask the hub for the files of each model's commit and write them into docker/models.json; needs the network."""
    _for_each(article_models.of_articles(), lambda model: print(locking.lock(model)))


def _of_articles(slug: str) -> Sequence[ArticleModel]:
    """The models of an article, or of all."""
    try:
        return article_models.of_articles(slug)
    except KitError as error:
        raise type(error)(advice_here(str(error))) from error


def _for_each(models: Sequence[ArticleModel], action: Callable[[ArticleModel], None]) -> None:
    """Run an action for every model; then raise the errors of all as one, of the first one's type."""
    errors = []
    for model in models:
        try:
            action(model)
        except KitError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])("\n       ".join(dict.fromkeys(advice_here(str(error)) for error in errors)))


def advice_here(message: str) -> str:
    """An error about a model, for verbs that read neither WEIGHTS nor MODEL_PATH: advice that only a measurement can follow says so."""
    facts, _, advice = message.rpartition("; type ")
    if advice.startswith(("MODEL_PATH=", "WEIGHTS=")):
        return f"{facts}; make bench-… takes {advice}"
    return message.removesuffix(", or WEIGHTS=random")
