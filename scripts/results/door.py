"""The door for files that a guest wrote. A guest is untrusted: it may leave links, pipes, endless files and nonsense in its folder.

Every such file is opened here and nowhere else: without following a link, without waiting for a pipe, and only where it is a
regular file with one name and of limited size. JSON is limited in nesting, in the length of a string and in the size of a number
while it is parsed.
"""

import contextlib
import errno
import functools
import json
import os
import stat
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Annotated, Any, NewType

import msgspec

from bench.job import InvalidDocument, whole_file
from scripts import json_objects
from scripts.units import MIB

#: Largest size in bytes of each file that a guest leaves, by its name.
LIMITS_BYTES = {
    "result.json": 64 * MIB,
    "tokens.json": 256 * MIB,
    "logits.npz": 256 * MIB,
    "reference.npz": 1024 * MIB,
    "outputs.jsonl": 1024 * MIB,
    "trace.json.gz": 1024 * MIB,
    "profile.nsys-rep": 4096 * MIB,
}

#: The limit of a reading of the output check, whose file is named by a key; a reading grows with every row that is judged.
READINGS_BYTES = 4096 * MIB

#: No report shows a longer text, and no byte count or time in ms is larger: such numbers overflow in sums of squares.
LONGEST_TEXT, LARGEST_NUMBER = 64 * 1024, 10**18

#: The most lists and objects within each other; the deepest committed result has six.
DEEPEST = 12


class Refused(InvalidDocument):
    """A guest's file that the door does not let in; the message says why in one line."""


_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
_Whole = Annotated[int, msgspec.Meta(gt=-LARGEST_NUMBER, lt=LARGEST_NUMBER)]
_Real = Annotated[float, msgspec.Meta(gt=-LARGEST_NUMBER, lt=LARGEST_NUMBER)]


def _nested(levels: int, key: Any) -> Any:
    """The type of JSON data with at most so many lists and objects within each other, and with keys of this type.

    Each level has a name. Without names Python compares the types level by level, which took half a second at each start of a command.
    """
    named: Any = NewType  # mypy knows no type that is made in a loop
    plain: Any = None | bool | _Text | _Whole | _Real
    for _ in range(levels):
        plain = named("plain", None | bool | _Text | _Whole | _Real | list[plain] | dict[key, plain])
    return plain


@functools.cache  # it takes 40 ms or more, and most commands need one at most
def _decoder(key: Any) -> msgspec.json.Decoder[Any]:
    """Where keys are plain `str`, msgspec shares most of them among all files, which saves a sixth of the memory of thousands of results. It makes keys with
    a limit anew each time."""
    return msgspec.json.Decoder(_nested(DEEPEST, key))


def _opened(path: Path, most_bytes: int) -> int:
    """The descriptor of a guest's file, open for reading. Raises Refused, and FileNotFoundError where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
        raise Refused(f"{path.name} {why}; a regular file is allowed") from error
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise Refused(f"{path.name} is {_kind(state.st_mode)}; a regular file is allowed")
        if state.st_nlink != 1:
            raise Refused(f"{path.name} has {state.st_nlink} names (hard links); one is allowed")
        _refuse_size(path, state.st_size, most_bytes)
    except Refused:
        os.close(descriptor)
        raise
    return descriptor


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "no regular file")


def _refuse_size(path: Path, size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise Refused(f"{path.name} has {size_bytes:,} bytes; {most_bytes:,} are allowed")


def _limit_bytes(path: Path, most_bytes: int | None) -> int:
    """The largest size of a file: what its reader says, else the limit of its name."""
    return LIMITS_BYTES[path.name] if most_bytes is None else most_bytes


def read(path: Path, most_bytes: int | None = None) -> bytes:
    """The bytes of a guest's file, by default at most the limit of its name. Raises Refused, FileNotFoundError or OSError."""
    limit_bytes = _limit_bytes(path, most_bytes)
    with os.fdopen(_opened(path, limit_bytes), "rb", buffering=0) as stream:
        return b"".join(_chunks(stream, path, limit_bytes))


def _chunks(stream: RawIOBase, path: Path, limit_bytes: int) -> Iterator[bytes]:
    """A file's content; raises Refused beyond the limit, because the file may grow while it is read."""
    size_bytes = 0
    while chunk := stream.read(MIB):
        size_bytes += len(chunk)
        _refuse_size(path, size_bytes, limit_bytes)
        yield chunk


def parse(data: bytes, name: str = "result.json") -> Any:
    """The JSON data of a guest's file, within the limits of nesting, text and numbers. Raises Refused."""
    try:
        if len(data) > LONGEST_TEXT:  # in a shorter file no key is too long
            _decoder(_Text).decode(data)
        fields = _decoder(str).decode(data)
        json.loads(data, object_pairs_hook=json_objects.unambiguous)  # msgspec takes the last of two equal keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        words, at, _ = _in_words(error).partition(" - at ")
        raise Refused(f"damaged {name}: {words}{_place(data) if at else ''}") from None
    except ValueError as error:
        raise Refused(f"damaged {name}: {error}") from None
    return fields


def _place(data: bytes) -> str:
    """ ", found guest.load_s: 1e+18": the first number or text beyond the limits, with its keys, which msgspec does not tell; "" where none is found."""
    try:
        return next(_beyond_limits(json.loads(data), ""), "")
    except (ValueError, RecursionError):
        return ""


def _beyond_limits(found: Any, place: str) -> Iterator[str]:
    """The words of each number or text beyond the limits, one by one: a file may hold tens of millions, and a list of their places would take 8 GB."""
    if isinstance(found, dict | list):
        for key, one in found.items() if isinstance(found, dict) else enumerate(found):
            if isinstance(one, dict | list):
                yield from _beyond_limits(one, _below(place, key))
            elif isinstance(one, str) and len(one) > LONGEST_TEXT:
                yield f", found {_line(_below(place, key))}: {len(one):,} characters"
            elif isinstance(one, int | float) and not abs(one) < LARGEST_NUMBER:
                yield f", found {_line(_below(place, key))}: {one!r:.20}"


def _below(place: str, key: str | int) -> str:
    return f"{place}[{key}]" if isinstance(key, int) else f"{place}.{key}"


def _line(place: str) -> str:
    """The end of a place, whose keys may be any text, in one short line."""
    return "".join(character if character.isprintable() else "?" for character in place.removeprefix("."))[-100:]


def _in_words(error: Exception) -> str:
    """What is wrong, in words; a list or an object is refused only where it lies too deep."""
    words = str(error)
    if isinstance(error, RecursionError) or "got `array`" in words or "got `object`" in words:
        return f"more than {DEEPEST} lists and objects within each other"
    return words


def keep(source: Path, target: Path, most_bytes: int | None = None) -> bool:
    """Copy a guest's file to `target`, whole or not at all; False where there is none. Raises Refused or OSError.

    The bytes are copied and the file is never moved by its name, which may lead to another file at any moment.
    """
    limit_bytes = _limit_bytes(source, most_bytes)
    try:
        stream = os.fdopen(_opened(source, limit_bytes), "rb", buffering=0)
    except FileNotFoundError:
        return False
    with stream, whole_file(target) as out:
        out.writelines(_chunks(stream, source, limit_bytes))
    return True


def check(path: Path) -> None:
    """Raise Refused where a guest's file is not let in; nothing where there is none."""
    with contextlib.suppress(FileNotFoundError):
        os.close(_opened(path, LIMITS_BYTES[path.name]))


def move(source: Path, target: Path) -> bool:
    """`keep`, then remove the guest's file."""
    kept = keep(source, target)
    if kept:
        source.unlink()
    return kept


def is_plain(path: Path) -> bool:
    """Is it a folder of its own, or a regular file with one name? Nothing else may leave this machine: a link may lead to any file of the host."""
    state = path.lstat()
    return stat.S_ISDIR(state.st_mode) or (stat.S_ISREG(state.st_mode) and state.st_nlink == 1)


def check_folder(folder: Path) -> None:
    """Raise Refused where a folder that a guest filled holds anything but folders and regular files with one name."""
    try:
        paths = list(folder.rglob("*"))
    except RecursionError:
        raise Refused(f"{folder.name} holds hundreds of folders within each other") from None
    for path in paths:
        if not is_plain(path):
            state = path.lstat()
            why = "a symbolic link" if stat.S_ISLNK(state.st_mode) else _kind(state.st_mode) if state.st_nlink == 1 else f"a file of {state.st_nlink} names"
            raise Refused(f"{path.relative_to(folder)} is {why}; regular files are allowed")
