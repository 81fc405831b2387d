"""The job of an article's published case, for a program in a guest's interpreter: the kit's own interpreter reads the articles.

    python -m tests.asked ARTICLE CASE BATCH DEVICE COUNT

prints the job as JSON.
"""

import subprocess
import sys
from pathlib import Path

from bench.job import Job, parse_job, to_json

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"


def published(article: str, case: str, batch: int, device: str, count: int) -> Job:
    """The job as the kit would ask for it on the stack `current` with random weights, tiny ones on a CPU."""
    if not PYTHON.exists():
        sys.exit(f"error: {PYTHON} is missing; type make .venv/.run")
    command = [str(PYTHON), "-m", "tests.asked", article, case, str(batch), device, str(count)]
    return parse_job(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main(slug: str, case_name: str, batch: str, device: str, count: str) -> None:
    from scripts import articles
    from scripts.run import jobs

    article = articles.find(slug)
    (case,) = [case for case in article.cases if case.name == case_name]
    target = jobs.Target("current", device, int(count), "random", "full" if device == "cuda" else "tiny")
    print(to_json(jobs.measuring_job(article, case, "published", target, jobs.Typed(batch_size=int(batch)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
