"""The JSON Schema (draft 2020-12) of result.json and job.json, made of scripts/results/shapes.py: for readers with other tools than this kit.

Limits that no schema can say stand in scripts/results/door.py: sizes of files, numbers of 1e18 and more. No key may come twice (scripts/share/verified.py).
"""

import dataclasses
import functools
import inspect
import json
from typing import Any

import msgspec

from bench.job import Job, Result
from scripts.results import shapes
from scripts.results.store import Record

RESULT, JOB = "result.schema.json", "job.schema.json"

#: The objects on whose first level bench.job allows no unknown key.
CLOSED = {"Record": Record, "Job": Job, "Guest": Result}


def files() -> dict[str, str]:
    """{file name: text} of both schemas."""
    return {RESULT: _text("A run's result.json", shapes.Record), JOB: _text("A run's job.json", shapes.Job)}


@functools.cache
def _text(title: str, shape: type[shapes.Shape]) -> str:
    made = msgspec.json.schema(shape)
    for name, kind in CLOSED.items():
        if definition := made["$defs"].get(name):
            unread: dict[str, Any] = {field.name: {} for field in dataclasses.fields(kind)}
            definition["properties"] = unread | definition["properties"]
            definition["additionalProperties"] = False
    _unindent_descriptions(made)
    # Python's `\Z`, the end of a text, becomes `$`, the only end that JSON Schema's expressions have.
    text = json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}, indent=1)
    return text.replace(r"\\Z", "$") + "\n"


def _unindent_descriptions(node: Any) -> None:
    """In place. Descriptions come from docstrings, whose indentation Python 3.13 takes away and older releases keep."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _unindent_descriptions(value)
    if isinstance(node, dict) and isinstance(node.get("description"), str):
        node["description"] = inspect.cleandoc(node["description"])
