"""A whole run is killed, kit and guest: the next `make` of the same goes on where it stood."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bench.measuring.answers_file import NAME
from tests.guest.conftest import ROOT

#: Runs the article's workload as `make article-batch-generate` does, with short texts and answers of a token or two.
PROGRAM = """
import dataclasses, os, sys
from scripts import articles, surroundings
from scripts.run import plan, rounds
from tests.typed import chosen
surroundings.use(os.environ)
article = articles.find("batch-generate")
answers, prompts = {"median": 1, "sigma": 0.5, "least": 1, "most": 2}, {"median": 8, "sigma": 0.3, "least": 4, "most": 12}
article = dataclasses.replace(article, options={**article.options, "answer_tokens": answers, "prompt_tokens": prompts})
settings = {"ARTICLE": "batch-generate", "STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random", "CASES": "workload-naive", "ITEMS": "3072"}
asked = chosen(**settings, RUNS=sys.argv[1])
articles.find = lambda slug: article
(record,) = rounds.run_all(plan.plan(["transformers"], asked, every=True), asked, keep_going=False)
print(record.status)
"""


@pytest.mark.full  # half a minute
def test_a_killed_run_leaves_its_answers_to_the_next_and_that_one_ends_with_all_of_them_once(models, tmp_path):
    runs = tmp_path / "runs"
    command = [sys.executable, "-c", PROGRAM, str(runs)]
    settings = {**os.environ, "MODELS": str(models)}

    def written():
        """The answers of a run that is still going, or was killed."""
        return [folder / "work" / NAME for folder in runs.glob("*") if (folder / "work" / NAME).exists()]

    first = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not any(file.read_bytes().count(b"\n") > 2 for file in written()) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, "it ended before it could be killed"
    (left,) = written()
    answered = left.read_bytes().count(b"\n") - 1

    second = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=500)
    assert second.returncode == 0 and second.stdout.splitlines()[-1] == "ok", second.stderr
    assert "did not finish" in second.stderr and "3,072 of 3,072 items" in second.stderr
    (kept,) = runs.glob(f"*/{NAME}")
    assert kept.parent.name.endswith("-02")
    lines = [json.loads(line) for line in kept.read_text().splitlines()][1:]
    assert sorted(item[0] for line in lines for item in line["items"]) == list(range(3072))
    record = json.loads((kept.parent / "result.json").read_text())
    assert record["guest"]["figures"]["workload"]["resumed"] is True and len(lines) > answered
    assert len(record["guest"]["measurements"][0]["timed_ms"]) == len(lines) == 12, "batches of 256"
