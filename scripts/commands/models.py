"""models: fetch the articles' models."""

from pathlib import Path

import click

from scripts import articles
from scripts.commands import values
from scripts.commands.measure import MODELS
from scripts.commands.values import option
from scripts.errors import KitError
from scripts.run import checkpoints


@click.command
@option("ARTICLE", values.Text(), "of one article only", "")
@MODELS
def models(article: str, models: Path) -> None:
    """Fetch the articles' models at their revisions (HF_TOKEN for gated ones)."""
    chosen = [articles.find(article)] if article else [found for found in articles.load_all().values() if found.hardware]
    refused = []
    for model in (model for found in chosen for model in (found.model, *found.models.values())):
        try:
            path, commit = checkpoints.hub_checkpoint(model, models)
        except KitError as error:  # a model that cannot be had does not keep the others back
            refused.append(error)
            continue
        print(f"{model['name']} at {commit[:12]}: {path}")
    if refused:
        raise type(refused[0])("\n       ".join(str(error) for error in refused))
