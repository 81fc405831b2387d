"""Ctrl-C between the end of a job and its result: what was measured is stored first."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from scripts.machine import conditions, signals
from scripts.run import host_facts, measurement
from scripts.run.measurement import Judged, Ran, Ready
from tests.samples import a_job, a_result


class AnEngine:
    """As much of an engine as a measurement asks for outside the parts that these tests replace."""

    gpus: tuple[()] = ()
    models = Path("/nowhere")


def test_a_command_that_is_stopped_while_it_writes_down_what_it_saw_keeps_the_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def facts_and_ctrl_c(*_: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    ran, stored = Ran(None, 1.0, None, None), []  # type: ignore[arg-type]
    monkeypatch.setattr(measurement, "_with_weights", lambda job, *_: job)
    monkeypatch.setattr(measurement, "_watched", lambda *_: ran)
    monkeypatch.setattr(measurement, "_judged", lambda *_: Judged(0.0))
    monkeypatch.setattr(measurement, "_seen", lambda *_: {})
    monkeypatch.setattr(measurement.engines, "answer", lambda *_: (a_result(), "ok", ""))
    monkeypatch.setattr(host_facts, "at_start", lambda *_: {})
    monkeypatch.setattr(host_facts, "at_end", facts_and_ctrl_c)
    monkeypatch.setattr(measurement.results, "store", lambda folder, record: stored.append(record))
    folder = tmp_path / "run-01"
    folder.mkdir()
    with signals.raised(), pytest.raises(KeyboardInterrupt):
        measurement.measure(Ready("a row", a_job(), "run", AnEngine(), 0.0, anew=True), folder)  # type: ignore[arg-type]
    assert [one.status for one in stored] == ["ok"]


def test_the_last_look_at_the_machine_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def look(seconds: float) -> float:
        if looked:
            os.kill(os.getpid(), signal.SIGINT)
        looked.append(seconds)
        return 0.0

    monkeypatch.setattr(conditions, "busy_cores", look)
    with signals.raised(), pytest.raises(KeyboardInterrupt):
        with conditions.Watch([], "", look_s=0.01) as watch:
            pass
    assert len(looked) == 2 and watch.summary(None)["busy_cores_after"] == 0
