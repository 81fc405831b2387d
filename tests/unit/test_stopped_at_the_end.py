"""Ctrl-C between the end of a job and its result: what was measured is stored first. Ctrl-C where Python drops exceptions: the command stops all the same."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from scripts.containers import container
from scripts.containers.restrictions import Folders
from scripts.machine import conditions, removal, signals, temporary_folders
from scripts.paths import ROOT
from scripts.results import Record
from scripts.run import host_facts, measurement
from scripts.run.engines import host, nsight
from scripts.run.measurement import Ready
from tests.samples import AnEngineWithoutGpus, a_job, a_result

pytestmark = pytest.mark.usefixtures("ctrl_c_is_heard")


class AnEngine(AnEngineWithoutGpus):
    def run(self, job: object, work: Path, on_line: Callable[[str], None]) -> str:
        (work / nsight.KEPT[0]).write_bytes(b"a trace")
        return "an outcome"


@pytest.mark.parametrize("block", [signals.raised, signals.held_back])
def test_a_signal_that_nohup_ignores_stays_ignored(block: Callable[[], Any]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with block():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("kind", "reference"), [("measure", "/guest/right.npz"), ("profile", None)])
def test_the_right_answer_is_made_for_a_job_that_is_checked(kind: str, reference: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measurement, "with_checkpoint", lambda job, *_: job)
    monkeypatch.setattr(measurement.checkpoints, "reference", lambda *_: tmp_path / "right.npz")
    engine = types.SimpleNamespace(guest_path=lambda path, work: f"/guest/{path.name}")
    job = dataclasses.replace(a_job(), kind=kind)
    assert measurement._with_weights(job, engine, tmp_path, types.SimpleNamespace(line=print)).reference == reference  # type: ignore[arg-type]


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], list[Record]]]:
    """Measures, interrupted by what a test has replaced, and gives the records that were stored."""
    records: list[Record] = []
    monkeypatch.setattr(measurement, "_with_weights", lambda job, *_: job)
    monkeypatch.setattr(measurement.engines, "answer", lambda *_: (a_result(), "ok", ""))
    monkeypatch.setattr(measurement.judging, "judge", lambda *_: None)
    monkeypatch.setattr(conditions, "busy_cores", lambda seconds: 0.0)
    monkeypatch.setattr(host_facts, "at_start", lambda *_: {})
    monkeypatch.setattr(host_facts, "at_end", lambda *_: {})
    monkeypatch.setattr(measurement.results, "store", lambda folder, record: records.append(record))
    folder = tmp_path / "run-01"

    def measure(engine: AnEngine = AnEngine()) -> list[Record]:
        folder.mkdir()
        with signals.raised(), pytest.raises(KeyboardInterrupt):
            measurement.measure(Ready("a row", a_job(), "run", engine, 0.0, anew=True), folder)  # type: ignore[arg-type]
        assert (folder / nsight.KEPT[0]).read_bytes() == b"a trace"
        return records

    yield measure


def test_while_it_writes_down_what_it_saw(monkeypatch: pytest.MonkeyPatch, stored: Callable[[], list[Record]]) -> None:
    monkeypatch.setattr(host_facts, "at_end", lambda *_: ctrl_c() or {})
    (record,) = stored()
    assert record.status == "ok" and record.guest == a_result()


def test_while_it_takes_its_last_look_at_the_machine(monkeypatch: pytest.MonkeyPatch, stored: Callable[[], list[Record]]) -> None:
    looks: list[float] = []

    def look(seconds: float) -> float:
        looks.append(seconds)
        if len(looks) == 2:
            ctrl_c()
        return 0.5

    monkeypatch.setattr(conditions, "busy_cores", look)
    (record,) = stored()
    assert (record.status, record.reason) == ("failed", "its tokens were not judged: the command was stopped")
    assert record.guest == a_result() and record.host["conditions"]["busy_cores_after"] == 0.5


class AContainer:
    """A container whose job ends at once, and Docker's client for it. Ctrl-C comes while Docker removes the container, or while the job runs."""

    attrs: typing.ClassVar = {"State": {"ExitCode": 0, "OOMKilled": False}}

    def __init__(self, stopped_in: str) -> None:
        self.stopped_in, self.removals, self.containers = stopped_in, 0, self

    def info(self) -> dict[str, int]:
        return {"MemTotal": 64 << 30}

    def create(self, *words: object, **settings: object) -> "AContainer":
        return self

    def attach(self, **how: bool) -> Iterator[bytes]:
        return iter(())

    def start(self) -> None:
        pass

    def reload(self) -> None:
        pass

    def wait(self, timeout: float) -> None:
        if self.stopped_in == "wait":
            ctrl_c()

    def remove(self, **how: bool) -> None:
        self.removals += 1
        if self.removals == 2:
            raise NotFound("it is gone")
        if self.stopped_in == "remove":
            ctrl_c()


class ADockerEngine(AnEngine):
    """An engine whose jobs run in this container."""

    def __init__(self, client: AContainer) -> None:
        self.client = client

    def run(self, job: object, work: Path, on_line: Callable[[str], None]) -> Any:
        super().run(job, work, on_line)
        return container.run(self.client, "tag", ["true"], run_id="run-01", folders=Folders(work, work), timeout_s=60)  # type: ignore[arg-type]


def test_while_docker_removes_the_container_of_a_job_that_has_ended(stored: Callable[..., list[Record]]) -> None:
    client = AContainer("remove")
    (record,) = stored(ADockerEngine(client))
    assert (record.status, record.reason) == ("failed", "its tokens were not judged: the command was stopped")
    assert record.guest == a_result() and client.removals == 2


def test_a_row_without_memory_or_time_keeps_its_status_and_its_reason(monkeypatch: pytest.MonkeyPatch, stored: Callable[..., list[Record]]) -> None:
    monkeypatch.setattr(measurement.engines, "answer", lambda *_: (None, "oom", "the kernel killed it"))
    (record,) = stored(ADockerEngine(AContainer("remove")))
    assert (record.status, record.reason) == ("oom", "the kernel killed it")


class AHostEngine(AnEngine):
    """An engine whose jobs are processes of this machine."""

    def run(self, job: object, work: Path, on_line: Callable[[str], None]) -> Any:
        super().run(job, work, on_line)
        return host.run(Path(sys.executable), ["-c", "pass"], work, [], 60, on_line)


def test_while_the_temporary_files_of_a_job_that_has_ended_are_removed(monkeypatch: pytest.MonkeyPatch, stored: Callable[..., list[Record]]) -> None:
    removed: list[Path] = []

    def remove(folder: Path) -> None:
        removed.append(folder)
        ctrl_c()
        removal.remove(folder)

    monkeypatch.setattr(temporary_folders, "removal", types.SimpleNamespace(remove=remove))
    (record,) = stored(AHostEngine())
    assert (record.status, record.reason) == ("failed", "its tokens were not judged: the command was stopped")
    assert record.guest == a_result() and not removed[0].exists()


#: A command whose job has ended and whose `rm` has begun, which Ctrl-C then reaches with every process of its group.
REMOVING = """
from scripts.containers import process
from scripts.machine import signals
with signals.raised():
    process.with_folder("llm-repro-host-", lambda folder: "an outcome")
"""


def test_ctrl_c_at_a_terminal_does_not_reach_the_program_that_removes_a_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    rm = tmp_path / "bin" / "rm"
    rm.write_text(f'#!/bin/sh\ntouch {tmp_path}/begun\nsleep 0.2\nexec {shutil.which("rm")} "$@"\n')
    rm.chmod(0o755)
    variables = os.environ | {"PATH": f"{rm.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", REMOVING], env=variables, stderr=subprocess.DEVNULL, start_new_session=True) as command:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.killpg(command.pid, signal.SIGINT)
    assert command.returncode == -signal.SIGINT and not list(tmp_path.glob("llm-repro-host-*"))


def test_a_job_that_a_signal_ended_has_no_result(monkeypatch: pytest.MonkeyPatch, stored: Callable[..., list[Record]], tmp_path: Path) -> None:
    client = AContainer("wait")
    with pytest.raises(FileNotFoundError, match=nsight.KEPT[0]):  # no trace was kept, because nothing was stored
        stored(ADockerEngine(client))
    assert client.removals == 2


def test_a_signal_that_waited_takes_effect_where_the_block_fails_too() -> None:
    def block() -> Any:
        with signals.held_back():
            ctrl_c()
            raise ValueError("a full disk")

    with signals.raised(), pytest.raises(KeyboardInterrupt):
        block()


def test_a_signal_that_comes_while_an_object_is_finalised_stops_the_command_a_moment_later() -> None:
    class Dying:
        def __del__(self) -> None:
            ctrl_c()
            for _ in range(10_000):  # until the handler has run
                pass

    with signals.raised(), pytest.raises(KeyboardInterrupt):
        Dying()
        time.sleep(5)


def test_a_signal_that_comes_within_an_import_stops_the_command_a_moment_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    told = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(10_000): pass\nWHOLE = True\n"
    (tmp_path / "imported_while_stopping.py").write_text(told)
    with signals.raised(), pytest.raises(KeyboardInterrupt):
        import imported_while_stopping  # type: ignore[import-not-found]

        assert imported_while_stopping.WHOLE
        time.sleep(5)
    assert sys.modules["imported_while_stopping"].WHOLE
