"""The types of option values. A wrong value gives one line: its name, the value, what is allowed, an example."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from scripts.errors import UsageError
from scripts.names import nearest, shortened
from scripts.paths import ROOT

#: A larger count is a typing error: no machine has so many GPUs, no day so many seconds.
LARGEST_COUNT = 1_000_000

#: A longer value is a typing error. A path has at most 4,096 bytes, and the kit appends to typed paths.
LONGEST_CHARACTERS = 1024

UNITS_BYTES = {"MB": 10**6, "GB": 10**9}

#: The tools run on Python 3.11 and newer.
OLDEST_MINOR = 11

#: {a user's word: the kit's word for it}, where the spelling is nearer to another word of the same choice.
MEANT = {"gpu": "cuda", "singularity": "apptainer", "enroot": "pyxis"}

#: A verb's function, or click's command for it.
Verb = Callable[..., Any]


class Value(click.ParamType[Any, Any]):
    """The value that `parse` makes of a text. Where `parse` raises ValueError, a UsageError says what is `allowed` and shows the example for that text."""

    def __init__(self, metavar: str, parse: Callable[[str], Any], allowed: str, example: Callable[[str], str]) -> None:
        self.name, self.parse, self.allowed, self.example = metavar, parse, allowed, example

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        name = "the value" if param is None else str(getattr(param, "envvar", None) or param.opts[0])
        try:
            return self.parse(value)
        except ValueError as error:
            raise UsageError(f"{name} is {shortened(value)!r}, {self.allowed.format(error)}; try {name}={self.example(value)}") from error


def choice(*words: str) -> Value:
    """One of the given words."""
    return Value(
        "|".join(words), lambda text: words[words.index(text)], f"allowed are {', '.join(words)}", lambda text: nearest(MEANT.get(text.lower(), text), words)
    )


def switch() -> Value:
    """0 or 1, for example FORCE=1."""
    return Value("0|1", lambda text: ("0", "1").index(text) == 1, "allowed are 0, 1", lambda text: "1")


def count(most: int = LARGEST_COUNT, example: int = 2) -> Value:
    """A whole number from 1."""
    return Value("n", lambda text: _whole(text, 1, most), f"allowed is a whole number from 1 to {most:,}", lambda text: str(example))


def size() -> Value:
    """A number of bytes with its unit, for example PIECES=64MB; the units are powers of 1000."""

    def parse(text: str) -> int:
        return _whole(text[:-2], 1, 999_999) * UNITS_BYTES.get(text[-2:], 0) or _wrong()

    return Value("64MB", parse, f"allowed is a whole number with {' or '.join(UNITS_BYTES)}", lambda text: "64MB")


def numbers(allowed: str, example: str, least: int = 0, most: int = LARGEST_COUNT) -> Value:
    """Different whole numbers with commas, for example GPU_IDS=0,3."""

    def parse(text: str) -> tuple[int, ...]:
        numbers = tuple(_whole(part, least, most) for part in text.split(","))
        return numbers if len(set(numbers)) == len(numbers) else _wrong()

    return Value("n,n,…", parse, f"allowed are {allowed} from {least} to {most:,}, separated by commas", lambda text: example)


def text() -> Value:
    """A word, an address or a command of at most LONGEST_CHARACTERS."""
    return Value("text", _short, f"allowed are at most {LONGEST_CHARACTERS:,} characters", lambda text: "a shorter value")


def names(*words: str) -> Value:
    """Words with commas, for example CASES=accelerate-fp16,ds-zero; only the given words where there are any."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in _short(text).split(",") if name.strip())
        blank = any(len(name.split()) > 1 for name in names)  # CLAIMS='1.2 1.3' lacks a comma
        return names if (names or not text) and not blank and (not words or set(names) <= set(words)) else _wrong()

    allowed = f"allowed are {', '.join(words) if words else f'names separated by commas, at most {LONGEST_CHARACTERS:,} characters'}"
    return Value("name,name,…", parse, allowed, lambda text: words[0] if words else _with_commas(text) or "one,another")


def pythons() -> Value:
    """Versions of Python that the tools run on, for example PYTHONS=3.11,3.12."""

    def parse(text: str) -> tuple[str, ...]:
        versions = tuple(version.strip() for version in _short(text).split(","))
        for major, *rest in (version.split(".") for version in versions):
            if major != "3" or len(rest) not in (1, 2):
                _wrong()
            _whole(rest[0], OLDEST_MINOR, 99)
            _whole(rest[-1], 0, 99)
        return versions

    return Value("3.n,3.n,…", parse, f"allowed are versions of Python from 3.{OLDEST_MINOR} on, separated by commas", lambda text: "3.12")


def _with_commas(text: str) -> str:
    """The names of a text that parts some of them by blanks; "" where it has none or is too long."""
    return ",".join(text.replace(",", " ").split()) if len(text) <= LONGEST_CHARACTERS else ""


def folder() -> Value:
    """A folder or file of this machine as an absolute path; it may be missing."""

    def parse(text: str) -> Path:
        path = _without_dots(Path.cwd() / _short(text))
        try:
            path.exists()
        except OSError as error:
            raise ValueError(error.strerror) from error
        return path

    return Value("path", parse, "which is not a path ({})", lambda text: "/another/path")


def _without_dots(path: Path) -> Path:
    """/clone/../mine becomes /mine. Links are not resolved, because messages show a link by its own path; so `..` after a link stays."""
    short = os.path.normpath(path)
    return Path(short) if os.path.realpath(short) == os.path.realpath(path) else path


def _wrong() -> Any:
    raise ValueError


def _whole(text: str, least: int, most: int) -> int:
    """A whole number within its bounds; raises ValueError."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most else _wrong()


def _short(text: str) -> str:
    if len(text) > LONGEST_CHARACTERS:
        raise ValueError(f"longer than {LONGEST_CHARACTERS:,} characters")
    return text


def option(name: str, kind: click.ParamType[Any, Any], words: str, default: Any = None) -> Callable[[Verb], Verb]:
    """The option `--gpu-ids`, which is also the variable GPU_IDS."""
    flag = "--" + name.lower().replace("_", "-")
    shown = True if default not in (None, "", (), False) else None
    return click.option(flag, type=kind, envvar=name, default=default, help=words, show_envvar=True, show_default=shown)


#: Options that several modules share; they stand here so that verbs that measure nothing do not wait for the imports of measuring.
MODELS = option("MODELS", folder(), "the folder of models and weights", ROOT / "models")
RUNS = option("RUNS", folder(), "the folder of results; by default the kit's own")
