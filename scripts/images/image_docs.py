"""Generated sections of docker/README.md: the record of the last full build, and known advisories with the stacks that they concern."""

from collections.abc import Iterable, Mapping

from packaging.version import Version

from scripts import toml_tables
from scripts.images import inventory, marked_sections
from scripts.pins import Pins
from scripts.toml_tables import Table

PATH = "docker/README.md"
ADVISORIES = "docker/advisories.toml"


class Advisory(Table):
    """A fault of a package from the version `since` on, which `fixed_in` no longer has."""

    id: str
    package: str
    fixed_in: str
    what: str
    since: str = "0"


class Advisories(Table):
    written: str
    advisory: list[Advisory]


def put_in(text: str, loaded: Pins) -> str:
    """docker/README.md with these sections written anew; raises KitError where a marker is missing."""
    for name, lines in (("images", inventory.record_lines(loaded)), ("advisories", advisory_lines(loaded))):
        text = marked_sections.put_between(PATH, text, name, "".join(f"{line}\n" for line in lines))
    return text


def advisory_lines(loaded: Pins) -> list[str]:
    """A table of the advisories that concern at least one image, with the locked versions."""
    listed = toml_tables.read(loaded.root / ADVISORIES)
    toml_tables.check(listed, Advisories, ADVISORIES)
    locks = [(image.stack, image.locked()) for image in loaded.images()]
    rows = []
    for advisory in listed["advisory"]:
        held = affected(locks, advisory["package"], advisory.get("since", "0"), advisory["fixed_in"])
        if held:
            where = "; ".join(f"{version} in {', '.join(stacks)}" for version, stacks in held.items())
            rows.append(f"| {advisory['id']} | {advisory['package']} below {advisory['fixed_in']} | {advisory['what']} | {where} |")
    return [f"As of {listed['written']}; written by hand, not a scan.", "", "| advisory | package | what | held |", "|---|---|---|---|", *rows]


def affected(locks: Iterable[tuple[str, Mapping[str, str]]], package: str, since: str, fixed_in: str) -> dict[str, list[str]]:
    """{version: stacks} of a package's locked versions from `since` on and below `fixed_in`; `locks` are each image's stack and its packages."""
    by_version: dict[str, dict[str, None]] = {}
    for stack, versions in locks:
        version = versions.get(package)
        if version and Version(since) <= Version(version) < Version(fixed_in):
            by_version.setdefault(version, {})[stack] = None
    return {version: list(stacks) for version, stacks in by_version.items()}
