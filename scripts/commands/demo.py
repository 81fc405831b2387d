"""demo: every backend that a CPU can run, on tiny random models, and a report of it.

It takes the same way as `bench`: jobs as data, a process for each, results checked on return, the report from the results
alone. Its results say nothing about a GPU and are not kept under reports/runs.
"""

import shutil
import sys
from collections.abc import Iterable

import click

from scripts import articles, pins
from scripts.errors import KitError, PreflightError
from scripts.machine import signals
from scripts.paths import ROOT
from scripts.report import document
from scripts.run import clocks as comparing
from scripts.run import plan
from scripts.run.engines import demo_environments
from scripts.run.options import Options

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


def tell(refused: list[KitError], left_out: str, ran: bool) -> None:
    """A missing Python is a note where other jobs ran, as the README says; anything else is raised."""
    failed = [error for error in refused if not (ran and isinstance(error, PreflightError))]
    if failed:
        raise type(failed[0])(f"{failed[0]}; {left_out}")
    print(f"note: {refused[0]}; {left_out}", file=sys.stderr)


@click.command
def demo() -> None:
    """Run every backend that a CPU can run on tiny random models; the report lies in reports/demo."""
    with signals.raised():
        run_demo()


def run_demo() -> None:
    """Run the demo; raises KitError where some of its jobs could not run, after the others."""
    shutil.rmtree(DEMO, ignore_errors=True)
    asked = Options(article="demo", engine="host", device="cpu", scale="tiny", weights="random", folder=DEMO / "runs")
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
        plan.run_all(able, asked, keep_going=True)
        document.write(DEMO / "runs", DEMO)
    if refused:
        tell(list(refused.values()), f"{len(planned) - len(able)} of {len(planned)} jobs were left out", ran=bool(able))


@click.command
def clocks() -> None:
    """Time tiny models by the articles' own loops and by the kit, in turn; print the ratios."""
    with signals.raised():
        comparing.compare_all()
