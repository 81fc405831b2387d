"""make images: list which images are built, their size, the layers that they share, and whether they are stale. Also the record of a full build."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from bench.job import write_whole
from scripts import paths, pins
from scripts.containers.container import connect
from scripts.containers.docker_library import docker
from scripts.errors import KitError
from scripts.pins import Image, Pins
from scripts.units import GB, counted

RECORD = "reports/images.json"

#: In the tag of an image that has not been compared with its lock yet.
UNCHECKED = "-unchecked-"

#: Steps of an image's history that make no layer.
NO_LAYER = re.compile(r"^(/bin/sh -c #\(nop\) +)?(ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL|USER|VOLUME)\b")


class Record(TypedDict):
    """What a full build tells of an image; `layers` is {digest: bytes on disk}."""

    pins_id: str
    built: str
    seconds: int | None
    id: str
    base: str
    stand_in: bool
    layers: dict[str, int]


def is_stand_in(image: docker.models.images.Image) -> bool:
    """Is an image, or its base, a stand-in for the pinned image? A build inherits the labels of its base."""
    return image.labels.get("stand-in") == "true"


def layers(client: docker.DockerClient, tag: str) -> dict[str, int]:
    """{digest of a layer: bytes on disk} of an image, lowest first."""
    image = client.images.get(tag)
    digests = image.attrs["RootFS"]["Layers"]
    sizes = [step["Size"] for step in reversed(image.history()) if not NO_LAYER.match(step.get("CreatedBy") or "")]
    if len(sizes) != len(digests):
        raise KitError(f"{tag} has {len(digests)} layers and a history of {len(sizes)}: its size by layer is unknown")
    sized: dict[str, int] = {}
    for digest, size in zip(digests, sizes, strict=True):
        sized[digest] = sized.get(digest, 0) + size
    return sized


def unique_bytes(each: dict[str, dict[str, int]]) -> tuple[dict[str, int], int]:
    """({image: bytes that only this image holds}, bytes of all images together) of {image: layers}; a shared layer counts once."""
    holders: dict[str, list[str]] = {}
    for name, sized in each.items():
        for digest in sized:
            holders.setdefault(digest, []).append(name)
    own = {name: sum(size for digest, size in sized.items() if holders[digest] == [name]) for name, sized in each.items()}
    return own, sum({digest: size for sized in each.values() for digest, size in sized.items()}.values())


def key(image: Image) -> str:
    return f"{image.backend}/{image.stack}"


def is_recorded(image: Image) -> bool:
    return recorded().get(key(image), {}).get("pins_id") == image.pins_id


def record(client: docker.DockerClient, image: Image, seconds: float | None, root: Path = paths.ROOT) -> None:
    """Put a build into the record of all images. `seconds` is None where the build was not timed.

    The record of the very same image stays: its second build came from the builder's cache.
    """
    known, built_image = recorded(root), client.images.get(image.tag)
    if known.get(key(image), {}).get("id") == built_image.id:
        return
    known[key(image)] = {
        "pins_id": image.pins_id,
        "built": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "seconds": None if seconds is None else round(seconds),
        "id": built_image.id,
        "base": image.base,
        "stand_in": is_stand_in(built_image),
        "layers": layers(client, image.tag),
    }
    write_whole(root / RECORD, json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def recorded(root: Path = paths.ROOT) -> dict[str, dict[str, Any]]:
    """{backend/stack: record} of the images that `make build-all` has built. KitError for a damaged file, as a merge may leave it."""
    path, shape = root / RECORD, dict[str, Record]
    try:
        known: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=shape) if path.exists() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KitError(f"{RECORD} is damaged ({error}); type git checkout {RECORD}") from error
    return known


def record_lines(loaded: Pins) -> list[str]:
    """The record as a Markdown table, in the order of pins.toml, with shared sizes and the total."""
    known = recorded(loaded.root)
    images = [image for image in loaded.images() if key(image) in known]
    if not images:
        return []
    each = {key(image): known[key(image)]["layers"] for image in images}
    own, total = unique_bytes(each)
    lines = ["| image | built | pins id | seconds | GB | of that its own | base |", "|---|---|---|---|---|---|---|"]
    for image in images:
        entry = known[key(image)]
        stale = "" if entry["pins_id"] == image.pins_id else " (stale)"
        base = entry["base"] + (" (stand-in)" if entry["stand_in"] else "")
        size = sum(entry["layers"].values())
        lines.append(
            f"| {image.name} | {entry['built']} | {entry['pins_id']}{stale} | {'—' if entry['seconds'] is None else entry['seconds']} "
            f"| {size / GB:.2f} | {own[key(image)] / GB:.2f} | {base} |"
        )
    missing = [image.name for image in loaded.images() if image not in images]
    largest: dict[str, int] = {}
    for image in images:
        largest[image.stack] = max(largest.get(image.stack, 0), *each[key(image)].values())
    floor = sum(largest.values())
    summary = f"All {len(images)} together: {total / GB:.1f} GB, of which {floor / GB:.1f} GB are torch with its CUDA libraries, once for each stack."
    return [*lines, "", summary + (f" Not in this record: {', '.join(missing)}." if missing else "")]


@dataclasses.dataclass(frozen=True)
class Listed:
    """An image of the kit. Its state is built, stale, or not built: Docker then has no `image`."""

    tag: str
    state: str
    image: docker.models.images.Image | None


def listed(client: docker.DockerClient, loaded: Pins) -> list[Listed]:
    """The kit's images that this Docker holds, and the images of pins.toml that it lacks."""
    tags = {tag: image for image in client.images.list("llm-repro/*") for tag in image.tags if UNCHECKED not in tag}
    pinned = [image.tag for image in loaded.images()]
    held = [Listed(tag, "built" if tag in pinned else "stale", image) for tag, image in sorted(tags.items())]
    return held + [Listed(tag, "not built", None) for tag in pinned if tag not in tags]


def age(moment: str, now: datetime.datetime) -> str:
    """The time since a `moment` in Docker's format, in the largest whole unit; Docker gives the year 1 for an image that was loaded and never tagged."""
    if moment.startswith("0001-"):
        return "unknown"
    seconds = (now - datetime.datetime.fromisoformat(moment[:19] + "+00:00")).total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return counted(int(seconds // length), unit)
    return "now"


def show() -> None:
    """Print the kit's images; raises KitError where an image is removed meanwhile."""
    client = connect()
    try:
        rows = listed(client, pins.load())
        each = {row.tag: layers(client, row.tag) for row in rows if row.image}
    except docker.errors.ImageNotFound as error:
        raise KitError(f"an image was removed meanwhile ({error.explanation}); try make images again") from error
    own, total = unique_bytes(each)
    now = datetime.datetime.now(datetime.UTC)
    print(f"{'image':<50} {'state':<10} {'GB':>6} {'its own':>8}  age")
    for row in rows:
        numbers = f"{sum(each[row.tag].values()) / GB:>6.2f} {own[row.tag] / GB:>8.2f}" if row.image else f"{'':>6} {'':>8}"
        # All images have the same fixed date of creation. An image gets its tag when it is built.
        when = age(row.image.attrs["Metadata"]["LastTagTime"], now) if row.image else ""
        print(f"{row.tag:<50} {row.state:<10} {numbers}  {when}".rstrip())
    print(f"\n{len(each)} images, {total / GB:.1f} GB together; shared layers are counted once")
    if any(row.state == "stale" for row in rows):
        print("stale: docker/pins.toml now gives this backend another image; `docker rmi` removes the stale one")
