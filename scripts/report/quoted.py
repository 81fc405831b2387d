"""Numbers of results in pages that are written by hand. Each stands between two comments, which name it and which GitHub does not show:

    <!-- ratio SLOWER FASTER -->3.41<!-- end -->

`make report` puts the number there, and `make check` fails where the page has another one. SLOWER and FASTER are ids of runs. An id without the
run's number stands for the runs of its row that count, as in the report's tables, also for runs to which an earlier kit gave another id. `…-01..02`
stands for runs 1 and 2, even if their machine was disturbed. `tokens=128` names the calls, where a run timed calls of several lengths; `decimals=1`
sets the digits; `times=100` and `per=1000` multiply and divide.

    mean_ms        the mean of a row's runs, each of which counts with its mean call; fastest_ms and slowest_ms the least and the greatest of these
    peak_gib       the largest peak of a GPU's memory in a row's runs
    spread         a row's slowest run over its fastest
    ratio          of the times of a call
    item_ratio     of the times of an item of the batch
    kernel_ratio   of the times in which a kernel ran on the only GPU
    sets_ratio     the geometric mean of the ratios on each set of GPUs that ran both rows

With `_interval`, as in ratio_interval, a ratio (but no kernel_ratio) is its 95 % interval.

Numbers of committed files name FILE PATH for each number (scripts/report/file_numbers.py):

    value          the number
    value_ratio    the first number over the second
    mean_ratio     the mean of the first list over that of the second, as tables have ratios of a run's calls
    saved          by how much the first number is less than the second, as a share of the second
    saved_range    the least and the greatest of these shares for two lists, number by number
    part_way       where the first number lies on the way from the second (0) to the third (1)
    part_way_range the least and the greatest of the same for three lists
"""

import dataclasses
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.job import write_whole
from scripts import stats
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.report import file_numbers
from scripts.results import Record
from scripts.results.marks import counting
from scripts.run import jobs
from scripts.units import GIB
from scripts.verdicts import run_facts
from scripts.verdicts.relations import pairs

PAGES = tuple(ROOT / place for place in ("README.md", "reports/FINDINGS.md", "docs/limits.md", "docs/method.md", "docs/readings.md"))

#: Numbers of two rows.
RATIOS = ("ratio", "ratio_interval", "item_ratio", "item_ratio_interval", "kernel_ratio", "sets_ratio", "sets_ratio_interval")
#: {what a number is: how many ids it needs}.
KINDS = {"peak_gib": 1, **dict.fromkeys(RATIOS, 2)}
#: {what a number of a row is: how it follows from the means of its runs}.
OF_A_ROW: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean_ms": lambda means_ms: stats.over_runs(means_ms).value,
    "fastest_ms": min,
    "slowest_ms": max,
    "spread": lambda means_ms: max(means_ms) / min(means_ms),
}
#: {what a number of a file is: how many words it needs}.
FILE_KINDS = {"value": 2, "value_ratio": 4, "mean_ratio": 4, "saved": 4, "saved_range": 4, "part_way": 6, "part_way_range": 6}
OPTIONS = ("tokens", "decimals", "times", "per")
#: The most digits of an option, and the most decimals: pages of a bundle are not trusted, and could ask for a GB of digits.
MOST_DIGITS, MOST_DECIMALS = 15, 20
#: Runs of a row by their numbers: "…-01..02".
SEVERAL = re.compile(r"(.+)-(\d+)\.\.(\d+)")

BEGIN = re.compile(rf"<!-- ({'|'.join([*KINDS, *OF_A_ROW, *FILE_KINDS])}) ([^>]*?) -->")
NUMBER = re.compile(BEGIN.pattern + r"([^<]*)<!-- end -->")


class NoRun(ValueError):
    """A run that a marker names is not there."""


def filled(page: str, text: str, records: Sequence[Record], strict: bool = True) -> str:
    """The text of a page with the numbers that these results give; raises KitError, which names page and marker, for a marker that is wrong.

    Unless `strict`, a number whose run or file is missing stays as it is: whoever measures anew need not keep the runs that a page quotes.
    """
    named = _named(records)
    if len(BEGIN.findall(text)) != len(NUMBER.findall(text)):
        opened = next(match[0] for match in BEGIN.finditer(text) if not NUMBER.match(text, match.start()))
        raise KitError(f"{page}: no <!-- end --> follows the number of {opened}; try {opened}0<!-- end -->")

    def put(match: re.Match[str]) -> str:
        kind, words, number = match.groups()
        try:
            number = _number(_marker(kind, words.split()), named)
        except ValueError as error:
            if strict or not isinstance(error, NoRun):
                raise KitError(f"{page}: <!-- {kind} {words} -->: {error}") from error
        return f"<!-- {kind} {words} -->{number}<!-- end -->"

    return NUMBER.sub(put, text)


def _named(records: Sequence[Record]) -> dict[str, Sequence[Record]]:
    """{an id of a run, or of a row: the runs that it stands for}."""
    rows: dict[str, list[Record]] = {}
    rows_of_prefix: dict[str, set[str]] = {}
    for record in records:
        row = jobs.prefix_of(record)
        rows.setdefault(row, []).append(record)
        rows_of_prefix.setdefault(record.id_without_number, set()).add(row)
    named: dict[str, Sequence[Record]] = {record.id: [record] for record in records}
    named.update((prefix, [run for row in of_prefix for run in rows[row]]) for prefix, of_prefix in rows_of_prefix.items())
    return named


def unfounded(root: Path, records: Sequence[Record]) -> int:
    """How many numbers of the pages below `root` name a missing run or file, so that nothing shows that they are right."""
    named = _named(records)
    pages = [root / page.relative_to(ROOT) for page in PAGES]
    markers = [match for page in pages if page.is_file() for match in NUMBER.findall(page.read_text(encoding="utf-8"))]
    return sum(_lacks(root, _marker(kind, words.split()), named) for kind, words, _ in markers)


def _lacks(root: Path, marker: "Marker", named: Mapping[str, Sequence[Record]]) -> bool:
    """Is a run or a file of a number missing?"""
    if marker.kind in FILE_KINDS:
        return not all(_is_file(file, root) for file in marker.names[::2])
    return not all(_runs(name, named) for name in marker.names)


def _is_file(file: str, root: Path) -> bool:
    try:
        file_numbers.place_of(file, root)
    except (ValueError, FileNotFoundError):
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Marker:
    """What a comment asks for. `names` are ids of runs, or FILE PATH for each number of a file."""

    kind: str
    names: Sequence[str]
    options: Mapping[str, int]

    def digits(self, value: float) -> str:
        """How a number is written; raises ValueError for one that is too large."""
        scaled = value * (self.options.get("times", 1) / self.options.get("per", 1))
        if not abs(scaled) < file_numbers.LARGEST:
            raise ValueError(f"it is {scaled:g}, allowed is less than {file_numbers.LARGEST:g}; leave out times")
        return stats.number(scaled, self.options["decimals"]) if "decimals" in self.options else stats.significant(scaled)

    @property
    def tokens(self) -> int | None:
        return self.options.get("tokens")


@dataclasses.dataclass(frozen=True)
class Row:
    """The runs of an id that ended well. `tokens` names the calls, where the runs timed several."""

    name: str
    runs: Sequence[Record]
    tokens: int | None


def _marker(kind: str, words: Sequence[str]) -> Marker:
    """Raises ValueError for a wrong option, and for more or fewer names than the kind needs."""
    names = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if unknown := [name for name, value in options.items() if not _is_option(name, value)]:
        allowed = " and ".join(f"{name}=N" for name in OPTIONS)
        raise ValueError(f"{unknown[0]}={options[unknown[0]][:60]} is wrong, allowed are {allowed}, with at most {MOST_DECIMALS} decimals")
    needed, noun = (FILE_KINDS[kind], "words") if kind in FILE_KINDS else (KINDS.get(kind, 1), "runs")
    if len(names) != needed:
        raise ValueError(f"it names {len(names)} {noun}, {needed} are needed")
    return Marker(kind, names, {name: int(value) for name, value in options.items()})


def _number(marker: Marker, named: Mapping[str, Sequence[Record]]) -> str:
    """The number in digits; raises ValueError."""
    if marker.kind in FILE_KINDS:
        return " to ".join(map(marker.digits, _of_files(marker.kind, marker.names)))
    rows = _rows(marker, named)
    if marker.kind == "peak_gib":
        return marker.digits(max(_peaks_bytes(rows[0])) / GIB)
    if marker.kind in OF_A_ROW:
        return marker.digits(OF_A_ROW[marker.kind](_means_ms(rows[0])))
    kind = marker.kind.removesuffix("_interval")
    ratio = _ratio(kind, *rows)
    if kind == marker.kind:
        return marker.digits(ratio.value)
    if not ratio.ends:
        raise ValueError(f"fewer than {f'{stats.LEAST_SETS} sets of GPUs' if kind == 'sets_ratio' else f'{stats.LEAST_RUNS} runs'} carry no interval")
    return " to ".join(map(marker.digits, ratio.ends))


def _rows(marker: Marker, named: Mapping[str, Sequence[Record]]) -> list[Row]:
    """The row of each id; raises NoRun, and ValueError for an id that stands for two rows."""
    found = {name: _runs(name, named) for name in marker.names}
    if missing := [name for name in marker.names if not found[name]]:
        raise NoRun(f"there is no run {missing[0]}; try ls reports/runs reports/without-containers/runs")
    if ambiguous := [name for name in marker.names if len({jobs.prefix_of(run) for run in found[name]}) > 1]:
        raise ValueError(f"{ambiguous[0]} stands for runs of two rows; name one run")
    return [Row(name, _counted(name, found[name]), marker.tokens) for name in marker.names]


def _counted(name: str, runs: Sequence[Record]) -> Sequence[Record]:
    """The runs that ended well; of a whole row only the undisturbed ones, where there are any (docs/verdict-rules.md)."""
    ended = [run for run in runs if run.status == "ok"]
    return ended if SEVERAL.fullmatch(name) else counting(ended)


def _ratio(kind: str, slower: Row, faster: Row) -> stats.Estimate:
    """The ratio of two rows by what the kind compares, with its interval; raises ValueError."""
    if kind == "sets_ratio":
        return stats.over_sets(_of_sets(slower, faster))
    of_runs = _kernels_ms if kind == "kernel_ratio" else _means_ms
    ratio = stats.ratio_over_runs(of_runs(slower), of_runs(faster))
    return stats.scaled(ratio, faster.runs[0].job.batch_size / slower.runs[0].job.batch_size) if kind == "item_ratio" else ratio


def _is_option(name: str, value: str) -> bool:
    if name not in OPTIONS or not re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", value):
        return False
    return int(value) <= MOST_DECIMALS if name == "decimals" else int(value) > 0


def _runs(name: str, named: Mapping[str, Sequence[Record]]) -> Sequence[Record]:
    """The runs that an id stands for, or [] where one of several is not there or did not end well."""
    if not (several := SEVERAL.fullmatch(name)):
        return named.get(name, [])
    first, last = int(several[2]), int(several[3])
    runs = [run for run in named.get(several[1], []) if first <= run.number <= last and run.status == "ok"]
    return runs if {run.number for run in runs} == {*range(first, last + 1)} else []


def _of_files(kind: str, words: Sequence[str]) -> list[float]:
    """What a kind makes of the numbers that each FILE PATH names: one number, or the ends of a range."""
    try:
        lists = [_numbers(kind, file, path) for file, path in zip(words[::2], words[1::2], strict=True)]
    except FileNotFoundError as error:
        raise NoRun(f"there is no file {error.filename}") from error
    if len({len(numbers) for numbers in lists}) > 1:
        raise ValueError(f"its lists have {' and '.join(str(len(numbers)) for numbers in lists)} numbers, as many in each are needed")
    made = _of_lists(kind, *lists)
    return [min(made), max(made)] if kind.endswith("_range") else made


def _of_lists(kind: str, firsts: Sequence[float], *others: Sequence[float]) -> list[float]:
    if kind.startswith("part_way"):
        starts, ends = others
        if any(start == end for start, end in zip(starts, ends, strict=True)):
            raise ValueError("the third number is the second, so there is no way between them")
        return [(first - start) / (end - start) for first, start, end in zip(firsts, starts, ends, strict=True)]
    if not others:
        return list(firsts)
    if 0 in others[0]:
        raise ValueError("the second number is 0")
    ratios = [first / second for first, second in zip(firsts, others[0], strict=True)]
    return [1 - ratio for ratio in ratios] if kind.startswith("saved") else ratios


def _numbers(kind: str, file: str, path: str) -> list[float]:
    """All numbers at a path for a range; else the one that stands for them."""
    if kind.endswith("_range"):
        return file_numbers.all_at(file, path)
    return [statistics.fmean(file_numbers.all_at(file, path)) if kind == "mean_ratio" else file_numbers.at(file, path)]


def _means_ms(row: Row) -> list[float]:
    """The mean call of each run."""
    return [mean_ms for _, mean_ms, _ in _timed(row)]


def _kernels_ms(row: Row) -> list[float]:
    """The time of a mean call in which a kernel ran, for each run that tells it."""
    told = [run_facts.kernels_ms(run, count, mean_ms) for run, mean_ms, count in _timed(row)]
    if not any(told):
        raise ValueError(f"no run of {row.name} tells for how much of its time a kernel ran on its only GPU")
    return [ms for ms in told if ms]


def _of_sets(slower: Row, faster: Row) -> list[float]:
    """The ratio on each set of GPUs that ran both rows, where there are several."""
    timed = [[(run, mean_ms) for run, mean_ms, _ in _timed(row)] for row in (slower, faster)]
    if not (found := pairs.by_gpus(*timed)):
        raise ValueError("one set of GPUs ran all runs, or none ran both rows")
    return [one.ratio for one in found]


def _timed(row: Row) -> list[tuple[Record, float, int]]:
    """(run, its mean call, the number of tokens of this call)."""
    timed = [(run, run_facts.series(run)) for run in row.runs]
    counts = sorted({count for _, series in timed for count in series})
    if row.tokens is None and len(counts) > 1:
        raise ValueError(f"{row.name} timed calls of {' and '.join(map(str, counts))} tokens; try tokens={counts[0]}")
    asked = row.tokens or (counts[0] if counts else 0)
    found = [(run, statistics.fmean(series[asked]), asked) for run, series in timed if series.get(asked)]
    if not found:
        others = f" of {row.tokens} tokens, but of {' and '.join(map(str, counts)) or 'none'}" if row.tokens else ""
        raise ValueError(f"{row.name} timed no call{others}")
    return found


def _peaks_bytes(row: Row) -> list[int]:
    peaks = [peak for run in row.runs if (peak := run_facts.peak_of_a_gpu_bytes(run)) is not None]
    if not peaks:
        raise ValueError(f"the memory of {row.name}'s GPUs was not sampled")
    return peaks


def save(records: Sequence[Record], pages: Sequence[Path] = PAGES) -> None:
    """Put the numbers into the pages that exist; numbers of missing runs stay."""
    for page, text, new in _pages(records, pages, strict=False):
        if new != text:
            write_whole(page, new)


def check(records: Sequence[Record], pages: Sequence[Path] = PAGES) -> None:
    """Raise KitError where a number is not that of the results, or its run is missing."""
    for page, text, new in _pages(records, pages, strict=True):
        for old, now in zip(NUMBER.finditer(text), NUMBER.finditer(new), strict=True):
            if old[0] != now[0]:
                raise KitError(f"{page.name}: {old[0]} is now {now[3]}. Try: make report")


def _pages(records: Sequence[Record], pages: Sequence[Path], strict: bool) -> list[tuple[Path, str, str]]:
    """(page, its text, the text as it has to be)."""
    texts = [(page, page.read_text(encoding="utf-8")) for page in pages if page.is_file()]
    return [(page, text, filled(page.name, text, records, strict)) for page, text in texts]
