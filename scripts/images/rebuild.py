"""make rebuild-<backend>: build an image twice without a cache and compare the two builds, layer by layer. Exit code 1 where they differ.

The command prints both digests, and for each layer that differs the entries and the fields in which they differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from scripts.containers.container import connect
from scripts.containers.docker_library import docker
from scripts.images import build
from scripts.pins import Image

#: The names of the fields of an entry of a layer, in the order of `entry`.
FIELDS = ("type", "mode", "owner", "group", "date", "size", "link", "content")

#: The values of the FIELDS of one entry.
Entry = tuple[object, ...]

#: The most entries of a layer that are listed.
LISTED = 40

#: Ends the line of a folder that only one of two layers lists, and in which that layer changes nothing.
UNCHANGED = "a folder without a change in it"

#: The most pairs of builds, as long as only UNCHANGED folders differ. Where the machine already holds a layer of the same content,
#: Docker's builder sometimes compares whole trees in place of taking what the build wrote, and then leaves such folders out
#: (EnsureLayer in moby's builder/builder-next/adapters/snapshot/layer.go asks for the parent while another thread registers it).
PAIRS = 3


def compare(client: docker.DockerClient, first: str, second: str) -> list[str]:
    """The differences between two images (their tags), one line each; [] where they are the same to the byte."""
    images = client.images.get(first), client.images.get(second)
    if images[0].id == images[1].id:
        return []
    lines = []
    configurations = [image.attrs["Config"] for image in images]
    for key in sorted(configurations[0].keys() | configurations[1].keys()):
        values = [configuration.get(key) for configuration in configurations]
        if values[0] != values[1]:
            lines.append(f"configuration, {key}: {values[0]} | {values[1]}")
    layers = [image.attrs["RootFS"]["Layers"] for image in images]
    for number, (first_layer, second_layer) in enumerate(zip(*layers, strict=False), 1):
        if first_layer != second_layer:
            lines += [f"layer {number}, {line}" for line in _told(entries(first, first_layer), entries(second, second_layer))]
    if len(layers[0]) != len(layers[1]):
        lines.append("one has more layers than the other")
    return lines or ["all layers are equal, but the history or the date of creation differs"]


def _told(first: dict[str, Entry] | None, second: dict[str, Entry] | None) -> list[str]:
    """What tells two layers of different digests apart, at least one line."""
    if first is None or second is None:
        return ["not compared: `docker save` writes no file with the name of the layer's digest"]
    return layer_differences(first, second) or [f"the bytes differ, but all entries have equal {', '.join(FIELDS)}"]


def entries(tag: str, layer: str) -> dict[str, Entry] | None:
    """{path: its FIELDS} of a layer, read from the image as Docker saves it; None where no file there has the name of the layer's digest."""
    process = subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE)
    try:
        return next(_layers(process.stdout, layer.partition(":")[2]), None)
    finally:
        process.kill()
        process.wait()


def _layers(saved: IO[bytes] | None, digest: str) -> Iterator[dict[str, Entry]]:
    with tarfile.open(fileobj=saved, mode="r|") as outer:
        for member in outer:
            if member.isfile() and member.name.endswith(digest):
                with tarfile.open(fileobj=outer.extractfile(member), mode="r|") as inner:
                    yield {item.name: entry(inner, item) for item in inner}


def entry(tar: tarfile.TarFile, item: tarfile.TarInfo) -> Entry:
    """The FIELDS of an entry of a layer."""
    content = hashlib.sha256()
    if item.isfile():
        stream = tar.extractfile(item)
        assert stream is not None  # it is a file
        while block := stream.read(1 << 20):
            content.update(block)
    return (item.type, oct(item.mode), item.uid, item.gid, item.mtime, item.size, item.linkname, content.hexdigest())


def layer_differences(first: dict[str, Entry], second: dict[str, Entry]) -> list[str]:
    """One line for each entry that differs between two layers, with the fields that differ."""
    lines = []
    for path in sorted(first.keys() | second.keys()):
        if path not in first or path not in second:
            lines.append(f"{path}: only in the {'first' if path in first else 'second'}{_unchanged(path, first if path in first else second)}")
        elif first[path] != second[path]:
            names = [name for name, *values in zip(FIELDS, first[path], second[path], strict=True) if values[0] != values[1]]
            lines.append(f"{path}: {', '.join(names)}")
    if not lines and list(first) != list(second):
        lines = ["the same entries in another order"]
    return lines[:LISTED] + _more(lines[LISTED:])


def _more(lines: list[str]) -> list[str]:
    """One line for those that are not listed, or none."""
    unchanged = f", each {UNCHANGED}" if all(line.endswith(UNCHANGED) for line in lines) else ""
    return [f"and {len(lines)} more{unchanged}"] if lines else []


def _unchanged(path: str, layer: dict[str, Entry]) -> str:
    """The end of a path's line: UNCHANGED where the layer lists a folder and nothing in it, else ""."""
    alone = layer[path][0] == tarfile.DIRTYPE and not any(other.startswith(f"{path}/") for other in layer)
    return f", {UNCHANGED}" if alone else ""


def rebuild(image: Image, wheels: Path | None = None) -> list[str]:
    """Build an image twice and print both digests; returns the differences, one line each. See PAIRS for when it is done once more."""
    client = connect()
    tags = (f"{image.tag}-rebuilt-1", f"{image.tag}-rebuilt-2")
    try:
        lines = _build_pair(client, image, tags, wheels)
        for _ in range(PAIRS - 1):
            if not lines or not all(line.endswith(UNCHANGED) for line in lines):
                break
            print("\n  ".join([f"{image.tag}: the builder may have left these folders out, so the kit builds both images once more", *lines]), flush=True)
            lines = _build_pair(client, image, tags, wheels)
        return lines
    finally:
        for tag in tags:
            with contextlib.suppress(docker.errors.ImageNotFound):  # its build failed
                client.images.remove(tag, force=True)


def _build_pair(client: docker.DockerClient, image: Image, tags: tuple[str, str], wheels: Path | None) -> list[str]:
    for tag in tags:
        build.run_buildx(image, tag, "--no-cache", wheels=wheels)
    for tag in tags:
        print(f"{client.images.get(tag).id}  {tag}")
    return compare(client, *tags)
