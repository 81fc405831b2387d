"""What must not leave this machine: secrets, home folders, the machine's name. Asked before a site or a bundle goes out."""

import functools
import gzip
import io
import platform
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.errors import KitError
from scripts.paths import ROOT

#: What a gzipped file begins with, and the most bytes that are searched in one: the trace of a profile has some MB.
GZIP, LARGEST_UNPACKED_BYTES = b"\x1f\x8b", 1 << 30

#: Where the words of every site come from, beside the notes of docs/ in a site: the report's code and templates; then cases and forms, pins and locks.
OF_REPORT, OF_SETTINGS, TEXTS = ("scripts/report",), ("bench", "docker"), (".py", ".j2", ".toml", ".txt")

SECRETS = {
    "a token of a model hub": rb"\bhf_[A-Za-z0-9]{20,}",
    "an access key": rb"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,})",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": rb"://(?:[^/\s:@'\"?]+:[^/\s:@'\"?]+|[^/\s:@'\".?]{16,})@",
    "a home folder": rb"(?:/home/|/Users/|[A-Z]:\\\\?Users\\\\?)[A-Za-z0-9._\x80-\xff-]+[/\\]"
    rb"|(?<![\w.-])(?<!(?:href|.src)=\")/(?:home|Users)/[A-Za-z0-9._\x80-\xff-]+",
}


def patterns(host_name: str, home: Path) -> dict[str, re.Pattern[bytes]]:
    """{what it is: its pattern}; a machine's name of fewer than four letters, or one that is a word of every site, would be found everywhere."""
    found = {what: re.compile(pattern) for what, pattern in SECRETS.items()}
    short_name = host_name.partition(".")[0]  # without its domain it may be a word: "gpus", "login"
    names = [name for name in (host_name, short_name if _is_like_a_name(short_name) else "") if len(name) >= 4 and name.lower() != "localhost"]
    if names := [name for name in names if not _is_word_of_sites(name)]:
        found["this machine's name"] = _pattern_of(names)
    if len(home.parts) > 2:  # /root and the like name nobody
        found["your home folder"] = re.compile(re.escape(str(home).encode()))
    return found


def _pattern_of(names: Iterable[str]) -> re.Pattern[bytes]:
    either = b"|".join(re.escape(name.encode()) for name in names)
    return re.compile(rb"(?<![A-Za-z0-9-])(?:" + either + rb")(?![A-Za-z0-9-])", re.IGNORECASE)


def _is_like_a_name(name: str) -> bool:
    """Is it rather a machine's name than a word? "bigbox-7", "node7", "gpus.example.org"."""
    return re.search("[0-9.-]", name) is not None


def _is_word_of_sites(name: str) -> bool:
    """Is a machine called like a word that the kit itself writes into sites, such as "report", "docker" or "hopper"? Found there, it tells nothing.

    What is like a name counts only in the report's own code and in the notes: an article, a pin or a lock of the user's may name the very machine.
    """
    pattern = _pattern_of([name])
    folders = OF_REPORT if _is_like_a_name(name) else OF_REPORT + OF_SETTINGS
    return any(pattern.search(text) for text in _texts_of_sites(ROOT, folders))


@functools.cache
def _texts_of_sites(root: Path, folders: tuple[str, ...]) -> list[bytes]:
    """The texts of these folders, and the notes in a site: no command changes one."""
    from scripts.share import site_pages  # imported late: it imports the report

    files = [path for folder in folders for path in (root / folder).rglob("*") if path.suffix in TEXTS and path.is_file()]
    return [path.read_bytes() for path in (*files, *(root / "docs" / note for note in site_pages.NOTES))]


def files_of(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """(path within the folder, content) of each file, sorted."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield path.relative_to(folder), path.read_bytes()


def problems(files: Iterable[tuple[Path, bytes]], forbidden: dict[str, re.Pattern[bytes]]) -> Iterator[str]:
    """One line for each file that holds what must not go out, with the place and not the thing itself."""
    for name, content in files:
        text = _unpacked(content) if content.startswith(GZIP) else content
        if text is None:
            yield f"{name}: gzipped, and cannot be searched, because it is damaged or unpacks to more than a GiB; remove it"
            continue
        for what, pattern in forbidden.items():
            found = pattern.search(text)
            if found:
                line = text.count(b"\n", 0, found.start()) + 1
                yield f"{name}, line {line}: {what}"


def _unpacked(content: bytes) -> bytes | None:
    """What a gzipped file holds; None where it is damaged, or holds too much."""
    try:
        with gzip.open(io.BytesIO(content)) as packed:
            text = packed.read(LARGEST_UNPACKED_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        return None
    return text if len(text) <= LARGEST_UNPACKED_BYTES else None


def refuse(files: Iterable[tuple[Path, bytes]], undone: str, of_machines: bool = True) -> None:
    """Raise KitError, which begins with `undone`, where a file holds what must not go out; this machine's name only counts in files `of_machines`."""
    found = list(problems(files, patterns(platform.node() if of_machines else "", Path.home())))
    if found:
        raise KitError(f"{undone} because these files hold secrets or names of this machine:\n  " + "\n  ".join(found))
