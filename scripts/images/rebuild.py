"""make rebuild-<backend>: build an image twice from nothing and compare the two, layer by layer. Exit code 1 where they differ.

Nothing of an earlier build is used. Both digests are printed; of a layer that differs, every entry that does, and in what.
"""

import hashlib
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import docker

from scripts.containers.container import connect
from scripts.images import build
from scripts.pins import Image

#: What is told of an entry of a layer, in the order in which `entry` gives it.
FIELDS = ("type", "mode", "owner", "group", "date", "size", "link", "content")

#: The FIELDS of one entry of a layer.
Entry = tuple[object, ...]

#: Entries of a layer that are listed at most.
LISTED = 40


def build_twice(image: Image, wheels: Path | None) -> tuple[str, str]:
    """Tags of two images of the same files, each built from nothing."""
    tags = (f"{image.tag}-rebuilt-1", f"{image.tag}-rebuilt-2")
    for tag in tags:
        build.run_buildx(image, tag, "--no-cache", wheels=wheels)
    return tags


def compare(client: docker.DockerClient, first: str, second: str) -> list[str]:
    """What differs between two images, one line each; nothing where they are the same to the byte."""
    one, other = client.images.get(first), client.images.get(second)
    if one.id == other.id:
        return []
    lines = []
    for key in sorted(one.attrs["Config"].keys() | other.attrs["Config"].keys()):
        mine, theirs = one.attrs["Config"].get(key), other.attrs["Config"].get(key)
        if mine != theirs:
            lines.append(f"configuration, {key}: {mine} | {theirs}")
    pairs = list(zip(one.attrs["RootFS"]["Layers"], other.attrs["RootFS"]["Layers"], strict=False))
    for number, (mine, theirs) in enumerate(pairs, 1):
        if mine != theirs:
            lines += [f"layer {number}, {line}" for line in layer_differences(entries(first, mine), entries(second, theirs))]
    if len(one.attrs["RootFS"]["Layers"]) != len(other.attrs["RootFS"]["Layers"]):
        lines.append("one has more layers than the other")
    return lines or ["only the description differs, no layer: the history or the date of creation"]


def entries(tag: str, layer: str) -> dict[str, Entry]:
    """{path: its FIELDS} of a layer, read from the image as Docker saves it."""
    process = subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE)
    try:
        return next(_layers(process.stdout, layer.partition(":")[2]), {})
    finally:
        process.kill()
        process.wait()


def _layers(saved: IO[bytes] | None, digest: str) -> Iterator[dict[str, Entry]]:
    with tarfile.open(fileobj=saved, mode="r|") as outer:
        for member in outer:
            if member.isfile() and member.name.endswith(digest):
                with tarfile.open(fileobj=outer.extractfile(member), mode="r|") as inner:
                    yield {one.name: entry(inner, one) for one in inner}


def entry(tar: tarfile.TarFile, one: tarfile.TarInfo) -> Entry:
    """The FIELDS of an entry of a layer."""
    content = hashlib.sha256()
    if one.isfile():
        stream = tar.extractfile(one)
        assert stream is not None  # it is a file
        while block := stream.read(1 << 20):
            content.update(block)
    return (one.type, oct(one.mode), one.uid, one.gid, one.mtime, one.size, one.linkname, content.hexdigest())


def layer_differences(one: dict[str, Entry], other: dict[str, Entry]) -> list[str]:
    """One line for each entry that differs between two layers, with the fields in which it does."""
    lines = []
    for path in sorted(one.keys() | other.keys()):
        if path not in one or path not in other:
            lines.append(f"{path}: only in the {'first' if path in one else 'second'}")
        elif one[path] != other[path]:
            names = [name for name, mine, theirs in zip(FIELDS, one[path], other[path], strict=True) if mine != theirs]
            lines.append(f"{path}: {', '.join(names)}")
    if not lines and list(one) != list(other):
        lines = ["the same entries in another order"]
    left = len(lines) - LISTED
    return lines[:LISTED] + ([f"and {left} more"] if left > 0 else [])


def rebuild(image: Image, wheels: Path | None = None) -> list[str]:
    """Build an image twice and print both digests; the differences."""
    client = connect()
    tags = build_twice(image, wheels)
    try:
        for tag in tags:
            print(f"{client.images.get(tag).id}  {tag}")
        return compare(client, *tags)
    finally:
        for tag in tags:
            client.images.remove(tag, force=True)
