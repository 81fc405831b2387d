"""The JSON Schema of results and jobs says of the committed results what the kit says."""

import copy
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from bench.job import InvalidDocument
from scripts import results
from scripts.results import door, json_schema
from scripts.results.store import record_of

VALIDATORS = {name: Draft202012Validator(json.loads(text)) for name, text in json_schema.files().items()}
RUNS = sorted(path.parent for runs in (results.RUNS, results.WITHOUT_CONTAINERS) for path in runs.glob("*/result.json"))


def problem_of(value: object, name: str = json_schema.RESULT) -> str:
    """The first place where a value is not what a schema says; "" where there is none."""
    return next((error.message for error in VALIDATORS[name].iter_errors(value)), "")


def result() -> dict:
    """A committed result with a guest, fresh."""
    return copy.deepcopy(next(found for found in (door.parse(door.read(run / "result.json")) for run in RUNS) if found["status"] == "ok"))


@pytest.mark.slow  # hundreds of files
def test_every_committed_result_and_job_follows_its_schema() -> None:
    assert len(RUNS) > 300
    for run in RUNS:
        assert not problem_of(json.loads((run / "result.json").read_text())), run.name
        assert not problem_of(json.loads((run / "job.json").read_text()), json_schema.JOB), run.name


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("host", "started_at"), "yesterday"),
        (("host", "engine"), "lxc"),
        (("host",), None),
        (("id",), "no id"),
        (("job", "device_count"), 0),
        (("job", "of_another_kit"), 1),
        (("guest", "measurements", 0, "timed_ms", 0), "fast"),
        (("guest", "measurements", 0, "timed_ms", 0), -1.0),
        (("guest", "phases"), {"load": [1.0]}),
        (("guest", "check", "passed"), "yes"),
        (("guest", "another"), {}),
        (("another",), 1),
    ],
)
def test_what_the_kit_refuses_the_schema_refuses_too(place: tuple, value: object) -> None:
    damaged = result()
    at = damaged
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(InvalidDocument):
        record_of(damaged)
    assert problem_of(damaged)


def test_the_committed_schemas_are_those_of_the_shapes() -> None:
    for name, text in json_schema.files().items():
        assert Path(results.RUNS.parent, name).read_text() == text
