"""An engine that stops answering when the guest has written its result: the answer stays, and the error says where."""

import json
from pathlib import Path

import pytest

from bench.job import Job
from scripts.containers import docker_errors
from scripts.errors import KitError
from scripts.machine import conditions
from scripts.results import answers
from scripts.run import host_facts, measurement
from tests.samples import AnEngineWithoutGpus, a_job


class AnEngine(AnEngineWithoutGpus):
    """One that stops answering when its guest has written `answer`."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def run(self, job: Job, work: Path, on_line: object) -> None:
        if self.answer:
            (work / "result.json").write_text(self.answer)
        raise docker_errors.gone(job.id)


def measured(folder: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of a run whose engine stopped answering."""
    monkeypatch.setattr(measurement, "_with_weights", lambda job, *_: job)
    monkeypatch.setattr(host_facts, "at_start", lambda *_: {})
    monkeypatch.setattr(conditions, "busy_cores", lambda seconds: 0.0)
    folder.mkdir()
    with pytest.raises(KitError) as error:
        measurement.measure(measurement.Ready("a row", a_job(), "run", AnEngine(answer), 0.0, anew=True), folder)  # type: ignore[arg-type]
    assert not (folder / "work").exists() and (folder / "job.json").exists() and not (folder / "result.json").exists()
    return str(error.value)


def test_an_answer_that_the_guest_had_written_stays_and_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = measured(tmp_path / "run-01", json.dumps({"status": "ok"}), monkeypatch)
    kept = tmp_path / "run-01" / answers.REJECTED
    assert json.loads(kept.read_text()) == {"status": "ok"}
    assert "stopped answering during run-01" in said and said.endswith(f"is kept as {kept}")


def test_without_an_answer_the_error_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = measured(tmp_path / "run-01", "", monkeypatch)
    assert said.endswith("type the same command") and not (tmp_path / "run-01" / answers.REJECTED).exists()
