"""make verify-bundle: does an archive hold what it says, and what was not checked?

Nothing of the archive is trusted, and no code of it runs. Every file has to be listed with its checksum, every needed file has to be
there, each run's job has to be the job of its result, no result may contradict itself or its job, and the report, its plots, the list
of actions and the README's headlines have to come out of the bundle's own results, articles and pins. A bundle that was changed
throughout, report included, passes: only a signature shows who made it.
"""

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.job import InvalidDocument, to_json
from scripts import __version__, pins, results
from scripts.errors import KitError, UsageError
from scripts.machine import checksums, unpack
from scripts.paths import ROOT
from scripts.report import quoted
from scripts.results import Record, copies
from scripts.share import BUNDLE, by_hand, meaning, rebuilt, ro_crate
from scripts.share.bundle import holds
from scripts.share.meaning import Meaning, Pinned
from scripts.units import counted

#: A bundle of the committed results unpacks to 35 MB; with the answers of long runs it may come to some hundred.
LIMIT_BYTES = 1 << 30

#: The largest file that is read whole. Of 10,000 results the list of actions, by far the largest such file, has 23 MB; answers beside results are not read.
LARGEST_READ_BYTES = 64 << 20

#: What every .tar.gz begins with.
GZIP = b"\x1f\x8b"

#: Besides these a bundle needs an article, a run, and the locks that its pins name.
NEEDED = ("CITATION.cff", "LICENSE", "README.md", "docker/pins.toml", "reports/REPORT.md")

#: The errors that reading damaged data may raise.
UNREADABLE = (KitError, ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError)


@dataclass(frozen=True)
class Verdict:
    """On a bundle: all its problems or, where there are none, what was checked, what was not, and what its results say."""

    problems: list[str]
    checked: list[str]
    meaning: Meaning | None

    def as_json(self, path: Path) -> str:
        """One line for a program."""
        said = {"bundle": str(path), "sha256": checksums.digest_of(path), "kit_version": __version__, "passed": not self.problems, "problems": self.problems}
        for key in ("checked", "not checked"):
            said[key.replace(" ", "_")] = [line.removeprefix(f"{key}: ") for line in self.checked if line.startswith(f"{key}: ")]
        return json.dumps({**said, "runs": dataclasses.asdict(self.meaning) if self.meaning else None})


def verify(path: Path) -> list[str]:
    """What was checked of a bundle and what was not, a line each. Raises KitError with every problem of it."""
    found = verdict(path)
    if found.problems:
        raise KitError(f"{path} failed these checks:\n  " + "\n  ".join(found.problems))
    return found.checked


def verdict(path: Path) -> Verdict:
    """The verdict on an archive; KitError for a file that is none."""
    with tempfile.TemporaryDirectory() as work:
        unpacked, again = Path(work, "unpacked"), Path(work, "again")
        unpacked.mkdir()
        again.mkdir()
        _refuse_no_archive(path)
        with unpack.opened(path, LIMIT_BYTES) as archive:
            unpack.unpack(archive, unpacked, LIMIT_BYTES)
        if found := list(_problems(unpacked, again)):
            return Verdict(found, [], None)
        folder = unpacked / BUNDLE
        first, *others = rebuilt.held(folder).values()
        apart = list(itertools.chain.from_iterable(others))
        told = meaning.of(first, pins.load(folder), apart)
        return Verdict([], _checked(folder, told, quoted.unfounded(folder, [*first, *apart])), told)


def _refuse_no_archive(path: Path) -> None:
    """Raise UsageError where BUNDLE is no file, or does not begin as a .tar.gz does."""
    if path.is_dir():
        fault = "is a folder, allowed is an archive of make bundle"
    elif not path.is_file():  # no pipe either: opening one would wait
        fault = "is no file"
    else:
        with path.open("rb") as file:
            fault = "" if file.read(len(GZIP)) == GZIP else "is no .tar.gz, allowed is an archive of make bundle"
    if fault:
        raise UsageError(f"BUNDLE is {str(path)!r}, which {fault}; type make bundle, which writes {BUNDLE}.tar.gz, or BUNDLE=/path/to/an/archive")


def _problems(unpacked: Path, again: Path) -> Iterator[str]:
    """What is wrong with an unpacked bundle, a line each; `again` is an empty folder."""
    yield from (f"{path.name}: beside the folder {BUNDLE}" for path in sorted(unpacked.iterdir()) if path.name != BUNDLE)
    folder = unpacked / BUNDLE
    if too_large := sorted(_too_large(folder)):
        yield from too_large
        return
    try:
        listed = checksums.parse((folder / checksums.NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield f"{checksums.NAME}: missing"
        return
    except (OSError, ValueError) as error:
        yield f"{checksums.NAME}: damaged: {error}"
        return
    yield from _files(folder, listed)
    names = yield from _needed(folder)
    yield from _runs(folder, names)
    yield from by_hand.problems(folder)
    yield from _crate(folder)
    yield from _report(folder, again)


def _too_large(folder: Path) -> Iterator[str]:
    """A file of a few MB in an archive may unpack to a GiB, which takes ten times as much memory where its lines or tables are taken apart."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and ("runs" not in name.parts or name.name == "job.json") and (size := path.stat().st_size) > LARGEST_READ_BYTES:
            yield f"{name}: has {size:,} bytes; {LARGEST_READ_BYTES:,} are allowed"


def _files(folder: Path, listed: Mapping[str, str]) -> Iterator[str]:
    """Every file is listed and lies where a bundle has files, and each listed file is there with its checksum."""
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {checksums.NAME}
    missing, changed = checksums.compare(folder, listed)
    yield from (f"{name}: missing" for name in missing)
    yield from (f"{name}: not in {checksums.NAME}" for name in sorted(there - listed.keys()))
    yield from (f"{name}: a file that no bundle holds" for name in sorted(there) if not holds(name))
    yield from (f"{name}: another content than {checksums.NAME} says" for name in changed)


def _needed(folder: Path) -> Generator[str, None, Mapping[str, set[str]]]:
    """Which files are missing that every bundle needs; returns `meaning.names_of_pins` of its pins, {} where these cannot be read."""
    yield from (f"{name}: a bundle needs this file" for name in NEEDED if not (folder / name).is_file())
    yield from (
        f"{pattern}: a bundle needs at least one file of this name"
        for pattern in ("bench/articles/*.toml", "reports/runs/*/result.json")
        if not [*folder.glob(pattern)]
    )
    try:
        held = pins.load(folder)
        locks = [image.folder / "requirements.txt" for image in held.images()]
        names = meaning.names_of_pins(held)
    except UNREADABLE as error:
        yield f"docker/pins.toml: cannot be read: {type(error).__name__}: {error}"
        return {}
    yield from (f"{path.relative_to(folder)}: a bundle needs this lock" for path in locks if not path.is_file())
    return names


def _runs(folder: Path, names: Mapping[str, set[str]]) -> Iterator[str]:
    """Each result is readable, its job is the job that was asked for, and it is no copy of another one."""
    records: list[Record] = []
    for path in sorted(path for report in rebuilt.REPORTS for path in (folder / report).glob("runs/*/result.json")):
        place = path.parent.relative_to(folder).as_posix()
        try:
            record = results.whole(path.parent)
            of_result = json.loads(path.read_text(encoding="utf-8"))["job"]
        except (InvalidDocument, *UNREADABLE) as error:
            yield f"{place}: {error}"
            continue
        asked = path.parent / "job.json"
        if not asked.is_file():
            yield f"{place}/job.json: missing"
        elif asked.read_bytes() != to_json(of_result).encode():  # to the byte: programs differ in which value of a double key they take
            yield f"{place}/job.json: another job than that of result.json"
        yield from (f"{place}: {problem}" for problem in meaning.problems(record))
        if problem := meaning.another_image(record, names):
            yield f"{place}: {problem}"
        records.append(record)
    yield from (f"{copied}: {why}" for copied, why in copies.of((record.id, record.guest) for record in records))


def _crate(folder: Path) -> Iterator[str]:
    """The list of actions comes out of the results."""
    path = folder / ro_crate.NAME
    if not path.is_file():
        yield f"{ro_crate.NAME}: follows from the runs, and is missing"
    elif path.read_text(encoding="utf-8", errors="replace") != ro_crate.text(rebuilt.held(folder)):
        yield f"{ro_crate.NAME}: differs from what the runs give{_other_version(folder)}"


def _report(folder: Path, again: Path) -> Iterator[str]:
    """The report's pages, their plots and the README come out of the bundle's own data."""
    try:
        made = rebuilt.report(folder, again)
    except (KitError, OSError) as error:
        yield f"reports/REPORT.md: not checked because it cannot be made from the bundle's data: {error}"
        return
    there = {
        path.relative_to(folder).as_posix() for report in rebuilt.REPORTS for pattern in (*rebuilt.PAGES, "plots/*") for path in (folder / report).glob(pattern)
    }
    for name in sorted({*made, *there}):
        path = folder / name
        if name not in made:
            yield f"{name}: does not follow from the runs"
        elif not path.is_file():
            yield f"{name}: follows from the runs, and is missing"
        elif path.read_bytes() != made[name]:
            yield f"{name}: differs from what the runs give{_other_version(folder)}"


def _other_version(folder: Path) -> str:
    """A kit of another version may write another report from the same runs."""
    try:
        cited = (folder / "CITATION.cff").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    version = next((line.partition(":")[2].strip(" \"'") for line in cited if line.startswith("version:")), __version__)
    return "" if version == __version__ else f" by version {__version__} of the kit; the bundle is of version {version[:20]!r}, check with that"


def _pins_told(told: Meaning | Pinned) -> str:
    return f"{told.deviating} name differences from their pins and {told.other_pins} are of other pins than the bundle's"


def _checked(folder: Path, told: Meaning, unfounded: int) -> list[str]:
    """In words: what a bundle without problems was checked for, and what nobody can check; `unfounded` counts quoted numbers of missing runs or files."""
    patterns = ("runs/*/result.json", "*.md", "plots/*.svg")
    runs, pages, plots = (sum(len([*(folder / report).glob(pattern)]) for report in rebuilt.REPORTS) for pattern in patterns)
    count = len(checksums.parse((folder / checksums.NAME).read_text(encoding="utf-8")))
    differing = [name for name in _data(folder) | _data(ROOT) if _content(folder / name) != _content(ROOT / name)]
    lines = [
        f"checked: {count} files against {checksums.NAME}, and that no file is missing or added",
        f"checked: {runs} results, each with its job, and that each made its warm-ups and timed calls and contradicts itself nowhere",
        f"checked: of {told.ok} runs that ended well, the output is right in {told.output_right}, wrong by their own check in {len(told.output_wrong)}, "
        f"not checked in {told.output_not_checked}",
        f"checked: of these {told.ok} runs, {_pins_told(told)}; "
        f"of the {told.may_judge.ok} in reports/runs that a verdict may rest on, {_pins_told(told.may_judge)}",
        f"checked: {pages} pages of the reports, {plots} plots, the README's headlines and the numbers quoted in pages come out of these results, "
        "with the bundle's own articles and pins",
        f"checked: {ro_crate.NAME} tells of these results",
        "checked: the pages that somebody wrote by hand have no HTML and no link with a script",
        "not checked: who made the bundle; checksums show damage, a signature shows its maker: docs/use.md#signing-a-bundle",
        "not checked: whether the runs took place as they say; measure a row yourself: its page, which reports/rows.md lists, has the command",
        "not checked: texts and files that the report does not read, namely the words of FINDINGS.md, bills of materials, the code in bench/, "
        "logs and answers beside the results",
    ]
    if unfounded:
        lines.append(f"not checked: {counted(unfounded, 'number')} quoted in pages, of runs or files that the bundle does not hold")
    if differing:
        lines.append(f"not checked: the bundle's articles and pins differ from this kit's in {', '.join(sorted(differing))}; compare them yourself")
    return lines


def _data(folder: Path) -> set[str]:
    """The places of articles, tolerances, pins and locks."""
    return {
        path.relative_to(folder).as_posix()
        for pattern in ("bench/**/*.toml", "docker/pins.toml", "docker/**/requirements.txt")
        for path in folder.glob(pattern)
    }


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
