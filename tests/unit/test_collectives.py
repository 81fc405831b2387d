"""The instrument that counts all-reduces: what it replaces, what it counts and how it divides; the collectives themselves need GPUs."""

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bench.backends import deepspeed
from bench.instruments import collectives
from bench.job import parse_job, to_json
from scripts.paths import ROOT
from tests import synthetic

#: The times of a way whose rounds took 1.5, 2 and 2.5 ms.
OF_ROUNDS = {"ms_a_further_token": 2.0, "rounds": [{"ms_a_further_token": ms} for ms in (2.0, 1.5, 2.5)]}


class Clock:
    """A clock that goes on by so many seconds each time it is read."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def library():
    done = []
    module = types.SimpleNamespace(all_reduce=lambda tensor, group=None: done.append(("library", tensor, group)), other=len)
    return module, done


@pytest.mark.parametrize(
    ("way", "expected"), [("library", ("library", "x", "g")), ("direct", ("torch", "x", "g")), ("left-out", None), ("unrecorded", ("library", "x", "g"))]
)
def test_a_way_replaces_the_all_reduce_and_puts_it_back(way, expected):
    module, done = library()
    original = module.all_reduce
    with collectives.replaced([module, module], way, lambda tensor, group: done.append(("torch", tensor, group))) as counts:
        module.all_reduce("x", group="g")
        assert [one.calls for one in counts] == [1], "one function under two names is counted once"
    assert module.all_reduce is original
    assert done == ([expected] if expected else [])


def test_a_further_token_has_the_all_reduces_and_the_time_that_a_longer_call_adds():
    counted = collectives.Counted(lambda: None, Clock(50e-6))

    def generate(new_tokens):
        for _ in range(7 + 60 * new_tokens):  # seven for the prompt
            counted()

    met = []
    told = collectives.decoded(generate, lambda: None, [counted], lambda: met.append(counted.calls))
    assert met == [0, 67], "the ranks meet before each call"
    assert told["all_reduces_a_token"] == 60
    assert told["host_us_an_all_reduce"] == pytest.approx(50)


def test_a_further_token_s_time_is_the_difference_of_two_calls_over_their_tokens(monkeypatch):
    monkeypatch.setattr(collectives.measure, "elapsed_ms", lambda call, synchronize: (10.0 + 3.0 * call.args[0], None))
    assert collectives.decoded(len, None, [], lambda: None)["ms_a_further_token"] == pytest.approx(3.0)


def test_a_model_that_is_not_split_has_no_all_reduce():
    told = collectives.decoded(lambda new_tokens: None, lambda: None, [collectives.Counted(len)], lambda: None)
    assert (told["all_reduces_a_token"], told["host_us_an_all_reduce"]) == (0, None)


def test_the_slowest_rank_counts_and_each_keeps_its_gpu_and_its_times():
    def rank(busy_ms, *rounds):
        return {"rounds": [{"ms_a_further_token": ms, "host_us_an_all_reduce": us} for ms, us in rounds], "gpu": {"busy_ms": busy_ms}}

    told = collectives.slowest([rank(1.0, (2.0, None), (8.0, 4.0), (5.0, None)), rank(2.0, (3.0, 9.0), (7.0, 5.0), (4.0, None))])
    assert [tuple(one.values()) for one in told["rounds"]] == [(3.0, 9.0), (8.0, 5.0), (5.0, None)], "of each round the slowest rank"
    assert (told["ms_a_further_token"], told["host_us_an_all_reduce"]) == (5.0, 7.0), "medians over the rounds"
    of_ranks = [(gpu["busy_ms"], gpu["ms_a_further_token"]) for gpu in told["gpus"]]
    assert of_ranks == [(1.0, [2.0, 8.0, 5.0]), (2.0, [3.0, 7.0, 4.0])], "without all-reduces one rank may be faster"
    assert collectives.slowest([rank(1.0, (2.0, None))])["host_us_an_all_reduce"] is None


@pytest.mark.parametrize(("torch", "refused"), [("2.1.2", True), ("2.2.0", False), ("2.11.0+cu130", False)])
def test_a_torch_that_keeps_no_records_cannot_leave_them_out(monkeypatch, torch, refused):
    monkeypatch.setattr(deepspeed.metadata, "version", lambda name: torch)
    job = types.SimpleNamespace(device="cuda", load={"torch_records": False})
    assert deepspeed.unsupported(job).startswith(f"torch {torch} keeps no records") is refused
    job.load = {}
    assert deepspeed.unsupported(job) == ""


def test_ranks_start_once_with_torch_s_records_and_once_without_where_torch_keeps_any(monkeypatch, tmp_path, capsys):
    started = []

    def start(count, job_path, out_path, module):
        records = parse_job(Path(job_path).read_text()).load["torch_records"]
        started.append((count, records))
        way = {"way": "library" if records else "unrecorded", "all_reduces_a_token": 60, "host_us_an_all_reduce": None, **OF_ROUNDS}
        Path(out_path).write_text(json.dumps({"ways": [way]}))
        return 0

    monkeypatch.setattr(collectives.ranks, "start", start)
    monkeypatch.setattr(collectives.metadata, "version", lambda name: "2.1.2")
    assert collectives.main(synthetic.job("deepspeed", 2), str(tmp_path / "out.json")) == 0
    assert started == [(2, True)] and "unrecorded is left out: torch 2.1.2 keeps no records" in capsys.readouterr().out
    started.clear()
    monkeypatch.setattr(collectives.metadata, "version", lambda name: "2.11.0")
    assert collectives.main(synthetic.job("deepspeed", 2), str(tmp_path / "out.json")) == 0
    assert started == [(2, True), (2, False)]
    assert [way["way"] for way in json.loads((tmp_path / "out.json").read_text())["ways"]] == ["library", "unrecorded"]
    assert "unrecorded    2.00 ms (1.50 to 2.50) a further token, 60 all-reduces" in capsys.readouterr().out


def test_what_was_measured_with_records_stays_where_the_start_without_them_fails(monkeypatch, tmp_path):
    def start(count, job_path, out_path, module):
        Path(out_path).unlink(missing_ok=True)
        if not parse_job(Path(job_path).read_text()).load["torch_records"]:
            return 7
        Path(out_path).write_text(json.dumps({"ways": [{"way": "library", "all_reduces_a_token": 60, "host_us_an_all_reduce": 9.0, **OF_ROUNDS}]}))
        return 0

    monkeypatch.setattr(collectives.ranks, "start", start)
    monkeypatch.setattr(collectives.metadata, "version", lambda name: "2.11.0")
    assert collectives.main(synthetic.job("deepspeed", 2), str(tmp_path / "out.json")) == 7
    assert [way["way"] for way in json.loads((tmp_path / "out.json").read_text())["ways"]] == ["library"]


def test_what_was_measured_with_records_stays_while_the_start_without_them_runs(monkeypatch, tmp_path):
    """A start removes the file of its ranks first; the whole program may be stopped before it ends."""

    def start(count, job_path, out_path, module):
        Path(out_path).unlink(missing_ok=True)
        if not parse_job(Path(job_path).read_text()).load["torch_records"]:
            raise KeyboardInterrupt
        Path(out_path).write_text('{"ways": [{"way": "library"}]}')
        return 0

    monkeypatch.setattr(collectives.ranks, "start", start)
    monkeypatch.setattr(collectives.metadata, "version", lambda name: "2.11.0")
    with pytest.raises(KeyboardInterrupt):
        collectives.main(synthetic.job("deepspeed", 2), str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text()) == {"ways": [{"way": "library"}]}


def test_where_the_first_start_fails_its_exit_code_is_the_program_s_and_nothing_else_starts(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(collectives.ranks, "start", lambda *arguments: started.append(arguments) or 7)
    monkeypatch.setattr(collectives.metadata, "version", lambda name: "2.11.0")
    assert collectives.main(synthetic.job("deepspeed", 2), str(tmp_path / "out.json")) == 7
    assert len(started) == 1 and not (tmp_path / "out.json").exists()


def test_the_command_line_takes_rows_and_says_which_job_it_needs(tmp_path):
    (tmp_path / "job.json").write_text(to_json(synthetic.job("int8")))
    command = [sys.executable, "-m", "bench.instruments.collectives", str(tmp_path / "job.json"), str(tmp_path / "out.json"), "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "the job is of inference-tools/int8 (backend int8, random weights, GPUS=1); take a job of deepspeed on at least 2 GPUs"
