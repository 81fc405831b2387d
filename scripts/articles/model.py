"""The articles as data: bench/articles/*.toml, read into dataclasses. Only these files hold cases, published numbers and claims."""

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.job import Job
from scripts import pins, toml_tables
from scripts.articles import references
from scripts.articles.references import PUBLISHED
from scripts.articles.shapes import (
    AtLeastOne,
    BatchSizes,
    Claim,
    Hardware,
    InVariant,
    Model,
    Name,
    OwnPrompt,
    OwnProtocol,
    Prompt,
    Protocol,
    Published,
    Run,
    Tolerances,
    Variant,
)
from scripts.errors import KitError, UsageError
from scripts.errors import shown as printable
from scripts.names import nearest
from scripts.paths import ROOT

ARTICLES = ROOT / "bench" / "articles"


@dataclass(frozen=True)
class Case:
    """One row of an article's table.

    form          how the model is called: a module of bench/forms
    options       the options of that form; they override those of the variant and of the article; `tiny_items` is `items` at scale tiny
    batch_sizes   a list, or {from, until = "oom", within} (scripts/articles/batch_sweep.py); they override the variant's; without both, the
                  article's prompt.batch_size
    variants      the variants in which the case runs; None means all
    runs          the runs of the case; they replace the variant's
    published     {metric: number}, or {metric: {batch size: number}}; None where the article has no number for the case
    prompt        the keys that differ from the article's prompt
    protocol      the keys that differ from the article's protocol
    in_variant    {variant: {load, runs}}: values for one variant alone; they override those of the case and of the variant
    """

    name: Name
    backend: Name
    gpus: AtLeastOne
    load: dict[str, Any]
    model: Name = ""
    note: str = ""
    published: Published | None = None
    form: Name = "generate"
    options: dict[str, Any] = field(default_factory=dict)
    batch_sizes: BatchSizes | None = None
    prompt: OwnPrompt = field(default_factory=OwnPrompt)
    runs: list[Run] | None = None
    protocol: OwnProtocol = field(default_factory=OwnProtocol)
    variants: list[Name] | None = None
    in_variant: dict[Name, InVariant] = field(default_factory=dict)

    def published_at(self, metric: str, batch_size: int) -> float | None:
        """The article's number for a batch size; a number without batch sizes counts for every batch size."""
        value: Any = (self.published or {}).get(metric)
        return value.get(str(batch_size)) if isinstance(value, dict) else value

    @property
    def times_counted(self) -> int:
        """How often the article counted each token: once, or once for every GPU that ran the same sentences."""
        return self.gpus if self.options.get("tokens_times_ranks") else 1


@dataclass(frozen=True)
class Article:
    slug: Name
    title: str
    stack: Name
    model: Model
    prompt: Prompt
    protocol: Protocol
    variants: dict[Name, Variant]
    cases: list[Case]
    date: str = ""
    measured: str = ""
    caveat: str = ""
    original: str = ""
    references: list[str] = field(default_factory=list)
    hardware: Hardware | None = None
    models: dict[Name, Model] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)

    def case(self, name: str) -> Case | None:
        """The case with this name; None where the article has no such case (any more)."""
        return next((case for case in self.cases if case.name == name), None)

    @property
    def backends(self) -> list[str]:
        """The backends of the article's cases, in the order of the cases."""
        return list(dict.fromkeys(case.backend for case in self.cases))

    def claims_rest_on(self, case: Case) -> bool:
        """Does any claim name this case?"""
        return any(case.name in references.cases_of(relation) for claim in self.claims for relation in claim["relations"])

    def rows_of_claims(self, ids: Sequence[str]) -> dict[str, set[int | None]]:
        """{case: the batch sizes} that these claims compare; None for the case's own size. Raises UsageError for a claim that the article does not make."""
        known = [claim["id"] for claim in self.claims]
        unknown = next((name for name in ids if name not in known), None)
        if unknown:
            owner = next((slug for slug, other in without_mistakes().items() if any(claim["id"] == unknown for claim in other.claims)), "")
            own = f"try CLAIMS={nearest(unknown, known)}" if known else "leave CLAIMS out"
            try_this = f"try make article-{owner} CLAIMS={unknown}" if owner else own
            raise UsageError(f"CLAIMS names {unknown!r}, {self.slug} has {', '.join(known) or 'none'}; {try_this}")
        rows: dict[str, set[int | None]] = {}
        for relation in (relation for claim in self.claims if claim["id"] in ids for relation in claim["relations"]):
            for case, size in references.rows_of(relation):
                rows.setdefault(case, set()).add(size)
        return rows

    def variants_of(self, case: Case) -> list[str]:
        """The variants in which a case runs."""
        return case.variants or list(self.variants)

    def lacking_in(self, variant: str, claim: str) -> list[str]:
        """The cases of a claim that a variant does not have."""
        compared = self.rows_of_claims([claim])
        return [case.name for case in self.cases if case.name in compared and variant not in self.variants_of(case)]

    def judging_variants(self, claim: str) -> list[str]:
        """The variants that judge a claim: the published one; if that one lacks a case of the claim, all variants that have every case; [] for none."""
        able = [variant for variant in self.variants if not self.lacking_in(variant, claim)]
        return [PUBLISHED] if PUBLISHED in able else able

    def model_of(self, case: Case) -> Model:
        """The model of a case: the article's, unless the case names another."""
        return self.models[case.model] if case.model else self.model

    def prompt_of(self, case: Case) -> dict[str, Any]:
        return {**self.prompt, **case.prompt}

    def protocol_of(self, case: Case) -> dict[str, Any]:
        return {**self.protocol, **case.protocol}

    def batch_sizes_of(self, case: Case, variant: str) -> list[int] | dict[str, Any]:
        """The batch sizes of a case, in the format of scripts/articles/batch_sweep.py."""
        return case.batch_sizes or self.variants[variant].get("batch_sizes") or [self.prompt_of(case)["batch_size"]]

    def load_of(self, case: Case, variant: str, device: str) -> dict[str, Any]:
        """The loading arguments of a case with the variant's dtype; quantised cases keep their own."""
        load = dict(case.load)
        dtype = self.variants[variant].get("dtype")
        if dtype and load["dtype"] != "int8":
            load["dtype"] = dtype
        load.update(case.in_variant.get(variant, {}).get("load", {}))
        if device == "cpu" and load["dtype"] in ("float16", "bfloat16"):
            load["dtype"] = "float32"  # torch before 2.1 has no float16 matrix product on a CPU, and few CPUs have a fast one in bfloat16
        return load

    def loaded_otherwise(self, job: Job) -> str:
        """ "loaded with products cublas; its case now says products ordered" where a case's loading arguments have changed since this job, else "".

        On one device every `device_map` puts the whole model on that device, so a change of `device_map` does not count.
        """
        case = self.case(job.case) if job.variant in self.variants else None
        now = self.load_of(case, job.variant, job.device) if case else job.load
        alike = {"device_map"} if job.device_count == 1 else set()
        names = [name for name in sorted({*job.load, *now} - alike) if job.load.get(name) != now.get(name)]
        told = [", ".join(f"{name} {load.get(name, 'not given')}" for name in names) for load in (job.load, now)]
        return f"loaded with {told[0]}; its case now says {told[1]}" if names else ""

    def options_of(self, case: Case, variant: str, scale: str) -> dict[str, Any]:
        """The options that the form of a case gets: the case's override the variant's, which override the article's."""
        merged = {**self.options, **self.variants[variant].get("options", {}), **case.options}
        tiny_items = merged.pop("tiny_items", None)
        return {**merged, "items": tiny_items} if scale == "tiny" and tiny_items is not None else merged

    def runs_of(self, case: Case, variant: str, scale: str = "full") -> list[dict[str, Any]]:
        """The timed runs of a case: the case's for this variant, else the case's, else the variant's.

        `tiny_new_tokens` of a run is its `new_tokens` at scale tiny.
        """
        runs = []
        for run in case.in_variant.get(variant, {}).get("runs") or case.runs or self.variants[variant].get("runs", []):
            tiny = {"new_tokens": run["tiny_new_tokens"]} if scale == "tiny" and "tiny_new_tokens" in run else {}
            runs.append({name: value for name, value in {**run, **tiny}.items() if name != "tiny_new_tokens"})
        return runs

    def cases_of(self, backend: str) -> list[Case]:
        """The cases of a backend. A backend that the article never ran gets one case without published numbers."""
        cases = [case for case in self.cases if case.backend == backend]
        return cases or [Case(backend, backend, 1, {"dtype": self.variants.get("controlled", {}).get("dtype", "float32")}, note="not in the article")]


def slugs(folder: Path = ARTICLES) -> list[str]:
    """The names of the articles' files, sorted, whatever the files hold."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load_all(folder: Path = ARTICLES) -> dict[str, Article]:
    """Every article by its slug, sorted; raises KitError with the file and the place of a mistake."""
    return {slug: load(slug, folder) for slug in slugs(folder)}


def without_mistakes() -> dict[str, Article]:
    """As load_all, but without articles whose files have mistakes, for commands that these must not stop. Raises KitError as `apart` does."""
    return apart()[0]


def without_mistakes_told() -> dict[str, Article]:
    """As without_mistakes, with a note on each article that is left out."""
    known, left_out = apart()
    for slug, mistake in left_out.items():
        print(printable(f"note: {slug} is left out: {mistake}"), file=sys.stderr)
    return known


def apart() -> tuple[dict[str, Article], dict[str, KitError]]:
    """The articles whose files have no mistake, and {slug: the error of its file} of the others.

    Raises KitError for a mistake in a file that all articles share.
    """
    pins.load(), tolerances()  # first, or a mistake in these files would be reported for every article
    known, left_out = {}, {}
    for slug in slugs():
        try:
            known[slug] = load(slug)
        except KitError as error:
            left_out[slug] = error
    return known, left_out


def load(slug: str, folder: Path = ARTICLES) -> Article:
    """The article of a file; raises KitError with the file and the place of a mistake."""
    path = folder / f"{slug}.toml"
    article = _article(path.read_bytes(), shown(path), (folder.parent / "tolerances.toml").read_bytes())
    if article.slug != slug:  # of two files with one slug, the later would silently replace the earlier
        raise KitError(f'{shown(path)}: slug is {article.slug!r}, allowed is the name of the file; write slug = "{slug}"')
    stacks = pins.load().stacks
    if article.stack not in stacks:
        raise KitError(f'{shown(path)}: stack is {article.stack!r}, allowed are {", ".join(stacks)}; write stack = "{nearest(article.stack, stacks)}"')
    return article


@functools.lru_cache(maxsize=32)  # a command loads the articles in many places, and none of them changes an article
def _article(content: bytes, file: str, bounds: bytes) -> Article:
    return article_of(toml_tables.parsed(content, file), _tolerances(bounds), file)


def tolerances() -> Tolerances:
    """The bounds of the output check for each dtype; raises KitError with the place of a mistake."""
    return _tolerances((ARTICLES.parent / "tolerances.toml").read_bytes())


@functools.cache
def _tolerances(content: bytes) -> Tolerances:
    tables: Tolerances = toml_tables.parsed(content, "tolerances.toml")
    toml_tables.check(tables, Tolerances, "tolerances.toml")
    return tables


def shown(path: Path) -> str:
    """The path of an article's file in errors: relative to the kit's folder for a file in it, else the file's name."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def article_of(data: dict[str, Any], bounds: Tolerances, file: str) -> Article:
    """The article that a file's tables describe; `bounds` are those of the output check. Raises KitError with the file and the place of a mistake."""
    toml_tables.check(data, Article, file)
    article = Article(**{**data, "cases": [Case(**case) for case in data["cases"]]})
    references.check(article, bounds, file)
    return article


def find(slug: str) -> Article:
    """The article with this slug, even where other articles' files have mistakes; raises UsageError with the known slugs."""
    known = slugs()
    if slug not in known:
        raise UsageError(f"ARTICLE is {slug!r}, allowed are {', '.join(known)}; try ARTICLE={nearest(slug, known)}")
    return load(slug)
