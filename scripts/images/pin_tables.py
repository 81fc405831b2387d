"""The tables of pins in docker/README.md, between two marker lines."""

from scripts.images import marked_sections
from scripts.pins import Pin, Pins


def put_in(page: str, loaded: Pins) -> str:
    """docker/README.md with its tables of pins written anew; raises KitError where the markers are missing."""
    return marked_sections.put_between("docker/README.md", page, "pins", tables(loaded))


def tables(loaded: Pins) -> str:
    """Markdown tables: the backends with their stacks, then the pins of each stack."""
    lines = ["| backend | what it is | stacks |", "|---|---|---|"]
    for name, table in loaded.backends.items():
        lines.append(f"| `{name}` | {table['summary']} | {', '.join(table['stacks'])} |")
    for stack, table in loaded.stacks.items():
        lines += ["", f"<details><summary><b>{stack}</b>: {table['summary']}</summary>", ""]
        lines += ["| package | version | origin | why | in |", "|---|---|---|---|---|"]
        for name in ("python", "base"):
            if name in table:
                lines.append(f"| {name} | {table[name]['version']} | {table[name]['origin']} | {table[name]['why']} | all |")
        lines += [f"| {pin.name} | {pin.version} | {pin.origin} | {pin.why} | {', '.join(names)} |" for pin, names in _pins_of(loaded, stack)]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _pins_of(loaded: Pins, stack: str) -> list[tuple[Pin, list[str]]]:
    """Each pin of a stack with the backends that have it, ["all"] where every backend has it."""
    backends = [name for name, table in loaded.backends.items() if stack in table["stacks"]]
    holders: dict[Pin, list[str]] = {}
    for name in backends:
        image = loaded.image(name, stack)
        for pin in [*image.pins.values(), *image.debian_pins.values()]:
            holders.setdefault(pin, []).append(name)
    return [(pin, ["all"] if names == backends else names) for pin, names in holders.items()]
