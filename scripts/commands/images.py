"""build, verify, rebuild, sbom, images, archive, restore, push, pull: the images and their content."""

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from scripts import articles, pins
from scripts.commands import values
from scripts.commands.values import Verb, option
from scripts.containers import docker_errors
from scripts.containers.container import connect
from scripts.errors import KitError, UsageError
from scripts.images import archive as keeping
from scripts.images import build as building
from scripts.images import inventory, restoring
from scripts.images import rebuild as rebuilding
from scripts.images import registry as through_registry
from scripts.images import verify as checking
from scripts.machine import permissions, signals
from scripts.names import shortened
from scripts.paths import ROOT
from scripts.pins import Image
from scripts.units import counted

STACK = option("STACK", values.text(), "the versions: a stack of docker/pins.toml, or the article's own", "article")
ARTICLE = option("ARTICLE", values.text(), "the article of STACK=article", "")
WHEELS = option("WHEELS", values.folder(), "build from the files of this folder, without a package index")
ARCHIVES = option("ARCHIVES", values.folder(), "the folder of archives", ROOT / "archives")


def chosen(backend: str, stack: str, article: str) -> list[Image]:
    """The images of a backend on a stack; of all backends and stacks where neither is named."""
    typed = stack
    if stack == "article" and (backend != "all" or article):
        stack = articles.find(article or "inference-tools").stack
    return building.images_of(pins.load(), backend, stack, typed)


@contextlib.contextmanager
def _with_docker(verb: str) -> Iterator[None]:
    """Within the block signals are raised, so that half-made images and files are removed, and a failing Docker is one line."""
    with signals.raised(), docker_errors.answering(f"make {verb}", lost=""):
        yield


def _of_images(command: Callable[..., int | None], backend: Callable[[Verb], Verb] = click.argument("backend")) -> Verb:
    """Add the backend, by default an argument, and the options that choose images to a verb."""

    def with_images(backend: str | tuple[str, ...], stack: str, article: str, **more: object) -> int | None:
        names = (backend,) if isinstance(backend, str) else backend
        images = {image.tag: image for name in names for image in chosen(name, stack, article)}
        with _with_docker(command.__name__):
            return command(list(images.values()), **more)

    with_images.__doc__ = command.__doc__
    return backend(STACK(ARTICLE(with_images)))


_of_named_images = functools.partial(_of_images, backend=option("BACKEND", values.names(), "the images of these backends", ("all",)))


@click.command
@click.argument("backend")
@STACK
@ARTICLE
@WHEELS
def build(backend: str, stack: str, article: str, wheels: Path | None) -> None:
    """Build the image of a backend, or all images; building all also keeps a record of them."""
    with _with_docker("build"):
        for image in chosen(backend, stack, article):
            began = time.monotonic()
            new = building.build(image, wheels)
            print(f"{image.tag}: {'built, and holds what its lock says' if new else 'is already built'}", flush=True)
            if backend == "all" and (new or not inventory.is_recorded(image)):
                inventory.record(connect(), image, time.monotonic() - began if new else None)


@click.command
@_of_images
def verify(images: list[Image]) -> None:
    """Compare the whole content of an image with its pins and lock; one line per difference."""
    wrong = sum(_differs(image, checking.verify(image), "holds what its pins and its lock say") for image in images)
    if wrong:
        raise KitError(f"{wrong} of the images differ from docker/pins.toml: `docker rmi` them and build again, or correct the pins")


@click.command
@WHEELS
@_of_images
def rebuild(images: list[Image], wheels: Path | None) -> None:
    """Build an image twice without a cache and compare the two builds, layer by layer."""
    unlike = [image for image in images if _differs(image, rebuilding.rebuild(image, wheels), "the same to the byte in two builds without a cache")]
    if unlike:
        command = f"make verify-{unlike[0].backend} STACK={unlike[0].stack}"
        raise KitError(f"two builds of the same files differ, as listed above; type {command} to compare one with its pins")


def _differs(image: Image, lines: list[str], if_none: str) -> bool:
    """Are there differences? They are printed."""
    print("\n  ".join([f"{image.tag}: {counted(len(lines), 'difference') if lines else if_none}", *lines]), flush=True)
    return bool(lines)


@click.command
@_of_images
def sbom(images: list[Image]) -> None:
    """Write the bill of materials of an image (CycloneDX) to reports/sbom."""
    from scripts.images import sbom as bill  # of the group `site`, which the other verbs do without

    for image in images:
        print(f"{bill.write(image).relative_to(ROOT)}: written", flush=True)


@click.command
def images() -> None:
    """List the images: built, stale or missing, their size, shared layers, age."""
    with _with_docker("images"):
        inventory.show()


@click.command
@option("ONLY", values.names(*keeping.PARTS), "keep only these parts", ())
@option("PIECES", values.size(), "cut archives of images into files of at most this size")
@option("PYTHONS", values.pythons(), "the versions of Python to keep the tools for; by default the one that runs the kit", ())
@ARCHIVES
@_of_named_images
def archive(images: list[Image], only: tuple[str, ...], pieces: int | None, pythons: tuple[str, ...], archives: Path) -> None:
    """Archive the built images, the files of their locks, the tools and the kit in a folder."""
    if there := permissions.in_the_way(archives):
        raise UsageError(f"ARCHIVES is {str(archives)!r}, and {there}, allowed is a folder; try ARCHIVES=/another/folder")
    keeping.archive(archives, images, only or keeping.PARTS, pieces, pythons)


@click.command
@ARCHIVES
@option("ENGINE", values.choice(*restoring.ENGINES), "the engine that gets the images; for Apptainer and pyxis they become files", "docker")
def restore(archives: Path, engine: str) -> None:
    """Restore the images of an archive folder without a network, and compare each with its pins and lock."""
    with _with_docker("restore"):
        restoring.restore(archives, engine)


REGISTRY = option("REGISTRY", values.text(), "a registry and a name in it, for example localhost:5000/kit", "")


#: A name as registries take it: https://github.com/distribution/reference, reference.go. A name has at most 255 characters, with that of the image.
NAME_IN_REGISTRY = r"[A-Za-z0-9]+((\.|-+)[A-Za-z0-9]+)*(:\d{1,5})?(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*"
LONGEST_IN_REGISTRY = 200


def checked_registry(typed: str) -> str:
    """A typed registry as it is; raises UsageError where it is no host with a name."""
    if not re.fullmatch(NAME_IN_REGISTRY, typed) or len(typed) > LONGEST_IN_REGISTRY:
        raise UsageError(f"REGISTRY is {shortened(typed)!r}, allowed is host/name of at most {LONGEST_IN_REGISTRY} characters; try REGISTRY=localhost:5000/kit")
    return typed


@click.command
@REGISTRY
@_of_named_images
def push(images: list[Image], registry: str) -> None:
    """Push built images to a registry and write their digests into docker/digests.json."""
    through_registry.push(images, checked_registry(registry))


@click.command
@REGISTRY
@_of_named_images
def pull(images: list[Image], registry: str) -> None:
    """Pull images by their digests, and compare them with pins and lock."""
    through_registry.pull(images, checked_registry(registry))
