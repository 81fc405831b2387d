"""`make instrument-…` on real tiny models: what an instrument found is stored with the job and the machine, and a failure is one line."""

import json
import os
import subprocess
import sys

import pytest

from tests.guest.conftest import ROOT

SETTINGS = {"STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random", "GPUS": "1"}


@pytest.fixture
def examine(tmp_path, models):
    """Runs the command; its results lie in tmp_path/instruments, beside the folder of runs."""

    def run(name, **settings):
        environment = os.environ | SETTINGS | {"RUNS": str(tmp_path / "runs"), "MODELS": str(models)} | settings
        return subprocess.run([sys.executable, "-m", "scripts", "instrument", name], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    return run


def test_an_instrument_s_answers_are_stored_one_beside_the_other_with_job_machine_and_commit(examine, tmp_path):
    for _ in range(2):
        done = examine("layers", CASES="layer-parallel")
        assert done.returncode == 0, done.stdout + done.stderr
    assert "with_mask first layer 0" in done.stdout and "Loading weights" not in done.stdout
    first, second = sorted((tmp_path / "instruments").iterdir())
    assert (first.name[-8:], second.name[-8:]) == ("-01.json", "-02.json") and str(second) in done.stdout
    told = json.loads(second.read_text())
    assert told["instrument"] == "layers" and told["found"]["with_mask"]["logits"] == 0
    assert told["job"]["case"] == "layer-parallel" and told["job"]["model"]["path"].startswith("models/random/")
    assert told["host"]["engine"] == "host" and len(told["host"]["commit"]) == 40 and told["host"]["machine"]["cpu_count"] == os.cpu_count()
    assert told["host"]["pins_id"] and told["host"]["wall_s"] > 0
    assert not any((tmp_path / name).exists() for name in ("runs/result.json", "instruments/work"))


def test_a_case_that_does_not_fit_is_one_line_whatever_its_batches_are(examine, tmp_path):
    done = examine("collectives", CASES="transformers", BATCH_SIZES="1,2")
    assert done.returncode == 2 and not (tmp_path / "instruments").exists()
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "the job is of inference-tools/transformers (backend transformers, random weights, GPUS=1); take a job of deepspeed on at least 2 GPUs" in line


def test_the_threads_of_tensor_parallel_are_timed_in_each_way_by_the_command(examine, tmp_path):
    done = examine("threads", CASES="tensor-parallel", GPUS="2", BATCH_SIZES="2")
    assert done.returncode == 0, done.stdout + done.stderr
    ((path,),) = [list((tmp_path / "instruments").iterdir())]
    found = json.loads(path.read_text())["found"]
    assert (found["rows"], found["gpus"], found["prompt_tokens"], [way["way"] for way in found["ways"]]) == (
        2,
        2,
        128,
        ["library", "switching", "left-out", "one-thread", "alone"],
    )
    assert all(len(way["rounds"]) == 5 and way["ms_a_call"] == sorted(way["rounds"])[2] > 0 for way in found["ways"])
    assert all(way["devices"]["0"]["busy_ms"] > 0 for way in found["ways"])
    assert "one-thread" in done.stdout
