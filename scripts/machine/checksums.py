"""SHA256SUMS: a line a file, its sha256 and its place, as `sha256sum --check` reads it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

NAME = "SHA256SUMS"


def digest_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def text(digests: Mapping[str, str]) -> str:
    """The file's text from {place: sha256}."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def parse(listed: str) -> dict[str, str]:
    """{place: sha256}; ValueError for a line that is no such line."""
    return {name: digest for digest, name in (line.split("  ", 1) for line in listed.splitlines())}


def compare(folder: Path, digests: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(those that are missing, those with another content) of the files that are listed, sorted."""
    names = sorted(digests)
    missing = [name for name in names if not (folder / name).is_file()]
    return missing, [name for name in names if name not in missing and digest_of(folder / name) != digests[name]]
