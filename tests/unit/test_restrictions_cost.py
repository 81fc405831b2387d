"""`make instrument-restrictions`: whose container is without which restriction, in which order, and what is told of it. Containers are simulated."""

import dataclasses
import json
import re
import types

import pytest

from bench.job import to_json, write_whole
from scripts import pins
from scripts.containers.container import Outcome
from scripts.containers.restrictions import LOOSENABLE
from scripts.errors import KitError, NothingRuns, UsageError
from scripts.run import instruments, measurement, plan, restrictions_cost, runner
from scripts.run.engines import contained
from scripts.run.options import Options
from tests import synthetic

#: How many times as long as in the kit's containers a call takes, by this machine.
FACTORS = {"": 1.0, "shm": 0.9, "seccomp": 1.0, "memlock": 1.1}


class Machine(contained.DockerEngine):
    """Answers as a guest would whose calls take longer by the factor of what its container is without; refuses the ways in `forbidden`."""

    def __init__(self, forbidden=()):
        self.gpus, self.forbidden, self.started = [], forbidden, []

    def run(self, job, work, on_line, module="bench"):
        self.started.append(self.loosened)
        if self.loosened in self.forbidden:
            return Outcome(126, False, False, 0.0, 1.0)
        seed = len(self.started)
        means_ms = [40.0 * FACTORS[self.loosened] / 10**further for further in range(len(job.runs))][::-1]  # calls of more tokens take longer
        answer = dataclasses.replace(synthetic.guest(job, tuple(means_ms), None, seed=seed), id=job.id)
        timed_ms = answer.measurements[-1]["timed_ms"]
        timed_ms[:2] = [5 * timed_ms[0], timed_ms[1] / 2]  # an unsteady host
        write_whole(work / "result.json", to_json(answer))
        return Outcome(0, False, False, float(seed), seed + 600.0)


def examined(machine, tmp_path, enter=lambda words: None):
    lines = []
    outcome = restrictions_cost.examine(machine, synthetic.job("layer-parallel", new_tokens=(1, 128)), tmp_path, lines.append, enter)
    return outcome, json.loads((tmp_path / "result.json").read_text()), lines


def test_each_restriction_is_loosened_by_turns_and_its_calls_are_compared_with_the_kit_s(tmp_path):
    machine = Machine()
    outcome, found, lines = examined(machine, tmp_path)
    forth = ["", *LOOSENABLE]
    assert machine.started == [*forth, *forth, *forth[::-1], *forth, *forth[::-1], *forth] and machine.loosened == ""
    assert (outcome.exit_code, outcome.started_at, outcome.finished_at) == (0, 1.0, 24 + 600.0)
    told = {way["way"]: way for way in found["ways"]}
    assert list(told) == ["kit", *LOOSENABLE] and not found["left_out"]
    assert "times_as_long" not in told["kit"] and lines[0].startswith("kit: ") and lines[0].endswith(" ms a call")
    for name in told:
        rounds = told[name]["rounds"]
        assert len(rounds) == 5 and len(set(rounds)) == 5, "five runs of their own, without the first"
        assert told[name]["ms_a_call"] == pytest.approx(sum(rounds) / 5) == pytest.approx(40 * FACTORS[name.replace("kit", "")], rel=0.01)
    for name, factor in {"shm": 0.9, "seccomp": 1.0, "memlock": 1.1}.items():
        ratio = told[name]["times_as_long"]
        assert ratio["value"] == pytest.approx(factor, rel=0.01) and ratio["low"] <= ratio["value"] <= ratio["high"]
    assert re.fullmatch(r"shm: 3[56]\.\d\d ms a call, 0\.(89|90)\d* \(.* to .*\) times as long as in the kit's containers", lines[1])


def test_each_run_is_told_before_it_starts(tmp_path):
    machine, told = Machine(forbidden=("memlock",)), []
    examined(machine, tmp_path, lambda words: told.append((len(machine.started), words)))
    assert [number for number, _ in told] == list(range(len(machine.started)))
    words = [words for _, words in told]
    assert words[:4] == ["kit, warm-up", "shm, warm-up", "seccomp, warm-up", "memlock, warm-up"]
    assert words[4:10] == ["kit, round 1 of 5", "shm, round 1 of 5", "seccomp, round 1 of 5", "seccomp, round 2 of 5", "shm, round 2 of 5", "kit, round 2 of 5"]
    assert words[-1] == "seccomp, round 5 of 5"


def test_a_restriction_that_the_machine_does_not_let_go_is_left_out_with_its_reason(tmp_path):
    machine = Machine(forbidden=("memlock",))
    _, found, lines = examined(machine, tmp_path)
    assert [way["way"] for way in found["ways"]] == ["kit", "shm", "seccomp"] and machine.started.count("memlock") == 1
    assert "exit code 126" in found["left_out"]["memlock"] and lines[-1].startswith("memlock: left out: ")


def test_a_run_with_all_restrictions_has_to_end_well(tmp_path):
    with pytest.raises(KitError, match="the run 0-kit ended with failed: .*exit code 126"):
        examined(Machine(forbidden=("",)), tmp_path)


def test_a_run_whose_guest_says_that_it_failed_does_not_count(tmp_path):
    class Fails(Machine):
        def run(self, job, work, on_line, module="bench"):
            outcome = super().run(job, work, on_line, module)
            if self.loosened == "seccomp":
                answer = json.loads((work / "result.json").read_text())
                write_whole(work / "result.json", to_json({**answer, "status": "failed", "reason": "no kernel"}))
            return outcome

    _, found, _ = examined(Fails(), tmp_path)
    assert found["left_out"] == {"seccomp": "restrictions: the run 0-seccomp ended with failed: no kernel"}


def test_what_was_found_until_a_later_run_failed_is_there(tmp_path):
    class Tired(Machine):
        def run(self, *arguments):
            self.forbidden = ("shm",) if len(self.started) > 10 else ()
            return super().run(*arguments)

    machine = Tired()
    with pytest.raises(KitError, match="the run 3-shm ended with failed"):
        examined(machine, tmp_path)
    found = json.loads((tmp_path / "result.json").read_text())
    assert [len(way["rounds"]) for way in found["ways"]] == [2, 2, 2, 2] and machine.loosened == ""


def test_the_last_lines_of_a_run_that_failed_are_said(tmp_path):
    class Talks(Machine):
        def run(self, job, work, on_line, module="bench"):
            for number in range(99):
                on_line(f"line {number} of {self.loosened or 'kit'}")
                on_line('@{"phase": "measure"}')
            return super().run(job, work, on_line, module)

    _, _, lines = examined(Talks(forbidden=("shm",)), tmp_path)
    assert lines[:8] == [f"line {number} of shm" for number in range(91, 99)] and lines[8].startswith("kit: ")


@pytest.mark.parametrize(
    ("changed", "stack", "asked", "why"),
    [
        ({}, "current", {}, ""),
        ({}, "current", {"engine": "podman"}, ""),
        ({}, "current", {"engine": "host"}, "ENGINE is host, which sets no such restrictions, allowed are docker and podman; try ENGINE=docker"),
        ({}, "current", {"engine": "apptainer"}, "ENGINE is apptainer, which sets no such restrictions, .*"),
        ({}, "demo", {"engine": "host"}, "STACK=demo has no images, so its jobs run in no container; try STACK=current ENGINE=docker"),
        ({}, "current", {"memlock": True}, "KIT_MEMLOCK is 1, so no container would limit locked memory; leave KIT_MEMLOCK out"),
        ({"form": "workload"}, "current", {}, "the case's form workload does not time the job's runs; take a case of another form, such as .*"),
    ],
)
def test_only_an_engine_that_sets_all_of_them_and_a_form_that_times_runs_are_examined(changed, stack, asked, why):
    job = dataclasses.replace(synthetic.job("layer-parallel"), **changed)
    assert re.fullmatch(why, restrictions_cost.refusal(job, pins.load().image("layer-parallel", stack), Options(**asked)))


@pytest.fixture
def command(monkeypatch, tmp_path):
    """The instrument as `make instrument-restrictions` starts it; its results lie in tmp_path/instruments."""
    monkeypatch.setattr(measurement, "with_checkpoint", lambda job, engine, work, on_line: job)
    monkeypatch.setattr(runner, "refuse_impossible", lambda *arguments: None)
    fixed = {"device": "cpu", "scale": "tiny", "weights": "random", "stack": "current", "cases": ("layer-parallel",)}

    def run(name="restrictions", **settings):
        asked = Options(**fixed | {"folder": tmp_path / "runs", "models": tmp_path / "models"} | settings)
        return instruments.examine(name, plan.plan(["layer-parallel"], asked, every=False)[0], asked)

    return run


class Engine(Machine):
    """The machine as the command chooses it; `modules` are those that it ran."""

    cores, modules = "", []

    def __init__(self, image, gpus, asked):
        super().__init__()
        self.image, self.asked, self.models, self.facts = image, asked, asked.models, {"tag": image.tag}

    def prepare(self):
        self.modules.clear()

    def run(self, job, work, on_line, module="bench"):
        self.modules.append(module)
        return super().run(job, work, on_line, module)


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_the_command_stores_what_the_runs_in_each_way_took(command, monkeypatch, capsys, name):
    closed = []
    monkeypatch.setattr(contained, "CLIENTS", {name: lambda: types.SimpleNamespace(close=lambda: closed.append(name))})
    monkeypatch.setitem(contained.CONTAINED, name, Engine)
    told = json.loads(command(engine=name).read_text())
    assert told["instrument"] == "restrictions" and told["status"] == "ok" and closed == [name] and Engine.modules == ["bench"] * 24
    assert [way["way"] for way in told["found"]["ways"]] == ["kit", *LOOSENABLE] and told["host"]["wall_s"] == 24 + 600.0 - 1.0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["kit", *LOOSENABLE]


def test_an_instrument_of_the_guest_runs_once_in_a_container_with_all_restrictions(command, monkeypatch):
    monkeypatch.setitem(contained.CONTAINED, "docker", Engine)
    assert "ways" not in json.loads(command("layers").read_text())["found"]
    assert Engine.modules == ["bench.instruments.layers"]


def test_a_machine_without_docker_is_not_sent_to_an_engine_that_the_instrument_refuses(command, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(NothingRuns, match="no Docker answers at unix:///nowhere/docker.sock; install") as told:
        command()
    assert "ENGINE=host" not in str(told.value)


def test_another_engine_is_refused_before_it_is_looked_for(command, monkeypatch):
    monkeypatch.setitem(contained.CONTAINED, "apptainer", lambda *arguments: pytest.fail("it was looked for"))
    with pytest.raises(UsageError, match="restrictions does not examine inference-tools/layer-parallel .*: ENGINE is apptainer"):
        command(engine="apptainer")
