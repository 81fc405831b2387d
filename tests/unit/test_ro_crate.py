"""Every run is an action of a Process Run Crate, and the archives' metadata say what CITATION.cff says."""

import json
from pathlib import Path

import pytest
import yaml

from bench.job import InvalidDocument, to_json
from scripts import __version__, articles
from scripts.results.store import record_of
from scripts.share import ro_crate
from tests import synthetic
from tests.synthetic import job, record

ROOT = Path(__file__).resolve().parents[2]


def entities(records: list, runs: str = "reports/runs") -> dict:
    graph = json.loads(ro_crate.text({runs: records}))["@graph"]
    by_id = {one["@id"]: one for one in graph}
    assert len(by_id) == len(graph), "each entity stands once"
    return by_id


def references(value: object) -> set[str]:
    if isinstance(value, list):
        return {found for one in value for found in references(one)}
    if isinstance(value, dict):
        return {value["@id"]} if set(value) == {"@id"} else {found for one in value.values() for found in references(one)}
    return set()


def test_a_run_is_an_action_with_its_software_its_job_its_result_and_its_time() -> None:
    one = record(job("deepspeed", 2), 12.0)
    one.host["pins_id"] = "0123456789ab"
    found = entities([one])
    (action,) = (entity for entity in found.values() if entity["@type"] == "CreateAction")
    assert found["./"]["mentions"] == [{"@id": action["@id"]}] and found["./"]["conformsTo"] == {"@id": ro_crate.PROFILE}
    assert action["object"] == {"@id": f"reports/runs/{one.id}/job.json"} and action["result"] == {"@id": f"reports/runs/{one.id}/result.json"}
    assert action["startTime"] == one.host["started_at"] and action["actionStatus"] == {"@id": "http://schema.org/CompletedActionStatus"}
    backend = found[action["instrument"][0]["@id"]]
    assert (backend["@type"], backend["softwareVersion"]) == ("SoftwareApplication", "0123456789ab")
    assert "error" not in action


def test_runs_of_one_tag_whose_images_or_commits_differ_name_their_own() -> None:
    runs = [record(job("deepspeed", 2), number=number) for number in (1, 2, 3)]
    runs[0].host["image"]["id"], runs[0].host["commit"] = f"sha256:{'1' * 64}", "1" * 40
    runs[1].host["image"]["id"], runs[1].host["commit"], runs[1].host["dirty"] = f"sha256:{'2' * 64}", "2" * 40, True
    runs[2].host["image"]["id"], runs[2].host["commit"] = None, None
    found = entities(runs)
    actions = [found[f"#run-{run.id}"] for run in runs]
    images = [found[action["containerImage"]["@id"]] for action in actions]
    assert [image.get("sha256") for image in images] == ["1" * 64, "2" * 64, None] and len({image["tag"] for image in images}) == 1
    versions = [found[action["instrument"][1]["@id"]]["softwareVersion"] for action in actions]
    assert versions == ["1" * 40, f"{'2' * 40}-with-uncommitted-changes", __version__]


def test_the_crate_names_authors_licence_and_version_as_the_citation_does() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    found = entities([record(job("int8"))])
    root = found["./"]
    assert [found[root["author"]["@id"]]["name"]] == [one["name"] for one in cited["authors"]]
    assert (root["version"], root["license"]["@id"].rpartition("/")[2]) == (cited["version"], cited["license"])


def test_a_run_that_failed_is_an_action_that_failed_with_its_reason() -> None:
    found = entities([record(job("int8"), status="oom", reason="CUDA out of memory")])
    (action,) = (entity for entity in found.values() if entity["@type"] == "CreateAction")
    assert action["actionStatus"] == {"@id": "http://schema.org/FailedActionStatus"} and action["error"] == "oom: CUDA out of memory"


def test_every_reference_leads_to_an_entity_or_to_a_term_of_the_web() -> None:
    records = [record(job("deepspeed", 2), 12.0, number=1), record(job("deepspeed", 2), 12.5, number=2), record(job("int8"), status="oom", reason="full")]
    found = entities(records)
    outside = {one for one in references(list(found.values())) if one not in found}
    assert all(one.startswith(("http://schema.org/", "https://w3id.org/ro/")) for one in outside), outside


def test_the_end_of_a_run_is_its_beginning_and_its_length() -> None:
    one = record(job("int8"), 90.0)
    one.host["started_at"], one.host["wall_s"] = "2026-11-20T23:59:50Z", 20.4
    (action,) = (entity for entity in entities([one]).values() if entity["@type"] == "CreateAction")
    assert action["endTime"] == "2026-11-21T00:00:10Z"


@pytest.mark.parametrize(
    ("began", "wall_s"), [("2026-02-30T10:00:00Z", 5.0), ("2026-13-45T99:99:99Z", 5.0), ("2026-11-21T04:10:00Z", 1e17), ("9999-12-31T23:59:59Z", 5.0)]
)
def test_a_run_whose_times_are_no_moments_is_let_in_nowhere(began: str, wall_s: float) -> None:
    fields = json.loads(to_json(synthetic.record(synthetic.job("int8"), 90.0)))
    assert record_of(fields).host["started_at"]
    fields["host"] |= {"started_at": began, "wall_s": wall_s}
    with pytest.raises(InvalidDocument, match="allowed are moments of the calendar"):
        record_of(fields)


def test_runs_are_published_on_the_day_of_the_latest() -> None:
    runs = [record(job("deepspeed", 2), number=day, started_at=f"2026-11-2{day}T04:10:00Z") for day in (3, 5, 4)]
    assert entities(runs)["./"]["datePublished"] == "2026-11-25"


def test_zenodo_is_told_what_the_citation_says() -> None:
    told = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert [told["title"], told["description"], told["version"], told["license"]] == [cited["title"], cited["abstract"], cited["version"], cited["license"]]
    assert told["keywords"] == cited["keywords"] and [one["name"] for one in told["creators"]] == [one["name"] for one in cited["authors"]]
    assert {one["identifier"] for one in told["related_identifiers"]} == {place for one in articles.load_all().values() for place in one.references}
    assert told.get("publication_date") == (str(cited["date-released"]) if "date-released" in cited else None)
