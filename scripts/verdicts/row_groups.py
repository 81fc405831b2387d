"""From records to the groups of rows that may stand in one table.

A group is everything measured with the same article, variant, stack, engine, kind of machine, weights and scale. Numbers of
different groups are never compared.
"""

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.models import weights
from scripts.articles import Article
from scripts.names import slug
from scripts.results import Record
from scripts.results.machine_kind import MachineKind
from scripts.verdicts.parts import listed
from scripts.verdicts.row import Row, gpus, rows_of

#: Where a group's jobs ran, in words.
ENGINES = {
    "docker": "in containers",
    "podman": "in containers of Podman",
    "apptainer": "in containers of Apptainer",
    "pyxis": "in containers of pyxis",
    "host": "without containers",
}

#: The most letters of a group's slug before its hash. Names in a result may be longer, and file systems take 255 bytes, with what a plot adds.
LONGEST_SLUG = 160


@dataclasses.dataclass(frozen=True)
class Key:
    """What all rows of a group share.

    `engine` is docker, podman, apptainer or pyxis (containers of the pinned images) or host (an interpreter of the machine).
    """

    article: str
    stack: str
    engine: str
    device: str
    kind: MachineKind
    weights: str
    scale: str
    variant: str

    @property
    def model(self) -> str:
        return self.kind.model

    @property
    def facts(self) -> str:
        return self.kind.facts

    @property
    def host(self) -> str:
        return self.kind.host

    def in_host(self, devices: str) -> str:
        """ "1 and 4 × NVIDIA H200 in a 64-core host"."""
        return f"{devices} in a {self.host}" if self.host else devices

    @property
    def engine_words(self) -> str:
        return ENGINES.get(self.engine, self.engine)


def on_counts(counts: Iterable[int], model: str) -> str:
    """ "1 and 4 × NVIDIA H200"."""
    return f"{listed([str(count) for count in sorted(set(counts))])} × {model}"


@dataclasses.dataclass(frozen=True)
class Group:
    key: Key
    slug: str
    rows: tuple[Row, ...]

    @property
    def devices(self) -> str:
        """ "NVIDIA H200", or "1 and 4 × NVIDIA H200" where a row had several."""
        counts = {row.count for row in self.rows}
        return self.key.model if self.key.device == "cpu" or counts == {1} else on_counts(counts, self.key.model)

    @property
    def device_words(self) -> str:
        return self.key.in_host(self.devices)

    @property
    def heading(self) -> str:
        key = self.key
        return f"{key.stack} · {self.device_words} · {key.weights} weights, {key.scale} · {key.engine_words} · {key.variant}"

    @property
    def new_tokens(self) -> list[int]:
        """The numbers of new tokens for which any of its rows timed calls, in rising order."""
        return sorted({count for row in self.rows if row.status == "ok" for count in row.new_tokens})

    def figure(self, name: str) -> list[tuple[Row, Any]]:
        """The ok rows that have a figure, each with the figure."""
        return [(row, row.figures[name]) for row in self.rows if row.status == "ok" and row.figures.get(name)]

    def cannot_judge(self) -> str:
        """Why these rows say nothing about claims that an article made of its GPUs, or ""."""
        if self.key.device == "cpu":
            return f"{'tiny' if self.key.scale == 'tiny' else 'full'} model on a CPU"
        return "tiny model on a GPU" if self.key.scale == "tiny" else ""

    def row_of(self, case: str, count: int, batch_size: int | None = None) -> "Row | str":
        """The row of a case on so many GPUs in a batch size, by default the smallest; or why there is none."""
        rows = [row for row in self.rows if row.case == case]
        if batch_size is not None:
            rows = [row for row in rows if row.batch_size == batch_size]
            case = f"{case} in batch {batch_size}"
        for row in rows:
            if row.count == count:
                return row
        where = f"in this setting (stack {self.key.stack})"  # another setting may have the row
        return f"{case} ran on {gpus(rows[0].count)} {where}, not on {count}" if rows else f"{case} was not run {where}"


def runs_of(groups: Sequence[Group]) -> list[Record]:
    """Every run that groups are made of."""
    return [record for group in groups for row in group.rows for record in row.runs]


def build(records: Iterable[Record], articles: Mapping[str, Article]) -> list[Group]:
    """The groups of all measuring records: GPUs before CPUs, full before tiny, published before controlled."""
    by_key: dict[Key, list[Record]] = {}
    for record in records:
        if record.job.kind == "measure":
            by_key.setdefault(key_of(record), []).append(record)
    results_of: collections.Counter[Key] = collections.Counter()
    for key, of_key in by_key.items():
        results_of[_without_variant(key)] += len(of_key)
    keys = sorted(by_key, key=lambda key: _place(key, results_of[_without_variant(key)]))
    return [Group(key, name, rows_of(by_key[key], articles.get(key.article))) for key, name in zip(keys, _names(keys), strict=True)]


def _names(keys: Sequence[Key]) -> list[str]:
    """The slug of each group, which begins the names of its plots and anchors: no two are equal, and none is too long for a file's name."""
    names: list[str] = []
    taken: set[str] = set()
    used: collections.Counter[str] = collections.Counter()
    for key in keys:
        words = slug("-".join((key.article, key.stack, key.engine, key.model, key.host, key.weights, key.scale, key.variant)))
        base = words if len(words) <= LONGEST_SLUG else f"{words[:LONGEST_SLUG]}-{_digits(words)}"
        name = ""
        while not name or taken & _anchors(name):
            used[base] += 1
            name = base if used[base] == 1 else f"{base}-{used[base]}"
        names.append(name)
        taken |= _anchors(name)
    return names


def claims_anchor(name: str) -> str:
    """The anchor of the verdicts on a group's page, short because each cell of the index names it; `name` is the group's slug."""
    return f"claims-{_digits(name)}"


def _digits(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:8]


def _anchors(name: str) -> set[str]:
    """The anchors of a group in a report (scripts/report): the slug of one group, as with a variant "published-2", may be an anchor of another."""
    return {name, f"environment-{name}", f"apart-{name}", claims_anchor(name)}


def _without_variant(key: Key) -> Key:
    return dataclasses.replace(key, variant="")


def _place(key: Key, results: int) -> tuple[object, ...]:
    """The sort key of groups; `results` counts the results of the setting in all its variants."""
    return (
        key.article,
        key.device == "cpu",
        key.scale == "tiny",
        key.stack == "current",  # today's versions come after those that are nearer to the article
        key.stack,
        key.model,
        key.facts,
        key.weights,
        list(ENGINES).index(key.engine) if key.engine in ENGINES else len(ENGINES),
        -results,  # of several hosts, the one with the most results first
        key.host,
        key.variant != "published",
        key.variant,
    )


def key_of(record: Record) -> Key:
    job = record.job
    kind, scale = MachineKind.of(record.host, job.device), job.model.get("scale", "?")
    return Key(job.article, job.stack, record.host["engine"], job.device, kind, _weights_words(job.model), scale, job.variant)


def _weights_words(model: Mapping[str, Any]) -> str:
    """ "hub", "random" for recipe 1 of random weights, "random (recipe 2)" for later ones: rows of two recipes never stand in one table."""
    words, recipe = model.get("weights", "?"), weights.recipe_of(model)
    return f"{words} (recipe {recipe})" if words == "random" and recipe > 1 else words
