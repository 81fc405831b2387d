"""demo: run every backend that a CPU can run, on tiny random models, and write a report.

The demo works like `bench`: jobs as data, a process for each job, results checked when they return, the report made only from results.
Its results say nothing about a GPU and are not stored under reports/runs.
"""

import contextlib
import shutil
import sys
from collections.abc import Iterable, Iterator

import click

from scripts import articles, pins, results
from scripts.errors import KitError, PreflightError
from scripts.machine import locks, signals
from scripts.paths import ROOT
from scripts.report import document
from scripts.results.output import check_of
from scripts.run import clocks as comparing
from scripts.run import plan, rounds
from scripts.run.engines import demo_environments
from scripts.run.options import Options
from scripts.run.runner import Planned
from scripts.units import counted

DEMO = ROOT / "reports" / "demo"


@click.command
def demo() -> None:
    """Run every backend that a CPU can run on tiny random models; write the report to reports/demo."""
    with signals.raised(), _alone():
        run_demo()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Within the block no other demo runs in this clone: each begins with an empty folder. Raises KitError where that folder cannot be made."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locks.held(DEMO.with_name(".demo.lock"), why="another demo runs in this clone"))
        except OSError as error:
            raise KitError(f"{DEMO.parent} cannot be written ({error.strerror}); make it writable, and type make demo again") from error
        yield


def _is_bad(record: results.Record) -> bool:
    """Did a job fail, or give a wrong output? One that this machine does not support did neither: the README names those."""
    return record.status in ("failed", "timeout", "oom") or (check_of(record) or {}).get("passed") is False


def run_demo() -> None:
    """Run the demo; raises KitError after the last job where some jobs could not run, failed, or gave a wrong output."""
    options = Options(article="demo", engine="host", device="cpu", scale="tiny", weights="random", folder=DEMO / "runs")
    loaded = pins.load()
    images = {name: loaded.image(name, demo_environments.STACK) for name in demo_environments.backends()}
    planned = _in_order_of_article(plan.plan(list(images), options, every=True))
    for image in images.values():
        image.refuse_other_lock()
    _clear()
    errors = _errors_of_environments(images[job.case.backend].environment for job in planned)
    able = [job for job in planned if images[job.case.backend].environment not in errors]
    records: list[results.Record] = []
    if able:
        print(f"{counted(len(able), 'job')} on this machine's CPU", file=sys.stderr)
        records = rounds.run_all(able, options, keep_going=True)
        document.write(DEMO / "runs", DEMO)
    for error in errors.values():
        words = f"{error}; {len(planned) - len(able)} of {len(planned)} jobs were left out"
        if not able or not isinstance(error, PreflightError):
            raise type(error)(words)
        print(f"note: {words}", file=sys.stderr)  # a missing Python, as the README says
    if bad := [record for record in records if _is_bad(record)]:
        raise KitError(f"{counted(len(bad), 'job')} of {len(able)} failed or gave a wrong output; the report says why: {DEMO / 'REPORT.md'}")


def _in_order_of_article(planned: list[Planned]) -> list[Planned]:
    """The jobs of backends that the article does not name come last."""
    order = [case.name for case in articles.find("demo").cases]
    return sorted(planned, key=lambda job: order.index(job.case.name) if job.case.name in order else len(order))


def _clear() -> None:
    """Remove the last demo, and say so where it had a report."""
    if (DEMO / "REPORT.md").exists():
        print(f"note: the demo starts anew and removes the report of the last one, {DEMO / 'REPORT.md'}", file=sys.stderr)
    shutil.rmtree(DEMO, ignore_errors=True)


def _errors_of_environments(names: Iterable[str]) -> dict[str, KitError]:
    """Make environments, each once; {name: why it cannot be made}."""
    errors: dict[str, KitError] = {}
    for name in dict.fromkeys(names):
        try:
            demo_environments.ensure(name)
        except KitError as error:
            errors[name] = error
    return errors


@click.command
def clocks() -> None:
    """Time tiny models alternately with the articles' own loops and with the kit; print the ratios."""
    with signals.raised():
        comparing.compare_all()
