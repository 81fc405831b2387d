"""Which cases of an article run, in which variants, batch sizes and order; scripts/run/rounds.py runs them."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scripts import articles, pins
from scripts.articles import Article, Case, batch_sweep, references
from scripts.errors import UsageError
from scripts.names import nearest
from scripts.run import claimed
from scripts.run.options import Options, typed_with_make
from scripts.run.runner import Planned


def able(backends: list[str], stack: str, known: pins.Pins, typed: str, chosen: Callable[[str], Sequence[Case]]) -> list[str]:
    """The backends to run; `typed` is the value of STACK.

    Backends without an image of the stack are left out, with a note where any of their cases is `chosen`. Raises UsageError where no backend has one.
    """
    with_image = [backend for backend in backends if stack in known.backends[backend]["stacks"]]
    if not with_image:
        known.image(backends[0], stack, typed)  # raises UsageError with the stacks that it has
    for backend in backends:
        if backend not in with_image and chosen(backend):
            stacks = ", ".join(known.backends[backend]["stacks"])
            print(f"note: {backend} is left out: it has no image of the stack {stack}, only of {stacks}", file=sys.stderr)
    return with_image


def variants_of(article: Article, case: Case, typed: str, every: bool) -> list[str]:
    """The typed variant; else all for a whole article; for a single bench the published one where the article has a number, else the controlled one."""
    of_case = article.variants_of(case)
    if typed:
        if typed not in article.variants:
            raise UsageError(f"VARIANT is {typed!r}, {article.slug} has {', '.join(article.variants)}; try VARIANT={nearest(typed, article.variants)}")
        return [typed] if typed in of_case else []
    if every or len(of_case) == 1:
        return of_case
    return [articles.PUBLISHED] if case.published and articles.PUBLISHED in article.variants else ["controlled"]


def batch_sizes_of(article: Article, case: Case, variant: str, asked: Options) -> Sequence[int] | Mapping[str, Any]:
    """Those that CLAIMS compares, else the typed ones, else the case's own; a case with only one batch size of its own keeps it whatever BATCH_SIZES says."""
    if of_claims := claimed.sizes(article, case, asked):
        return of_claims
    if asked.batch_sizes and not (isinstance(case.batch_sizes, list) and len(case.batch_sizes) == 1):
        return asked.batch_sizes
    own = article.batch_sizes_of(case, variant)
    return batch_sweep.on_cpu(own) if asked.device == "cpu" else own


def tell_kept_sizes(planned: Sequence[Planned], asked: Options) -> None:
    """Print which cases keep a batch size of their own whatever BATCH_SIZES says; raises UsageError where all do."""
    if not asked.batch_sizes:
        return
    sizes = {one.case.name: batch_sizes_of(one.article, one.case, one.variant, asked) for one in planned}
    kept = [f"{name} ({', '.join(map(str, own))})" for name, own in sizes.items() if set(own) != set(asked.batch_sizes)]
    typed = ",".join(map(str, asked.batch_sizes))
    if len(kept) == len(sizes):
        raise UsageError(f"BATCH_SIZES is {typed}, and no case uses it, because each keeps its own batch size: {', '.join(kept)}; leave BATCH_SIZES out")
    if kept:
        print(f"note: BATCH_SIZES={typed} leaves cases with a batch size of their own as they are: {', '.join(kept)}", file=sys.stderr)


def refuse_unknown_backends(backends: Sequence[str], verb: str = "bench") -> None:
    """Raise UsageError for the first name that is no backend's; `verb` is that of the command which the error proposes."""
    known = list(pins.load().backends)
    for backend in backends:
        if backend not in known:
            raise UsageError(f"there is no backend {backend!r}, allowed are {', '.join(known)}; try make {verb}-{nearest(backend, known)}")


def plan(backends: list[str], asked: Options, every: bool, verb: str = "bench") -> list[Planned]:
    """The cases to run, backend after backend, those of a backend in the article's order, each in its variants. Raises UsageError where none is left.

    `verb` is that of the commands which an error proposes.
    """
    known = pins.load()
    refuse_unknown_backends(backends, verb)
    for backend in backends:
        references.check_module(backend)
    article = articles.find(asked.article or "inference-tools")
    for case in (case for backend in backends for case in article.cases_of(backend)):
        references.check_form(case, f"case {case.name}")  # a case that stands in no article's file was not checked yet
    unknown = sorted(set(asked.cases) - {case.name for case in article.cases})
    if unknown:
        raise UsageError(_no_case(unknown[0], backends, article, asked, verb))
    if elsewhere := _of_other_backends(backends, article, asked, verb):
        raise UsageError(elsewhere)
    claimed.note_untested(article, asked)

    def chosen(backend: str) -> list[Case]:
        cases = [case for case in article.cases_of(backend) if not asked.cases or case.name in asked.cases]
        return [case for case in cases if claimed.compares(article, case, asked)]

    stack = article.stack if asked.stack == "article" else asked.stack
    planned = [
        Planned(article, case, variant, stack)
        for backend in able(backends, stack, known, asked.stack, chosen)
        for case in chosen(backend)
        for variant in variants_of(article, case, asked.variant, every)
        if claimed.in_variant(article, case, variant, asked)
    ]
    if not planned:
        raise UsageError(_nothing_left(backends, article, asked, known, verb))
    _note_without_variant(planned, article, asked)
    if asked.items and not any("items" in article.options_of(case.case, case.variant, asked.scale) for case in planned):
        raise UsageError(_no_workload(article, asked))
    return planned


def _with_cases_of(backend: str, cases: tuple[str, ...], asked: Options, verb: str) -> str:
    """The command that was typed, on these cases of a backend."""
    return f"make {verb}-{backend}{typed_with_make(dataclasses.replace(asked, cases=cases))}"


def _no_case(typed: str, backends: Sequence[str], article: Article, asked: Options, verb: str) -> str:
    """The error for an unknown case: the article's cases, and the command for the nearest one, which is preferably of these backends."""
    own = sorted(article.cases, key=lambda case: case.backend not in backends)
    meant = nearest(typed, [case.name for case in own])
    (backend,) = {case.backend for case in article.cases if case.name == meant}
    better = f"CASES={meant}" if backend in backends else _with_cases_of(backend, (meant,), asked, verb)
    return f"CASES names {typed!r}, {article.slug} has {', '.join(case.name for case in article.cases)}; try {better}"


def _of_other_backends(backends: Sequence[str], article: Article, asked: Options, verb: str) -> str:
    """The error for typed cases that a command would leave out because they are of another backend, with the command to type; "" where it takes all or none."""
    backend_of = {case.name: case.backend for case in article.cases if case.name in asked.cases}
    own = tuple(name for name in asked.cases if backend_of[name] in backends)
    others = [name for name in asked.cases if name not in own]
    if not own or not others:
        return ""
    # bench can take all backends; a verb that takes one backend needs a command for each.
    every = _with_cases_of("all", asked.cases, asked, verb) if verb == "bench" else _with_cases_of(backend_of[others[0]], (others[0],), asked, verb)
    kept = f"CASES={','.join(own)}"
    return f"CASES names {others[0]!r}, a case of {backend_of[others[0]]}, and {verb}-{backends[0]} takes only its own cases; try {kept}, or {every}"


def _note_without_variant(planned: Sequence[Planned], article: Article, asked: Options) -> None:
    """Name each typed case that is left out because it lacks VARIANT; the article's other cases were not typed and need no note."""
    names = {one.case.name for one in planned}
    for case in article.cases:
        allowed = article.variants_of(case)
        if asked.variant and case.name in asked.cases and case.name not in names and asked.variant not in allowed:
            print(f"note: {case.name} is left out: it has no variant {asked.variant}, only {', '.join(allowed)}", file=sys.stderr)


def _no_workload(article: Article, asked: Options) -> str:
    """Why ITEMS would be ignored, and which cases of the article read it."""
    reading = [case.name for case in article.cases if any("items" in article.options_of(case, variant, asked.scale) for variant in article.variants)]
    if not reading:
        return f"ITEMS is {asked.items}, which only workloads read, and {article.slug} has none; leave ITEMS out"
    return f"ITEMS is {asked.items}, which only the workloads of {article.slug} read: {', '.join(reading)}; try CASES={reading[0]}, or leave ITEMS out"


def _nothing_left(backends: Sequence[str], article: Article, asked: Options, known: pins.Pins, verb: str) -> str:
    """Why no case of these backends fits CASES, VARIANT and STACK, and what fits."""
    chosen = {"CASES": ",".join(asked.cases), "CLAIMS": ",".join(asked.claims), "VARIANT": asked.variant or "", "STACK": asked.stack}
    typed = " ".join(f"{name}={value}" for name, value in chosen.items() if value and value != "article")
    every = [case for backend in backends for case in article.cases_of(backend)]
    named = asked.cases or article.rows_of_claims(asked.claims)
    cases = [case for case in every if case.name in named] or every
    stacks = {case.name: known.backends[case.backend]["stacks"] for case in cases}
    fitting = [f"{case.name} (VARIANT {', '.join(article.variants_of(case))}; STACK {', '.join(stacks[case.name])})" for case in cases]
    of = backends[0] if len(backends) == 1 else article.slug
    allowed = "; ".join(fitting) or "cases of other backends only"
    return f"no case of {of} fits {typed}; allowed are {allowed}{_what_fits(backends, article, asked, cases, verb)}"


def _what_fits(backends: Sequence[str], article: Article, asked: Options, cases: Sequence[Case], verb: str) -> str:
    """The end of an error that names a command which runs one of these `cases`, or a typed case of another backend; "" where none is known."""
    if asked.claims:
        claims, compared = ",".join(asked.claims), ", ".join(article.rows_of_claims(asked.claims))
        return f"; CLAIMS={claims} compares {compared}; try make article-{article.slug} CLAIMS={claims}"
    elsewhere = next((case for case in article.cases if case.name in asked.cases and case.backend not in backends), None)
    if elsewhere:
        return f"; try {_with_cases_of(elsewhere.backend, (elsewhere.name,), asked, verb)}"
    return f"; try VARIANT={article.variants_of(cases[0])[0]}" if cases and asked.variant else ""


def groups(planned: Sequence[Planned]) -> list[list[Planned]]:
    """The cases that a claim rests on, then the other cases; all runs of the first group come before those of the second."""
    by_weight: dict[bool, list[Planned]] = {True: [], False: []}
    for case in planned:
        by_weight[case.article.claims_rest_on(case.case)].append(case)
    return [group for group in by_weight.values() if group]


#: The batch sizes that a case runs in, and a function that gives the planned case for one of them.
Sized = tuple[Sequence[int] | Mapping[str, Any], Callable[[int], Planned]]


def sizes_and_sized(planned: Planned, asked: Options) -> Sized:
    """The batch sizes of a case, and the planned case for each. A row's title leaves out the article's only size."""
    sizes = batch_sizes_of(planned.article, planned.case, planned.variant, asked)
    if sizes == [planned.article.prompt_of(planned.case)["batch_size"]]:
        return sizes, lambda size: planned
    return sizes, lambda size: dataclasses.replace(planned, batch_size=size)
