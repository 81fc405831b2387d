"""make push, make pull: images through a registry, by digest, so that a second machine builds nothing.

docker/digests.json holds {tag: digest} of what was pushed; `make pull` takes these digests and no tag, and compares the
pulled images with pins and lock. An image has the same id whether it was built, pulled or restored, so its runs belong to the same rows.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from bench.job import write_whole
from bench.reasons import first_line
from scripts.containers import docker_errors
from scripts.containers.container import connect
from scripts.containers.docker_library import docker
from scripts.errors import KitError
from scripts.images import build, verify
from scripts.paths import ROOT
from scripts.pins import Image
from scripts.units import counted

DIGESTS = ROOT / "docker" / "digests.json"

#: An engine would pull anything else as a tag, and the image behind a tag changes.
DIGEST = re.compile("sha256:[0-9a-f]{64}")


def known(path: Path = DIGESTS) -> dict[str, str]:
    """{tag: digest} of the images that were pushed; {} where none was. KitError for a damaged file, as a merge may leave it."""
    if not path.exists():
        return {}
    try:
        digests: dict[str, str] = dict(json.loads(path.read_text(encoding="utf-8")).items())
        if wrong := [tag for tag, digest in digests.items() if not DIGEST.fullmatch(digest)]:
            raise ValueError(f"{digests[wrong[0]][:80]!r} of {wrong[0][:80]!r} is no digest")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise KitError(f"{path} is damaged ({error}); type git checkout {path}, and make push where the images are built") from error
    return digests


def reference(image: Image, registry: str, path: Path = DIGESTS) -> str:
    """An image in `registry` (host/name) as an engine pulls it: by its digest where docker/digests.json has it, else by its tag alone."""
    digest = known(path).get(image.tag)
    return f"{registry}/{image.tag}" + (f"@{digest}" if digest else "")


def push(images: Sequence[Image], registry: str, path: Path = DIGESTS) -> None:
    """Push built images to `registry` (host/name) and note their digests; KitError names those that are not built."""
    client = connect()
    missing = []
    for image in images:
        if not build.exists(client, image.tag):
            missing.append(image.name)
            continue
        digest = _pushed(client, image, registry)
        write_whole(path, json.dumps(dict(sorted({**known(path), image.tag: digest}.items())), indent=1) + "\n")
        print(f"{registry}/{image.tag}@{digest}", flush=True)
    if missing:
        raise KitError(f"not pushed, because not built: {', '.join(missing)}; type make build-all, or STACK= or BACKEND= for fewer")


def _pushed(client: docker.DockerClient, image: Image, registry: str) -> str:
    """The digest under which the registry keeps an image."""
    repository, _, tag = f"{registry}/{image.tag}".rpartition(":")
    client.images.get(image.tag).tag(repository, tag)
    try:
        digest = ""
        for line in client.api.push(repository, tag, stream=True, decode=True):
            if "error" in line:
                raise KitError(f"{registry} refused {image.tag}: {line['error'].strip()}; type docker login {registry.partition('/')[0]}")
            digest = line.get("aux", {}).get("Digest", digest)
    except (docker.errors.DockerException, *docker_errors.silence()) as error:
        raise KitError(f"{registry} refused {image.tag}: {first_line(error)}; look at the registry and type make push again") from error
    finally:
        client.images.remove(f"{repository}:{tag}", noprune=True)
    if not digest:
        raise KitError(f"{registry} returned no digest for {image.tag}; type make push again")
    return digest


def pull(images: Sequence[Image], registry: str, path: Path = DIGESTS) -> None:
    """Pull images by the digests of docker/digests.json. One that differs from pins and lock is removed again, and a KitError names it."""
    client, digests = connect(), known(path)
    missing = [image for image in images if image.tag not in digests]
    wrong: list[tuple[Image, list[str]]] = []
    for image in images:
        if image.tag in digests and not build.exists(client, image.tag):
            lines = _pulled(client, image, registry, digests[image.tag])
            wrong += [(image, lines)] if lines else []
            print(f"{image.tag}: {counted(len(lines), 'difference') + ', removed' if lines else 'pulled, and holds what its lock says'}", flush=True)
    if wrong:
        raise KitError(
            f"{registry} gave images that differ from docker/pins.toml or do not say what they hold, and they were removed:\n  "
            + "\n  ".join(f"{image.tag}: {line}" for image, lines in wrong for line in lines)
            + f"\nType make push where right images are, or here make build-{wrong[0][0].backend} STACK={wrong[0][0].stack}."
        )
    if missing:
        listed = ", ".join(image.name for image in missing)
        raise KitError(f"{path.name} has no digest of {listed}; type make push REGISTRY={registry} where they are built, or make build-{missing[0].backend}")


def _pulled(client: docker.DockerClient, image: Image, registry: str, digest: str) -> list[str]:
    """Pull one image, and give it the kit's tag if it is right. Returns its differences, a line each; an image that differs is removed again."""
    repository = f"{registry}/{image.tag.rpartition(':')[0]}"
    name = f"{repository}@{digest}"
    try:
        docker_errors.follow(client.api.pull(repository, digest, stream=True, decode=True))
        pulled = client.images.get(name)
    except (docker.errors.DockerException, *docker_errors.silence()) as error:
        raise KitError(
            f"{name} cannot be pulled: {first_line(error)}; look at the registry and type make pull again, or make build-{image.backend} STACK={image.stack}"
        ) from error
    with contextlib.ExitStack() as unless_right:
        unless_right.callback(client.images.remove, name, force=True)
        lines = verify.check_foreign(client, image, name)
        if not lines:
            pulled.tag(*image.tag.rsplit(":", 1))
            unless_right.pop_all()
    return lines
