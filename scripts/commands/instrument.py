"""instrument: let an instrument examine a case of an article."""

import dataclasses
import sys

import click

from scripts import articles
from scripts.commands.measure import OF_SEVERAL_CALLS, hiding, measuring, refuse_more_than_one_call, refuse_other_locks
from scripts.errors import KitError, NothingRuns, UsageError, shown
from scripts.names import nearest
from scripts.run import instruments, plan, rounds
from scripts.run.options import Options
from scripts.run.runner import Planned


@hiding(*OF_SEVERAL_CALLS, "force", "timed_runs")
@click.command
@click.argument("slug", metavar="INSTRUMENT")
@measuring
def instrument(slug: str, asked: Options) -> int:
    """Let an instrument examine a case in its pinned image: CASES names the case, BATCH_SIZES the batches in place of the article's."""
    return of(slug, asked)


def of(slug: str, asked: Options) -> int:
    """The exit code of the instrument `slug` on the case that was asked for. Raises UsageError, or KitError where a single batch fails."""
    if slug not in instruments.names():
        allowed = ", ".join(instruments.names())
        raise UsageError(
            f"there is no instrument {slug!r} that examines a case, allowed are {allowed}; try make instrument-{nearest(slug, instruments.names())}"
        )
    cases = articles.find(asked.article or "inference-tools").cases
    of_article = [case.name for case in cases]
    example = nearest(",".join(asked.cases), of_article)
    refuse_more_than_one_call(dataclasses.replace(asked, cases=asked.cases or (example,)), "instrument", "bench-all", f"instrument-{slug}", "examines")
    if asked.force:
        raise UsageError("FORCE is 1 with instrument, which examines anew each time; leave FORCE out")
    if asked.timed_runs:
        raise UsageError(f"TIMED_RUNS is {asked.timed_runs} with instrument, which makes its own number of calls or the case's; leave TIMED_RUNS out")
    if len(asked.cases) != 1:
        raise UsageError(f"CASES is {','.join(asked.cases)!r} with instrument, allowed is one of {', '.join(of_article)}; try CASES={example}")
    # Where the article has no such case, the plan gets all its backends, so that its error lists the cases.
    of_case = [case for case in cases if case.name in asked.cases] or cases
    planned = plan.plan(list(dict.fromkeys(case.backend for case in of_case)), asked, every=False)
    refuse_other_locks(planned, asked)
    rounds.sweep(asked)
    return _examine(slug, planned[0], asked)


def _examine(slug: str, planned: Planned, asked: Options) -> int:
    """Let an instrument examine a case in each batch size. Where one fails, that is printed and the next one goes on, unless none can start."""
    sizes, worst = asked.batch_sizes or (None,), 0
    for size in sizes:
        sized = dataclasses.replace(planned, batch_size=size)
        print(f"{slug} on {sized.title}", file=sys.stderr, flush=True)
        try:
            print(f"  {instruments.examine(slug, sized, asked)}", flush=True)
        except (UsageError, NothingRuns):
            raise
        except KitError as error:
            if len(sizes) == 1:
                raise
            print(f"  error: {shown(error)}", file=sys.stderr)
            worst = max(worst, error.exit_code)
    return worst
