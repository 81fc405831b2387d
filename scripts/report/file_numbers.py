"""Numbers of committed files other than means of runs: an instrument's readings, an article's published numbers, a job's values."""

import contextlib
import errno
import functools
import json
import stat
import statistics
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts import json_objects
from scripts.paths import ROOT

#: Numbers lie below this bound, which excludes Infinity and NaN: Python's JSON reads both.
LARGEST = 1e300

READERS: dict[str, Callable[[str], Any]] = {".json": functools.partial(json.loads, object_pairs_hook=json_objects.unambiguous), ".toml": tomllib.loads}


def at(file: str, path: str, root: Path = ROOT) -> float:
    """The number at a path such as rows/3/us or cases/deepspeed/published/mean_ms of a JSON or TOML file below `root`; the median of a list.

    A step names a key of a table; in a list, it is the position, the `name` or the `id` of an element, or `*` for each element.
    Raises FileNotFoundError, and ValueError where the path leads to no number.
    """
    return float(statistics.median(all_at(file, path, root)))


def all_at(file: str, path: str, root: Path = ROOT) -> list[float]:
    """The numbers of the list at a path, or the one number there."""
    place = place_of(file, root)
    found = [_read(place, place.stat().st_mtime_ns)]
    steps = path.split("/")
    for taken, step in enumerate(steps):
        here = f"{file} holds no {'/'.join(steps[: taken + 1])}"
        found = [child for one in found for child in _taken(one, step, here)]
    numbers = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    if not numbers or not all(_is_number(one) for one in numbers):
        wrong = next((one for one in found if not _is_number(one)), found[0])
        raise ValueError(f"{file} holds no number at {path}, but a {type(wrong).__name__}; there are {_steps(wrong)}")
    return [float(one) for one in numbers]


def place_of(file: str, root: Path = ROOT) -> Path:
    """The path of a file below `root`; raises FileNotFoundError, and ValueError for other paths, because pages of a bundle are not trusted."""
    state = None
    try:
        place = (root / file).resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            state = place.stat()
    except (OSError, RuntimeError) as error:  # a name too long, or a link to itself, which Python 3.13 refuses only in `stat`
        raise ValueError(f"{file[:60]} names no file: {getattr(error, 'strerror', None) or 'its links lead to each other'}") from error
    if not place.is_relative_to(root.resolve()):
        raise ValueError(f"{file} lies outside of the repository")
    if state is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(place))
    if not stat.S_ISREG(state.st_mode):  # reading a pipe would not end
        raise ValueError(f"{file} is no file")
    return place


def _taken(found: Any, step: str, refusal: str) -> list[Any]:
    """The values that a step leads to: one, or each element of a list for `*`."""
    if step == "*" and isinstance(found, list) and found:
        return found
    children = _children(found)
    if step not in children:
        raise ValueError(f"{refusal}, there are {_steps(found)}")
    return [children[step]]


def _is_number(found: Any) -> bool:
    return isinstance(found, (int, float)) and not isinstance(found, bool) and abs(found) < LARGEST


def _children(found: Any) -> dict[str, Any]:
    """{a next step: the value that it leads to}."""
    if isinstance(found, dict):
        return found
    if not isinstance(found, list):
        return {}
    named = {str(one.get("name", one.get("id"))): one for one in found if isinstance(one, dict) and ("name" in one or "id" in one)}
    return {str(position): one for position, one in enumerate(found)} | named


def _steps(found: Any) -> str:
    return ", ".join(list(_children(found))[:12]) or "no more steps"


@functools.lru_cache(maxsize=64)
def _read(path: Path, _changed_ns: int) -> Any:
    """The file's content, cached because a page names the same file many times."""
    if path.suffix not in READERS:
        raise ValueError(f"{path.name} is no file of numbers, allowed are {' and '.join(READERS)}")
    try:
        return READERS[path.suffix](path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
