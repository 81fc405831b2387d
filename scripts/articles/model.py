"""The articles as data: bench/articles/*.toml into dataclasses. Cases, published numbers and claims live there alone."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts import toml_tables
from scripts.articles import references, shapes
from scripts.errors import UsageError
from scripts.paths import ROOT

ARTICLES = ROOT / "bench" / "articles"


@dataclass(frozen=True)
class Case:
    """One row of an article's table.

    form          how the model is called: a module of bench/forms
    options       what that form wants to know, over what the variant and the article say; `tiny_items` is `items` at scale tiny
    batch_sizes   a list, or {from, until = "oom", within}; over what the variant says (scripts/articles/batch_sweep.py); the article's own
                  prompt.batch_size where neither says anything
    variants      those that the case is run in, all where it names none
    runs          in place of the variant's
    published     {metric: number}, or {metric: {batch size: number}}; None where the article has no number for it
    prompt        what differs from the article's prompt
    protocol      what differs from the article's protocol
    in_variant    {variant: {load, runs}}: what differs in one variant, over the case's and the variant's
    """

    name: str
    backend: str
    gpus: int
    load: dict[str, Any]
    model: str = ""
    note: str = ""
    published: dict[str, Any] | None = None
    form: str = "generate"
    options: dict[str, Any] = field(default_factory=dict)
    batch_sizes: list[int] | dict[str, Any] | None = None
    prompt: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    variants: list[str] | None = None
    in_variant: dict[str, Any] = field(default_factory=dict)

    def published_at(self, metric: str, batch_size: int) -> float | None:
        """The article's number for a batch size; a number without batch sizes is for whichever the article ran."""
        value = (self.published or {}).get(metric)
        return value.get(str(batch_size)) if isinstance(value, dict) else value


@dataclass(frozen=True)
class Article:
    slug: str
    title: str
    stack: str
    model: dict[str, Any]
    prompt: dict[str, Any]
    protocol: dict[str, Any]
    variants: dict[str, Any]
    cases: list[Case]
    tolerances: dict[str, Any]
    date: str = ""
    measured: str = ""
    caveat: str = ""
    references: list[str] = field(default_factory=list)
    hardware: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    claims: list[dict[str, Any]] = field(default_factory=list)

    def case(self, name: str) -> Case | None:
        """The case of a name; None for one that the article does not have, or has no more."""
        return next((case for case in self.cases if case.name == name), None)

    def claims_rest_on(self, case: Case) -> bool:
        """Does any claim compare this case with another, or say something of it?"""
        return any(case.name in references.cases_of(relation) for claim in self.claims for relation in claim["relations"])

    def model_of(self, case: Case) -> dict[str, Any]:
        """The model that a case runs: the article's own unless the case names another."""
        return self.models[case.model] if case.model else self.model

    def prompt_of(self, case: Case) -> dict[str, Any]:
        return {**self.prompt, **case.prompt}

    def protocol_of(self, case: Case) -> dict[str, Any]:
        return {**self.protocol, **case.protocol}

    def batch_sizes_of(self, case: Case, variant: str) -> list[int] | dict[str, Any]:
        """The batch sizes that a case is run with, as scripts/articles/batch_sweep.py takes them."""
        return case.batch_sizes or self.variants[variant].get("batch_sizes") or [self.prompt_of(case)["batch_size"]]

    def options_of(self, case: Case, variant: str, scale: str) -> dict[str, Any]:
        """What the form of a case gets to know: the article's options, over them the variant's, over them the case's."""
        merged = {**self.options, **self.variants[variant].get("options", {}), **case.options}
        tiny_items = merged.pop("tiny_items", None)
        return {**merged, "items": tiny_items} if scale == "tiny" and tiny_items else merged

    def runs_of(self, case: Case, variant: str, scale: str = "full") -> list[dict[str, Any]]:
        """The calls that a case is timed on: its own for this variant, else its own, else the variant's.

        `tiny_new_tokens` of a run is its `new_tokens` at scale tiny.
        """
        runs = []
        for run in case.in_variant.get(variant, {}).get("runs") or case.runs or self.variants[variant].get("runs", []):
            tiny = {"new_tokens": run["tiny_new_tokens"]} if scale == "tiny" and "tiny_new_tokens" in run else {}
            runs.append({name: value for name, value in {**run, **tiny}.items() if name != "tiny_new_tokens"})
        return runs

    def cases_of(self, backend: str) -> list[Case]:
        """The cases of a backend. One that the article never ran has a case of its own here, without published numbers."""
        own = [case for case in self.cases if case.backend == backend]
        return own or [Case(backend, backend, 1, {"dtype": self.variants.get("controlled", {}).get("dtype", "float32")}, note="not in the article")]


def load_all(folder: Path = ARTICLES) -> dict[str, Article]:
    """Every article by its slug, sorted; raises KitError naming the file and the place that is not valid."""
    path = folder.parent / "tolerances.toml"
    tolerances = toml_tables.read(path)
    toml_tables.check(tolerances, shapes.Tolerances, path.name)
    articles = [article_of(toml_tables.read(path), tolerances, path.name) for path in sorted(folder.glob("*.toml"))]
    return {article.slug: article for article in articles}


def article_of(data: dict[str, Any], tolerances: dict[str, Any], file: str) -> Article:
    """The article that a file's tables describe; raises KitError naming the file and the place that is not valid."""
    toml_tables.check(data, shapes.Article, file)
    cases = [Case(**case) for case in data["cases"]]
    article = Article(**{**data, "cases": cases, "tolerances": tolerances})
    references.check(article, file)
    return article


def find(slug: str) -> Article:
    """The article of a slug; raises UsageError naming those there are."""
    articles = load_all()
    if slug not in articles:
        raise UsageError(f"ARTICLE is {slug!r}, allowed are {', '.join(articles)}; try `make article-{next(iter(articles))}`")
    return articles[slug]
