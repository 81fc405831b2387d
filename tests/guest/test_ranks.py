"""Backends of several processes, here two that share a CPU: one result, and none that waits for one that failed."""

import json
import shutil
import time

import pytest

from bench.job import parse_result, to_json
from tests.guest.conftest import ROOT
from tests.guest.samples import tiny_job

#: Stands for one whose processes wait for each other on GPUs, where a wait for one that is gone lasts ten minutes.
BACKEND = """
import time

import torch.distributed

from bench.measuring import ranks
from bench.backends import transformers

RANKS = True
ARGUMENTS = ("fails",)


def unsupported(job):
    return ""


def load(job):
    if "fails" in job.load:
        if ranks.local() == job.load["fails"]:
            raise MemoryError("no room")
        time.sleep(600)
    torch.distributed.init_process_group("gloo")
    return transformers.load(job)
"""

FORM = """
from bench.measuring import ranks

LOADS = False


def run(job, loaded, say):
    return [], None, {"ranks": {"inside": ranks.inside(), "total": ranks.total(), "local": ranks.local()}}
"""


@pytest.fixture
def ranked(guest, tmp_path):
    """Runs a job in a copy of the guest that has this backend and this form."""
    shutil.copytree(ROOT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bench" / "backends" / "ranked.py").write_text(BACKEND)
    (tmp_path / "bench" / "forms" / "unloaded.py").write_text(FORM)

    def run(job):
        (tmp_path / "job.json").write_text(to_json(job))
        (tmp_path / "result.json").write_text("of an earlier run")
        done = guest.command("-m", "bench", "job.json", "result.json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return parse_result((tmp_path / "result.json").read_text()), done

    return run


def ranked_job(checkpoints, **changes):
    return tiny_job("bloom", checkpoints["bloom"], backend="ranked", device_count=2, **changes)


def test_two_ranks_give_one_result(ranked, checkpoints, references):
    result, done = ranked(ranked_job(checkpoints, reference=references["bloom"]))
    assert result.status == "ok" and result.check["passed"], (result.reason, done.stderr)
    assert [len(one["timed_ms"]) for one in result.measurements] == [3, 3]
    told = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    assert [event["status"] for event in told if "status" in event] == ["ok"], "only the first rank tells"


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_rank_that_fails_tells_why_and_leaves_none_waiting(ranked, checkpoints, rank):
    began = time.monotonic()
    result, _ = ranked(ranked_job(checkpoints, load={"dtype": "float32", "fails": rank}))
    assert (result.status, result.reason) == ("oom", "no room")
    assert time.monotonic() - began < 200


def test_a_form_that_loads_no_model_runs_in_one_process_whatever_the_backend(ranked, checkpoints):
    result, _ = ranked(ranked_job(checkpoints, form="unloaded"))
    assert result.status == "ok", result.reason
    assert result.figures["ranks"] == {"inside": False, "total": 1, "local": 0}
