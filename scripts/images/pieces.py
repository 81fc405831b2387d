"""A large file as pieces of a limited size, for media with a limit on the size of a file: NAME.000, NAME.001 and so on, or NAME alone.

Pieces are plain cuts: `cat $(ls -v NAME.*) > NAME` makes the file whole again, in the order of the numbers: NAME.101 stands before NAME.1000.
"""

import contextlib
import hashlib
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bench.job import PARTIAL
from scripts.errors import KitError
from scripts.machine import locks

PIECE = re.compile(r"\.[0-9]{3,}\Z")
CHUNK_BYTES = 1 << 20


class Writer:
    """Writes one stream of bytes into files of at most `piece_bytes` each (None: one file), under hidden names until `finish`."""

    def __init__(self, folder: Path, name: str, piece_bytes: int | None) -> None:
        self.folder, self.name, self.piece_bytes = folder, name, piece_bytes or sys.maxsize
        self.partial: list[Path] = []
        self.stream: BinaryIO | None = None
        self.room = 0

    def write(self, data: bytes) -> int:
        """Write all of `data`, and say how many bytes that were."""
        rest = memoryview(data)
        while rest:
            if self.stream is None or self.room == 0:
                self._next()
            assert self.stream is not None
            part = rest[: self.room]
            self.stream.write(part)
            self.room -= len(part)
            rest = rest[len(part) :]
        return len(data)

    def _next(self) -> None:
        self._close()
        self.partial.append(self.folder / f"{PARTIAL}{self.name}.{len(self.partial):03d}")
        self.stream = self.partial[-1].open("wb")
        self.room = self.piece_bytes

    def _close(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def finish(self) -> list[Path]:
        """The files under their own names; the files of an earlier archive of this name are removed."""
        self._close()
        for old in of(self.folder, self.name):
            old.unlink()
        paths = [self.folder / (self.name if len(self.partial) == 1 else f"{self.name}.{number:03d}") for number in range(len(self.partial))]
        for partial, path in zip(self.partial, paths, strict=True):
            partial.replace(path)
        return paths

    def discard(self) -> None:
        """Remove what was not finished."""
        self._close()
        for partial in self.partial:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(folder: Path, name: str, piece_bytes: int | None) -> Iterator[Writer]:
    """A Writer; an error within the block removes its files. What a killed command left of the same name goes first: it may have had more pieces.

    The lock tells a killed command from another one that still writes, which is waited for.
    """
    digits = hashlib.sha256(os.fsencode(folder.resolve() / name)).hexdigest()[:16]
    with locks.held(locks.folder() / f"archive-{digits}.lock", locks.FOR_THIS_USER, why=f"another process writes {folder / name}"):
        for left in folder.glob(f"{PARTIAL}{name}.*"):
            left.unlink()
        writer = Writer(folder, name, piece_bytes)
        try:
            yield writer
        finally:
            writer.discard()


def of(folder: Path, name: str) -> list[Path]:
    """The files of a name in a folder, whole or in pieces, in their order."""
    pieces = [path for path in folder.glob(f"{name}.*") if PIECE.fullmatch(path.name[len(name) :])]
    whole = [folder / name] if (folder / name).exists() else []
    return whole + sorted(pieces, key=lambda path: int(path.suffix[1:]))


def name_of(path: str) -> str:
    """The name of the whole file, of the path of a piece or of the file itself."""
    return PIECE.sub("", path)


def listed(names: Iterable[str], name: str) -> list[str]:
    """Those of `names` that are the file `name`: itself, or its pieces in their order. KitError where these are no whole file."""
    files = sorted((file for file in names if name_of(file) == name), key=lambda file: (len(file), file))
    if files not in ([name], [f"{name}.{number:03d}" for number in range(len(files))]):
        raise KitError(f"{', '.join(files)} are not the pieces of one file, whose names are {name}.000, {name}.001 and so on")
    return files


def joined(paths: Sequence[Path]) -> Iterator[bytes]:
    """The bytes of the whole file, a chunk at a time."""
    for path in paths:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk


class _Joined(io.RawIOBase):
    """The whole file as a stream without seeking."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.chunks, self.rest = joined(paths), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            try:
                self.rest = next(self.chunks)
            except StopIteration:
                return 0
        part = self.rest[: len(buffer)]
        buffer[: len(part)], self.rest = part, self.rest[len(part) :]
        return len(part)


def opened(paths: Sequence[Path]) -> BinaryIO:
    """The whole file, open for reading from its beginning to its end."""
    return io.BufferedReader(_Joined(paths), CHUNK_BYTES)
