"""python -m scripts.demo: every backend that a CPU can run, on tiny random models, and a report of it.

It takes the same way as `make bench-…`: jobs as data, a process for each, results checked on return, the report from the
results alone. Its results say nothing about a GPU and are not kept under reports/runs.
"""

import shutil
import sys
from pathlib import Path

from scripts import articles, bench, options, pins, report
from scripts.errors import run_command

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "reports" / "demo"


def main() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    asked = options.parse({"ARTICLE": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"})
    known = pins.load()
    backends = [name for name in known.backends if "demo" in known.backends[name]["stacks"]]
    planned = bench.plan(backends, asked, every=True)
    order = [case.name for case in articles.find("demo").cases]
    planned.sort(key=lambda one: order.index(one.case.name) if one.case.name in order else len(order))
    print(f"{len(planned)} jobs on this machine's CPU", file=sys.stderr)
    bench.run_all(planned, asked, DEMO / "runs", keep_going=True)
    report.write(DEMO / "runs", DEMO)


if __name__ == "__main__":
    run_command(main)
