"""Check the names in an article's file: the backends, forms, options, variants, models and cases must exist."""

import os
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench import backends, forms, modules
from bench.models import weights
from scripts import toml_tables
from scripts.articles import batch_sweep
from scripts.errors import KitError
from scripts.paths import ROOT

if TYPE_CHECKING:
    from scripts.articles.model import Article, Case

#: {an argument of `generate` that counts tokens, sequences or beams: its least value}.
COUNTS = {"max_length": 1, "max_new_tokens": 1, "min_length": 0, "min_new_tokens": 0, "num_beams": 1, "num_return_sequences": 1}

#: Keys of a relation that name cases.
ROLES = ("faster", "slower", "fastest", "slowest", "case", "single", "batched", "gains_more_than")

#: The variant with the article's own arguments; it judges every claim of which it has all cases.
PUBLISHED = "published"

#: The variants that an article may have.
VARIANTS = (PUBLISHED, "controlled")

#: The option that replaces `items` at scale tiny; the kit reads it before the form gets its options.
TINY = "tiny_items"


#: Keys of a relation that name one batch size each.
SIZES = ("batch_size", "from_batch", "to_batch")


def check(article: "Article", tolerances: Mapping[str, Any], file: str) -> None:
    """Raise KitError, with the file and the place, for the first unknown name."""
    _each_once(file, "case", [case.name for case in article.cases])
    for place, model in {"model": article.model, **{f"models.{name}": model for name, model in article.models.items()}}.items():
        _model(model, f"{file}, [{place}]")
    for variant, table in article.variants.items():
        _known(variant, VARIANTS, f"{file}: variant")
        _batch_sizes(table.get("batch_sizes"), f"{file}, [variants.{variant}]")
        _dtype(tolerances, table, f"{file}, [variants.{variant}]")
    for case in article.cases:
        _case(article, case, tolerances, file)
    shared = [forms.find(case.form) for case in article.cases]
    _options(article.options, shared, file, "options")
    for variant, table in article.variants.items():
        _options(table.get("options", {}), shared, file, f"variants.{variant}.options")
    _claims(article, file)


def _model(model: Mapping[str, Any], where: str) -> None:
    """Raise KitError for a model that the guest cannot build; otherwise the mistake would show only in a job, after its image is built."""
    _known(model["shape"], weights.SHAPES, f"{where}: shape")
    of_shape = weights.SHAPES[model["shape"]]["model_type"]
    if model["architecture"] != of_shape:
        raise KitError(f'{where}: architecture is {model["architecture"]!r}, the shape {model["shape"]} has {of_shape!r}; write architecture = "{of_shape}"')


def _case(article: "Article", case: "Case", tolerances: Mapping[str, Any], file: str) -> None:
    place = f"cases[{case.name}]"
    where = f"{file}, [{place}]"
    _known(case.model or None, article.models, f"{where}: model")
    for variant in [*(case.variants or []), *case.in_variant]:
        _known(variant, article.variants, f"{where}: variant")
    for variant in article.variants_of(case):
        runs = article.runs_of(case, variant)
        if not runs:
            raise KitError(f"{where}: neither the case nor the variant {variant!r} says how many new tokens a call makes; give either of them runs")
        for run in runs:
            _arguments(run["arguments"], f"{where}, variant {variant}")
    _batch_sizes(case.batch_sizes, where)
    form, backend = _module(forms.find, case.form, where), _module(backends.find, case.backend, where)
    check_form(case, where)
    _options(case.options, [form], file, f"{place}.options")
    _values(article, case, form, where)
    allowed = backends.arguments(backend)
    if "dtype" not in case.load:
        raise KitError(f"{where}: load names no dtype; allowed are {', '.join(tolerances)}")
    loads = {"load": case.load, **{f"in_variant.{name}.load": table.get("load", {}) for name, table in case.in_variant.items()}}
    for name, load in loads.items():
        for key in load:
            if key not in allowed:
                raise toml_tables.unknown(file, f"{place}.{name}", key, allowed)
        _dtype(tolerances, load, f"{file}, [{place}.{name}]")
        if mistake := backends.mistake_in(backend, load):
            raise KitError(f"{file}, [{place}.{name}]: {mistake}")


def check_form(case: "Case", where: str) -> None:
    """Raise KitError for a case whose form needs more than its backend gives."""
    reason = forms.refusal(case.form, case.backend)
    if reason:
        raise KitError(f"{where}: {reason}")


def check_module(backend: str) -> None:
    """Raise KitError for a backend of docker/pins.toml that has no module; no article names it, so `check` did not see it."""
    _module(backends.find, backend, f"docker/pins.toml, [backend.{backend}]")


def _module(find: Any, name: str, where: str) -> ModuleType:
    try:
        module: ModuleType = find(name)
    except modules.WrongModule as error:
        raise KitError(f"{where}: {error}") from error
    except ImportError as error:
        raise KitError(f"{where}: a module of a backend or a form imports its libraries inside its functions: {error}") from error
    except Exception as error:
        if isinstance(error, SyntaxError) and error.filename:  # the error of a null byte names no file
            raise KitError(f"{where}: {os.path.relpath(error.filename, ROOT)}, line {error.lineno}: {error.msg}; correct this line") from error
        raise KitError(f"{where}: the module of {name!r} cannot be imported: {type(error).__name__}: {error}; correct it") from error
    return module


def _known(name: str | None, allowed: Iterable[str], where: str) -> None:
    if name is not None and name not in allowed:
        raise KitError(f"{where} {name!r} is unknown, known are {', '.join(allowed) or 'none'}")


def _dtype(tolerances: Mapping[str, Any], table: Mapping[str, Any], where: str) -> None:
    """Raise KitError for a dtype without bounds in bench/tolerances.toml: the output check could not judge it."""
    _known(table.get("dtype"), tolerances, f"{where}: dtype")


def _each_once(file: str, kind: str, names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise KitError(f"{file}: the {kind} {twice!r} is there twice; give each {kind} a name of its own")


def _arguments(arguments: Mapping[str, Any], where: str) -> None:
    """Raise KitError for a wrong count among `generate`'s arguments; otherwise the mistake would show only in a job, after its model is loaded."""
    for name, least in COUNTS.items():
        value = arguments.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise KitError(f"{where}: {name} is {value!r}, allowed is a whole number from {least}")


def _batch_sizes(sizes: Any, where: str) -> None:
    mistake = "" if sizes is None else batch_sweep.mistake_in(sizes)
    if mistake:
        raise KitError(f"{where}: {mistake}")


def _options(options: Mapping[str, Any], modules: Iterable[ModuleType], file: str, place: str) -> None:
    """Raise KitError for an option that none of these forms reads."""
    allowed: dict[str, tuple[str, ...]] = {}
    for module in modules:
        allowed |= forms.options(module)
    names = [*allowed, *([TINY] if "items" in allowed else [])]
    for key, value in options.items():
        if key not in names:
            raise toml_tables.unknown(file, place, key, names)
        for inner in value if isinstance(value, dict) else ():
            if inner not in allowed.get(key, ()):
                raise toml_tables.unknown(file, f"{place}.{key}", inner, allowed.get(key, ()))


def _values(article: "Article", case: "Case", form: ModuleType, where: str) -> None:
    """Raise KitError for an option's value that the form cannot use; otherwise the mistake would show only in a job, after its model is loaded."""
    for variant in article.variants_of(case):
        for scale in ("full", "tiny"):
            if mistake := forms.mistake_in(form, article.options_of(case, variant, scale)):
                raise KitError(f"{where}: {mistake}" + (", at SCALE=tiny" if scale == "tiny" else ""))


def _claims(article: "Article", file: str) -> None:
    _each_once(file, "claim", [claim["id"] for claim in article.claims])
    known = sorted(case.name for case in article.cases)
    for claim in article.claims:
        where = f"{file}: claim {claim['id']}"
        for relation in claim["relations"]:
            for name in cases_of(relation):
                _known(name, known, f"{where}: case")
                _all_at_once(article, name, where)
            for name, size in rows_of(relation):
                _has_row(article, name, size, claim.get("new_tokens"), where)


def _all_at_once(article: "Article", name: str, where: str) -> None:
    """Raise KitError for a case whose items arrive over time: its rate is that of the arrivals."""
    case = article.case(name)
    if (
        case
        and "arrivals_per_s" in forms.options(forms.find(case.form))
        and any(article.options_of(case, variant, "full").get("arrivals_per_s") for variant in article.variants_of(case))
    ):
        raise KitError(f"{where}: the items of case {name!r} arrive over time, so its rate is not the system's; name a case without arrivals_per_s")


def _has_row(article: "Article", name: str, batch_size: int | None, new_tokens: int | None, where: str) -> None:
    """Raise KitError for a row of a claim that no variant of its case runs: the claim would stay *not tested* for ever."""
    case = article.case(name)
    if case is None:
        return
    variants = article.variants_of(case)
    sizes = [article.batch_sizes_of(case, variant) for variant in variants]
    listed = [of_variant for of_variant in sizes if not isinstance(of_variant, Mapping)]
    if len(listed) == len(sizes):  # a sweep may reach any size
        _among(batch_size, {size for of_variant in listed for size in of_variant}, f"{where}: {name} has no batch size")
    if forms.times_runs(forms.find(case.form)):
        made = {run["new_tokens"] for variant in variants for run in article.runs_of(case, variant)}
        _among(new_tokens, made, f"{where}: {name} has no run of new_tokens =")


def _among(number: int | None, allowed: set[int], words: str) -> None:
    if number is not None and number not in allowed:
        raise KitError(f"{words} {number}, allowed are {', '.join(map(str, sorted(allowed)))}; correct the claim, or give the case such a row")


def cases_of(relation: Mapping[str, Any]) -> Iterator[str]:
    """The names of the cases that a claim's relation compares; a key whose value is None counts as not given."""
    yield from (relation[role] for role in ROLES if relation.get(role) is not None)
    yield from relation.get("than") or []


def rows_of(relation: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """(case, batch size) of each row that a claim's relation compares; None where the relation names no batch size."""
    sizes = relation.get("batch_sizes") or [relation[key] for key in SIZES if relation.get(key) is not None] or [None]
    return [(case, size) for case in cases_of(relation) for size in sizes]
