"""The article's setting, as the kit pins it, beside that of a group's rows: GPUs, weights, variant, calls, versions, base image, settings between GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scripts import pins
from scripts.articles import PUBLISHED, Article
from scripts.errors import KitError
from scripts.pins import Image
from scripts.pins.requirement_files import normalized, same_version
from scripts.report.cells import NONE
from scripts.report.tables import Column, table
from scripts.report.text import Markdown, anchor, blocks, code
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group, on_counts

#: What stands in place of a version where one side has the package and the other has not.
ABSENT = "not installed"

#: The article's side for settings that no article tells.
NOT_TOLD = "not told"


@dataclass(frozen=True)
class Line:
    what: str
    article: object
    rows: object


def is_told(article: Article | None) -> bool:
    """Has the article a setting that rows may differ from? The demo and the calibration have none."""
    return article is not None and bool(article.claims or article.hardware)


def place(group: Group) -> str:
    """The anchor of the section."""
    return f"apart-{group.slug}"


def section(group: Group, article: Article | None, between_gpus: Sequence[str]) -> Markdown:
    """A line for each difference, and what is equal; `between_gpus` are the results' settings between GPUs, which no article tells."""
    if article is None or not is_told(article):
        return Markdown()
    packages, equal = _packages(group, article)
    told = [Line("settings between GPUs", NOT_TOLD, code(" ".join(between_gpus)))] if between_gpus else []
    differing = [*(line for line in _machine(group, article) if str(line.article) != str(line.rows)), *packages, *_base(group, article), *told]
    columns = [
        Column[Line]("what", lambda line: line.what, words=True),
        Column[Line]("the article, as the kit pins it", lambda line: line.article, words=True),
        Column[Line]("these rows", lambda line: line.rows, words=True),
    ]
    words = Markdown("All else that is pinned for these backends is equal: {}." if differing else "All that is pinned for these backends is equal: {}.")
    alike = words.format(", ".join(equal)) if equal else Markdown()
    return blocks(anchor(place(group)), Markdown("## What differs from the article's setting"), _sides(group, article), table(columns, differing), alike)


def _sides(group: Group, article: Article) -> Markdown:
    """What the two columns are."""
    of_rows = group.key.stack
    is_port = _stack(of_rows).get("port_of") == article.stack
    ran_on = "the same stack" if of_rows == article.stack else f"{of_rows}, a port of it to a newer torch" if is_port else of_rows
    words = Markdown("The article's side is the stack {} of docker/pins.toml, which tells of each version whether the article names it. These rows ran on {}.")
    return words.format(article.stack, ran_on)


def _stack(name: str) -> Mapping[str, object]:
    return pins.load().stacks.get(name, {})


def _pinned(stack: str, table_name: str) -> str:
    """ "3.8": the version of a stack's Python or base image; "" where the kit no longer knows the stack."""
    pin = _stack(stack).get(table_name)
    return str(pin["version"]) if isinstance(pin, Mapping) else ""


def _machine(group: Group, article: Article) -> Iterator[Line]:
    """The lines on everything but packages and the base image."""
    yield Line("GPUs", _gpus_of_article(group, article), _gpus(group))
    names = _listed(article.model_of(case)["name"] for row in group.rows if (case := article.case(row.case)))
    shown = names if group.key.weights == "hub" else f"{group.key.weights} weights"
    yield Line("weights", names, shown + (f", {group.key.scale} model" if group.key.scale != "full" else ""))
    if group.key.variant != PUBLISHED:
        note = article.variants.get(group.key.variant, {}).get("note")
        yield Line("variant", PUBLISHED, group.key.variant + (f": {note}" if note else ""))
    yield from _calls(group, article)
    yield Line("Python", _pinned(article.stack, "python") or NONE, _listed(_python(row) for row in group.rows))
    yield Line("CUDA of torch", _stack(article.stack).get("cuda") or NONE, _listed(_cuda(row) for row in group.rows))


def _calls(group: Group, article: Article) -> Iterator[Line]:
    """The lines on rows for which TIMED_RUNS or ITEMS set another number than the article's."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in group.rows:
        job, case = row.record.job, article.case(row.case)
        if case is None or job.variant not in article.variants:
            continue
        items = article.options_of(case, job.variant, job.model["scale"]).get("items"), job.options.get("items")
        for what, theirs, ours in (("timed calls of a run", article.protocol_of(case)["timed_runs"], job.timed_runs), ("texts of a workload", *items)):
            if theirs != ours and None not in (theirs, ours):
                found.setdefault((what, f"{theirs:,}", f"{ours:,}"), {})[row.case] = None
    for (what, theirs, ours), cases in found.items():
        yield Line(f"{what} ({', '.join(cases)})", theirs, ours)


def _listed(values: Iterable[str]) -> str:
    """The different values, in their order."""
    return ", ".join(dict.fromkeys(filter(None, values))) or NONE


def _gpus_of_article(group: Group, article: Article) -> str:
    """ "1 and 8 × NVIDIA RTX A6000": on how many GPUs the article ran these rows' cases; all its GPUs where it has numbers for none of them."""
    hardware = article.hardware
    if not hardware:
        return NONE
    counts = {case.gpus for row in group.rows if (case := article.case(row.case)) and case.published}
    return on_counts(counts or {hardware["gpus"]}, hardware["gpu"])


def _gpus(group: Group) -> str:
    """ "1 and 2 × NVIDIA H200"; a single GPU has its number too, as on the article's side."""
    if group.key.device == "cpu":
        return f"none, {group.key.model}"
    return on_counts((row.count for row in group.rows), group.key.model)


def _python(row: Row) -> str:
    """ "3.11": the run's version, with as many digits as a pin has; the pinned one where the run tells none."""
    told = str(row.environment.get("python") or "")
    return ".".join(told.split(".")[:2]) or _pinned(row.record.job.stack, "python")


def _cuda(row: Row) -> str:
    told = (row.environment.get("torch") or {}).get("cuda")
    return str(told or _stack(row.record.job.stack).get("cuda") or "")


def _packages(group: Group, article: Article) -> tuple[list[Line], list[str]]:
    """The packages whose versions differ, and the names of those that are equal in all rows; a line about some of the rows names their cases."""
    found: dict[str, dict[tuple[str, str], dict[str, None]]] = {}
    for row in group.rows:
        backend = row.record.job.backend
        # A backend that the article's stack lacks is compared with that stack's own pins.
        own, here = _image(backend, article.stack) or pins.load().plain(article.stack), _image(backend, group.key.stack)
        of_article, of_row = _locked(own), _installed(row) or _locked(here)
        pinned = dict.fromkeys(normalized(name) for image in (own, here) if image for name in image.pins)
        for name in pinned:
            pair = _version(of_article, name), _version(of_row, name)
            if pair != (ABSENT, ABSENT):
                found.setdefault(name, {}).setdefault(pair, {})[row.case] = None
    differing, equal = [], []
    for name, pairs in found.items():
        for (theirs, ours), cases in pairs.items():
            if not same_version(theirs, ours):
                differing.append(Line(name if len(pairs) == 1 else f"{name} ({', '.join(cases)})", theirs, ours))
        if all(same_version(*pair) for pair in pairs):
            equal.append(f"{name} {_listed(theirs for theirs, _ in pairs)}")
    return differing, equal


def _version(versions: Mapping[str, str], name: str) -> str:
    """A package's version; a dash where nothing is known about a side, which is not the same as a side without the package."""
    return versions.get(name, ABSENT if versions else NONE)


def _image(backend: str, stack: str) -> Image | None:
    """None where the kit has no such image, or has it no longer."""
    loaded = pins.load()
    return loaded.image(backend, stack) if stack in loaded.backends.get(backend, {}).get("stacks", ()) else None


def _locked(image: Image | None) -> Mapping[str, str]:
    """{package: version} of an image, by its lock: one stack's pins may name a package that the other stack's leave to be resolved."""
    if image is None:
        return {}
    try:
        return image.locked()
    except KitError:  # pins that were not yet locked
        return {normalized(name): pin.version for name, pin in image.pins.items()}


def _installed(row: Row) -> Mapping[str, str]:
    """What the run found installed: an environment without containers may differ from its stack's pins."""
    return {normalized(name): str(version).partition("+")[0] for name, version in row.packages.items()}


def _base(group: Group, article: Article) -> Iterator[Line]:
    """The base image, where it is another one or a stand-in."""
    own, here = _pinned(article.stack, "base") or NONE, _pinned(group.key.stack, "base") or NONE
    on_stand_in = [row.is_on_stand_in for row in group.rows]
    if group.key.engine == "host":
        yield Line("base image", own, "none, without containers")
    elif any(on_stand_in):
        yield Line("base image", own, f"a stand-in for {here}" if all(on_stand_in) else f"{here}, for some rows a stand-in")
    elif own != here:
        yield Line("base image", own, here)
