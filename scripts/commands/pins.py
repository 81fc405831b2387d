"""lock, render: from docker/pins.toml to locks, Dockerfiles and tables."""

import click

from scripts.commands import values
from scripts.commands.values import option
from scripts.images import render as rendering
from scripts.pins import resolve


@click.command
@option("BACKEND", values.text(), "only the locks of this backend")
def lock(backend: str | None) -> None:
    """Resolve docker/pins.toml into hashed requirements; needs the network."""
    resolve.lock(backend)


@click.command
@click.option("--check", is_flag=True, help="write nothing; fail where a file differs")
def render(check: bool) -> None:
    """Write Dockerfiles, compose.yaml and the tables of pins from docker/pins.toml and the locks."""
    rendering.check() if check else rendering.write()
