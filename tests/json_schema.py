"""What of JSON Schema the kit's own schemas use, checked; a keyword that is not known here is an error, so that none goes unchecked."""

import re
from typing import Any

KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float)}
SAID = {"$schema", "$defs", "title", "description", "default"}


def problem(value: Any, schema: Any, root: Any, place: str = "$") -> str:
    """The first place where a value is not what a schema says; "" where there is none."""
    if schema is True:
        return ""
    if schema is False:
        return f"{place} is not allowed"
    rest = dict(schema)
    found = []

    def check(key: str, holds: bool) -> None:
        if not holds:
            found.append(f"{place}: {key} {schema[key]!r} does not hold of {value!r:.60}")

    for key in schema.keys() & SAID:
        del rest[key]
    if target := rest.pop("$ref", None):
        found.append(problem(value, root["$defs"][target.removeprefix("#/$defs/")], root, place))
    if (kind := rest.pop("type", None)) is not None:
        check("type", isinstance(value, KINDS[kind]) and (kind in ("boolean",) or not isinstance(value, bool)))
    if options := rest.pop("anyOf", None):
        check("anyOf", any(not problem(value, one, root, place) for one in options))
    if (allowed := rest.pop("enum", None)) is not None:
        check("enum", value in allowed)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (least := rest.pop("minimum", None)) is not None and is_number:
        check("minimum", value >= least)
    if (pattern := rest.pop("pattern", None)) is not None and isinstance(value, str):
        check("pattern", re.search(pattern, value) is not None)
    if (least := rest.pop("minItems", None)) is not None and isinstance(value, list):
        check("minItems", len(value) >= least)
    if (most := rest.pop("maxItems", None)) is not None and isinstance(value, list):
        check("maxItems", len(value) <= most)
    if (names := rest.pop("required", None)) is not None and isinstance(value, dict):
        check("required", set(names) <= value.keys())
    first, others = rest.pop("prefixItems", []), rest.pop("items", True)
    if isinstance(value, list):
        found += [problem(one, first[n] if n < len(first) else others, root, f"{place}[{n}]") for n, one in enumerate(value)]
    known, more = rest.pop("properties", {}), rest.pop("additionalProperties", True)
    if isinstance(value, dict):
        found += [problem(one, known.get(name, more), root, f"{place}.{name}") for name, one in value.items()]
    assert not rest, f"{place}: keywords that are not checked: {sorted(rest)}"
    return next(filter(None, found), "")
