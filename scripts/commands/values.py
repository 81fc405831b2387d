"""The types of option values. A wrong value gives one line: its name, the value, what is allowed, an example."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from scripts.errors import UsageError
from scripts.names import nearest

#: A larger count is a typing error: no machine has so many GPUs, no day so many seconds.
LARGEST_COUNT = 1_000_000

#: A longer value is a typing error. A path has at most 4,096 bytes, and the kit appends to typed paths.
LONGEST_CHARACTERS = 1024


def _name(param: click.Parameter | None) -> str:
    """The name of an option in messages: `GPUS`, or `--gpus` for an option without a variable."""
    if param is None:
        return "the value"
    return str(param.envvar) if getattr(param, "envvar", None) else param.opts[0]


#: A verb's function, or click's command for it.
Verb = Callable[..., Any]


class Choice(click.ParamType[Any, Any]):
    """One of the given words; the first word is the example."""

    name = "choice"

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(self.words)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.words:
            raise UsageError(f"{_name(param)} is {value!r}, allowed are {', '.join(self.words)}; try {_name(param)}={nearest(value, self.words)}")
        return value


class Switch(click.ParamType[Any, Any]):
    """0 or 1, for example FORCE=1."""

    name = "0|1"

    def convert(self, value: bool | str, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        if value not in ("0", "1"):
            raise UsageError(f"{_name(param)} is {value!r}, allowed are 0, 1; try {_name(param)}=1")
        return value == "1"


class Count(click.ParamType[Any, Any]):
    """A whole number from 1."""

    name = "n"

    def __init__(self, most: int = LARGEST_COUNT, example: int = 2) -> None:
        self.most, self.example = most, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdecimal() and len(value) < 20 and 1 <= int(value) <= self.most):
            allowed = f"a whole number from 1 to {self.most:,}"
            raise UsageError(f"{_name(param)} is {_short(value)!r}, allowed is {allowed}; try {_name(param)}={self.example}")
        return int(value)


class Size(click.ParamType[Any, Any]):
    """A number of bytes with its unit, for example PIECES=64MB; the units are powers of 1000."""

    name = "64MB"
    UNITS = {"MB": 10**6, "GB": 10**9}

    def convert(self, value: int | str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, unit = value[:-2], value[-2:]
        if unit not in self.UNITS or not (number.isascii() and number.isdecimal() and len(number) < 7 and int(number) >= 1):
            raise UsageError(f"{_name(param)} is {_short(value)!r}, allowed is a whole number with {' or '.join(self.UNITS)}; try {_name(param)}=64MB")
        return int(number) * self.UNITS[unit]


class Numbers(click.ParamType[Any, Any]):
    """Different whole numbers with commas, for example GPU_IDS=0,3."""

    name = "n,n,…"

    def __init__(self, allowed: str, example: str, least: int = 0) -> None:
        self.allowed, self.example, self.least = allowed, example, least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = value.split(",")
        right = all(part.isascii() and part.isdecimal() and len(part) < 8 and int(part) >= self.least for part in parts)
        if not right or len({int(part) for part in parts}) != len(parts):
            allowed = f"{self.allowed} with commas"
            raise UsageError(f"{_name(param)} is {_short(value)!r}, allowed are {allowed}; try {_name(param)}={self.example}")
        return tuple(int(part) for part in parts)


class Text(click.ParamType[Any, Any]):
    """A word, an address or a command of at most LONGEST_CHARACTERS."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return _not_too_long(str(value), param)


class Names(click.ParamType[Any, Any]):
    """Words with commas, for example CASES=accelerate-fp16,ds-zero; only `allowed` words where these are given."""

    name = "name,name,…"

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        words = value if isinstance(value, tuple) else tuple(word for word in _not_too_long(value, param).split(",") if word)
        wrong = [word for word in words if self.allowed and word not in self.allowed]
        if wrong:
            raise UsageError(f"{_name(param)} names {_short(wrong[0])!r}, allowed are {', '.join(self.allowed)}; try {_name(param)}={self.allowed[0]}")
        return words


class Folder(click.ParamType[Any, Any]):
    """A folder or file of this machine as an absolute path; it may be missing."""

    name = "path"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        try:
            path = Path.cwd() / _not_too_long(str(value), param)  # not resolved: messages show a link by its own path
            path.exists()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"{_name(param)} is {_short(str(value))!r}, which is not a path ({why}); try another") from error
        return path


def _not_too_long(value: str, param: click.Parameter | None) -> str:
    if len(value) > LONGEST_CHARACTERS:
        raise UsageError(f"{_name(param)} is {_short(value)!r}, allowed are {LONGEST_CHARACTERS:,} characters; try a shorter value")
    return value


def _short(value: str) -> str:
    return value if len(value) <= 60 else value[:60] + "…"


def option(name: str, kind: click.ParamType[Any, Any], words: str, default: Any = None) -> Callable[[Verb], Verb]:
    """The option `--gpu-ids`, which is also the variable GPU_IDS."""
    flag = "--" + name.lower().replace("_", "-")
    shown = True if default not in (None, "", (), False) else None
    return click.option(flag, type=kind, envvar=name, default=default, help=words, show_envvar=True, show_default=shown)
