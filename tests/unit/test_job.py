"""The contract between the zones: documents that keep to it come back as they were, others are named."""

import dataclasses
import hashlib
import json
import os
import stat

import pytest

from bench import __main__ as guest
from bench import job as contract
from tests.samples import a_job, a_result


def test_a_job_and_a_result_come_back_as_they_were():
    assert contract.parse_job(contract.to_json(a_job())) == a_job()
    assert contract.parse_result(contract.to_json(a_result())) == a_result()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "schema is 99"),
        ({"kind": "guess"}, "kind is 'guess', allowed are measure"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"device_count": 0}, "device_count is 0"),
        ({"runs": []}, "runs is empty"),
        ({"runs": [{"new_tokens": 0, "arguments": {}}]}, "new_tokens is 0"),
        ({"timed_runs": 0}, "timed_runs is 0"),
        ({"form": None}, "form is None"),
        ({"options": []}, "options are \\[\\]"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_wrong_job_is_refused_with_the_field_and_what_is_allowed(change, message):
    text = json.dumps({**json.loads(contract.to_json(a_job())), **change})
    with pytest.raises(contract.InvalidDocument, match=message):
        contract.parse_job(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "fine"}, "status is 'fine'"),
        ({"status": "failed"}, "status failed without a reason"),
        ({"measurements": [{"new_tokens": 1, "timed_ms": [0.0]}]}, "without positive times"),
    ],
)
def test_a_wrong_result_is_refused(change, message):
    text = json.dumps({**json.loads(contract.to_json(a_result())), **change})
    with pytest.raises(contract.InvalidDocument, match=message):
        contract.parse_result(text)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1', '{"schema": 1}'])
def test_a_damaged_document_is_invalid_and_nothing_else(text):
    with pytest.raises(contract.InvalidDocument):
        contract.parse_result(text)


def test_the_fingerprint_follows_what_is_measured_and_no_path():
    import dataclasses

    job = a_job()
    moved = dataclasses.replace(job, id="other", reference="/elsewhere", model={**job.model, "path": "/elsewhere"})
    assert moved.fingerprint() == job.fingerprint()
    assert dataclasses.replace(job, timed_runs=11).fingerprint() != job.fingerprint()
    assert dataclasses.replace(job, model={**job.model, "seed": 7}).fingerprint() != job.fingerprint()


def test_a_form_and_its_options_are_in_the_fingerprint_only_where_they_are_used():
    import dataclasses

    job = a_job()
    assert job.fingerprint() == "aba204866d47", "jobs that were measured before there were forms keep their fingerprint"
    assert dataclasses.replace(job, form="batch").fingerprint() != job.fingerprint()
    assert dataclasses.replace(job, options={"items": 8}).fingerprint() != job.fingerprint()


def test_a_job_and_a_result_of_before_there_were_forms_can_be_read():
    job = json.loads(contract.to_json(a_job()))
    del job["form"], job["options"]
    assert contract.parse_job(json.dumps(job)) == a_job()
    result = json.loads(contract.to_json(a_result()))
    del result["figures"]
    assert contract.parse_result(json.dumps(result)).figures == {}


@pytest.mark.parametrize(
    ("earlier", "form"), [("cycles", "padded-sentences"), ("pipeline-schedule", "pipeline-parallel"), ("pipeline-sequences", "transformers-pipeline-sequences")]
)
def test_a_form_that_was_renamed_is_read_under_its_new_name_and_keeps_its_fingerprint(earlier, form):
    fields = {**json.loads(contract.to_json(a_job())), "form": earlier}
    job = contract.job_of(fields)
    assert job == a_job(form=form)
    hashed = {name: value for name, value in fields.items() if name not in ("id", "reference", "options")}
    hashed.update(schema=1, model={name: value for name, value in fields["model"].items() if name != "path"})
    assert job.fingerprint() == hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:12]


def first_schema(**load):
    """The JSON text of a_job() as a kit of schema 1 wrote it."""
    job = json.loads(contract.to_json(a_job(backend="int8")))
    return json.dumps({**job, "schema": 1, "load": {**job["load"], **load}})


def test_a_job_of_the_first_schema_is_read_without_its_prose_and_is_the_same_question():
    asked = a_job(backend="int8", load={"dtype": "float16", "device_map": "auto"})
    for words in ("stated: int8", "stated, in other words"):
        job = contract.parse_job(first_schema(device_map="auto", dtype_origin=words, load_in_8bit=True))
        assert job == asked and job.fingerprint() == asked.fingerprint()
    assert contract.parse_job(first_schema(device_map="cpu")).fingerprint() != asked.fingerprint()


def test_a_job_of_this_schema_keeps_whatever_its_load_says():
    assert a_job(load={"dtype": "float16", "dtype_origin": "x"}).fingerprint() != a_job(load={"dtype": "float16"}).fingerprint()


@pytest.mark.parametrize("schema", [0, 3, "1", None, True, [1]])
def test_another_schema_is_refused_with_those_that_are_read(schema):
    text = json.dumps({**json.loads(contract.to_json(a_job())), "schema": schema})
    with pytest.raises(contract.InvalidDocument, match="this kit reads 1 and 2"):
        contract.parse_job(text)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    contract.write_whole(path, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError):
        contract.write_whole(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_number_that_is_none_cannot_be_written():
    with pytest.raises(ValueError, match="nan"):
        contract.to_json({"load_s": float("nan")})


def test_a_figure_that_is_not_finite_fails_the_job_by_name_and_keeps_the_rest():
    result = a_result(figures={"padding": {"left": [float("nan")]}, "cycles": {"sequences": 8}})
    told = json.loads(guest.as_json(result))
    assert told["status"] == "failed" and "its figures padding hold a number that is not finite" in told["reason"]
    assert told["figures"] == {"cycles": {"sequences": 8}} and told["measurements"] == result.measurements


@pytest.mark.parametrize("unknown", [float("nan"), {1, 2}, {"a": 1, 2: 3}, object()])
def test_a_field_that_json_has_no_word_for_fails_the_job_by_name_and_keeps_the_rest(unknown):
    """Without a result the host would know neither the times nor the reason."""
    result = a_result(used={"a": unknown}, figures={"cycles": {"sequences": unknown}, "padding": {"left": [1.0]}})
    told = contract.parse_result(guest.as_json(result))
    assert told.status == "failed" and told.reason.startswith("its figures cycles and its used hold a number that is not finite, or no JSON data (")
    assert (told.used, told.figures, told.measurements) == ({}, {"padding": {"left": [1.0]}}, result.measurements)


def test_the_reason_of_a_failed_job_stays_where_its_result_cannot_be_written_whole():
    told = contract.parse_result(guest.as_json(contract.Result(id="a", status="failed", reason="no kernel", used={"a": float("inf")})))
    assert told.reason.startswith("no kernel; its used hold a number that is not finite")


def test_a_job_on_one_device_is_the_same_whatever_device_map_it_names():
    """The runs of the second article's accelerate rows on one GPU were stored with another map than their case names now."""
    named = [
        dataclasses.replace(a_job(), form="padded-sentences", device_count=1, load={"dtype": "float16", "device_map": name})
        for name in ("auto", "balanced_low_0")
    ]
    assert named[0].fingerprint() == named[1].fingerprint()
    several = [dataclasses.replace(one, device_count=2) for one in named]
    assert len({one.fingerprint() for one in (*named, *several)}) == 3
    other_form = [dataclasses.replace(one, form="generate") for one in named]
    assert other_form[0].fingerprint() != other_form[1].fingerprint()
