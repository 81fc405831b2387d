"""python -m scripts.commands.demo: every backend that a CPU can run, on tiny random models, and a report of it.

It takes the same way as `make bench-…`: jobs as data, a process for each, results checked on return, the report from the
results alone. Its results say nothing about a GPU and are not kept under reports/runs.
"""

import shutil
import sys
from collections.abc import Iterable

from scripts import articles, pins
from scripts.errors import KitError, run_command
from scripts.paths import ROOT
from scripts.report import document
from scripts.run import options, plan
from scripts.run.engines import demo_environments

DEMO = ROOT / "reports" / "demo"


def make_environments(names: Iterable[str]) -> dict[str, KitError]:
    """Make each environment, once; {name: why it cannot be made} of those that cannot."""
    refused = {}
    for name in names:
        try:
            demo_environments.ensure(name)
        except KitError as error:
            refused[name] = error
    return refused


def main() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    asked = options.parse({"ARTICLE": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"})
    known = pins.load()
    backends = [name for name in known.backends if "demo" in known.backends[name]["stacks"]]
    environment_of = {name: known.image(name, "demo").environment for name in backends}
    planned = plan.plan(backends, asked, every=True)
    order = [case.name for case in articles.find("demo").cases]
    planned.sort(key=lambda one: order.index(one.case.name) if one.case.name in order else len(order))
    refused = make_environments(dict.fromkeys(environment_of[one.case.backend] for one in planned))
    able = [one for one in planned if environment_of[one.case.backend] not in refused]
    if able:
        print(f"{len(able)} jobs on this machine's CPU", file=sys.stderr)
        plan.run_all(able, asked, DEMO / "runs", keep_going=True)
        document.write(DEMO / "runs", DEMO)
    if refused:
        first = next(iter(refused.values()))
        raise type(first)(f"{first}; {len(planned) - len(able)} of {len(planned)} jobs were left out")


if __name__ == "__main__":
    run_command(main)
