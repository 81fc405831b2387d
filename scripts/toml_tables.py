"""Check the kit's TOML files against the shapes that the code reads. A wrong key or value gives one line: the file, the place, what is allowed."""

import difflib
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from scripts.errors import KitError
from scripts.names import NAME, WORDS, WORDS_OF


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """A table of a TOML file. Its keys are those of the struct and no others, at any depth; a key without a default is required."""


def read(path: Path) -> dict[str, Any]:
    """The tables of a file; raises KitError where it is not TOML, and FileNotFoundError."""
    return parsed(path.read_bytes(), path.name)


def parsed(content: bytes, file: str) -> dict[str, Any]:
    """The tables of a file with this content; raises KitError where it is not TOML."""
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KitError(f"{file}: not TOML: {str(error) or 'nested too deep'}") from error


def check(tables: object, shape: Any, file: str, place: str = "") -> None:
    """Raise KitError where `tables`, which stand at `place` of a file, do not have the shape. Unknown keys are reported first."""
    for where, key, allowed in _unknown_keys(tables, _described(shape), place):
        raise unknown(file, where, key, allowed)
    if mistake := _mistake(tables, shape):
        words, _, inner = mistake.rpartition(" - at ")
        named, value = _named(inner.strip("`"), tables, lambda copy: _mistake(copy, shape) == mistake)
        where = ".".join(part for part in (place, named) if part)
        said = f"{value!r:.60}: " if isinstance(value, (str, int, float)) else ""
        known = f"allowed are {WORDS}" if repr(NAME) in words else words or inner
        raise KitError(f"{file}{_at(where)}: {said}{known}")


def _mistake(tables: object, shape: Any) -> str:
    """The first mistake in msgspec's words: "Expected `int`, got `str` - at `$.cases[3].gpus`"; "" where there is none."""
    try:
        msgspec.convert(tables, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


#: The description of a shape, cached because making it takes longer than reading most files.
_described = functools.cache(inspect.type_info)


def unknown(file: str, place: str, key: str, allowed: Iterable[str]) -> KitError:
    """The error for a key that no code reads, with the nearest allowed key."""
    names = sorted(allowed)
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return KitError(f"{file}{_at(place)}: unknown key {key!r}; {hint}allowed are {', '.join(names) or 'none'}")


def _at(place: str) -> str:
    return f", [{place}]" if place else ""


#: Shapes with keys of their own.
WITH_KEYS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


def _unknown_keys(data: object, shape: inspect.Type, place: str) -> Iterator[tuple[str, str, list[str]]]:
    """(place, key, allowed keys) of each key that no table of the shape has."""
    if isinstance(shape, inspect.UnionType):
        fitting = (*WITH_KEYS, inspect.DictType) if isinstance(data, dict) else (inspect.ListType,)
        for member in shape.types:
            if isinstance(member, fitting):
                yield from _unknown_keys(data, member, place)
    elif isinstance(shape, WITH_KEYS) and isinstance(data, dict):
        fields = {field.encode_name: field.type for field in shape.fields}
        for key, value in data.items():
            if key in fields:
                yield from _unknown_keys(value, fields[key], _below(place, key))
            else:
                yield place, key, list(fields)
    elif isinstance(shape, inspect.DictType) and isinstance(data, dict):
        pattern = getattr(shape.key_type, "pattern", None)
        for key, value in data.items():
            if pattern and not re.search(pattern, key):
                yield place, key, [WORDS_OF.get(pattern) or f"keys that match {pattern}"]
            yield from _unknown_keys(value, shape.value_type, _below(place, key))
    elif isinstance(shape, inspect.ListType) and isinstance(data, list):
        for number, value in enumerate(data):
            yield from _unknown_keys(value, shape.item_type, f"{place}{_label(value, number)}")


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _label(item: object, number: int) -> str:
    """The label of a list's item: its own name or id, else its number."""
    name = item.get("name", item.get("id")) if isinstance(item, dict) else None
    return f"[{name if isinstance(name, str) else number}]"


def _named(path: str, tables: object, is_mistaken: Callable[[object], bool]) -> tuple[str, object]:
    """msgspec's `$.cases[3].gpus` as `cases[int8].gpus`, and the value there.

    msgspec writes `[...]` for the key of a dict. The key is the one that, alone in its dict, makes the same mistake.
    """
    place, value = "", tables
    keys: list[str | int] = []
    for key, number in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        if number == "..." and isinstance(value, dict):
            key = next((name for name in value if is_mistaken(_with_only(tables, [*keys, name]))), "…")
        if key:
            place, value = _below(place, key), value.get(key) if isinstance(value, dict) else None
            keys.append(key)
        elif number.isdigit() and isinstance(value, list):
            value = value[int(number)]
            place += _label(value, int(number))
            keys.append(int(number))
        else:
            return f"{place}…", None
    return place, value


def _with_only(tables: Any, keys: Sequence[str | int]) -> Any:
    """A copy in which the table of the last key has this key alone."""
    key, *further = keys
    if not further:
        return {key: tables[key]}
    copy = tables.copy()
    copy[key] = _with_only(tables[key], further)
    return copy
