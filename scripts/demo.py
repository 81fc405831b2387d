"""python -m scripts.demo: every backend that a CPU can run, on tiny random models, and a report of it.

It takes the same way as `make bench-…`: jobs as data, a process for each, results checked on return, the report from the
results alone. Its results say nothing about a GPU and are not kept under reports/runs.
"""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from scripts import articles, bench, demo_env, options, pins, report
from scripts.errors import KitError, PreflightError, run_command

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "reports" / "demo"


def make_environments(names: Iterable[str]) -> dict[str, KitError]:
    """Make each environment, once; {name: why it cannot be made} of those that cannot."""
    refused = {}
    for name in names:
        try:
            demo_env.ensure(name)
        except KitError as error:
            refused[name] = error
    return refused


def tell(refused: list[KitError], left_out: str, ran: bool) -> None:
    """What this machine has no Python for is a note where other jobs ran, as the README says; anything else is an error."""
    failed = [error for error in refused if not (ran and isinstance(error, PreflightError))]
    if failed:
        raise type(failed[0])(f"{failed[0]}; {left_out}")
    print(f"note: {refused[0]}; {left_out}", file=sys.stderr)


def main() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    asked = options.parse({"ARTICLE": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"})
    known = pins.load()
    backends = [name for name in known.backends if "demo" in known.backends[name]["stacks"]]
    environment_of = {name: known.image(name, "demo").environment for name in backends}
    planned = bench.plan(backends, asked, every=True)
    order = [case.name for case in articles.find("demo").cases]
    planned.sort(key=lambda one: order.index(one.case.name) if one.case.name in order else len(order))
    refused = make_environments(dict.fromkeys(environment_of[one.case.backend] for one in planned))
    able = [one for one in planned if environment_of[one.case.backend] not in refused]
    if able:
        print(f"{len(able)} jobs on this machine's CPU", file=sys.stderr)
        bench.run_all(able, asked, DEMO / "runs", keep_going=True)
        report.write(DEMO / "runs", DEMO)
    if refused:
        tell(list(refused.values()), f"{len(planned) - len(able)} of {len(planned)} jobs were left out", ran=bool(able))


if __name__ == "__main__":
    run_command(main)
