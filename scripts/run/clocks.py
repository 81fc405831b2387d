"""The kit's clock beside the articles' own loops, on tiny models and this machine's CPU (bench/instruments/clocks.py)."""

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.job import Job, to_json
from scripts import articles, pins
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.run import checkpoints, engines, jobs
from scripts.run.engines import demo_environments, host
from scripts.run.options import Options

#: {instrument: (article, case, batch size, rounds)}
COMPARED = {
    "clocks_latency": ("inference-tools", "transformers", None, 75),
    "clocks_batches": ("batch-generate", "batch", 4, 30),
    "clocks_tokens": ("deepspeed-inference", "accelerate-fp16", 4, 30),
}


def job_of(instrument: str) -> Job:
    """The tiny job that an instrument gets; its checkpoint is not there yet."""
    slug, name, batch_size, _ = COMPARED[instrument]
    article = articles.find(slug)
    case = next(case for case in article.cases if case.name == name)
    target = jobs.Target(demo_environments.STACK, "cpu", 1, "random", "tiny")
    return dataclasses.replace(jobs.measuring_job(article, case, "published", target, jobs.Typed(batch_size)), id=instrument)


def compare(instrument: str) -> None:
    """Run an instrument, which prints its ratio. Raises KitError where it fails."""
    asked = Options(engine="host", device="cpu", scale="tiny", weights="random", stack=demo_environments.STACK)
    job = job_of(instrument)
    engine = engines.choose(pins.load().image("transformers", demo_environments.STACK), [], asked)
    engine.prepare()
    checkpoint = checkpoints.random_checkpoint(engine, job, lambda line: None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.json")
        path.write_text(to_json(dataclasses.replace(job, model={**job.model, "path": str(checkpoint)})), encoding="utf-8")
        command = [str(demo_environments.ensure("common")), "-m", f"bench.instruments.{instrument}", str(path), str(Path(folder, "out.json"))]
        done = subprocess.run([*command, str(COMPARED[instrument][3])], cwd=ROOT, env=host.environment([]), stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise KitError(f"{instrument} ended with {done.returncode}: {said[-1]}")


def compare_all() -> None:
    """Run every instrument, one after another."""
    for number, instrument in enumerate(COMPARED, 1):
        print(f"[{number} of {len(COMPARED)}] {instrument}", file=sys.stderr, flush=True)
        compare(instrument)
