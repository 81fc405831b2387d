"""instrument: let an instrument of the guest examine a case of an article."""

import dataclasses
import sys

import click

from scripts import articles, pins
from scripts.commands.measure import measuring, refuse_more_than_one_call
from scripts.errors import KitError, UsageError, shown
from scripts.names import nearest
from scripts.run import instruments, plan
from scripts.run.options import Options


@click.command
@click.argument("slug", metavar="INSTRUMENT")
@measuring
def instrument(slug: str, asked: Options) -> int:
    """Let an instrument examine a case in its pinned image: CASES names the case, BATCH_SIZES the batches in place of the article's."""
    if slug not in instruments.names():
        allowed = ", ".join(instruments.names())
        raise UsageError(
            f"there is no instrument {slug!r} that examines a case, allowed are {allowed}; try make instrument-{nearest(slug, instruments.names())}"
        )
    refuse_more_than_one_call(asked, "instrument", f"bench-all CASES={','.join(asked.cases) or 'deepspeed'}", f"instrument-{slug}", "examines")
    if len(asked.cases) != 1:
        cases = ", ".join(case.name for case in articles.find(asked.article or "inference-tools").cases)
        raise UsageError(f"CASES is {','.join(asked.cases)!r} with instrument, allowed is one of {cases}; try CASES=deepspeed")
    planned = plan.plan(_backends_of(asked), asked, every=False)
    pins.load().image(planned[0].case.backend, planned[0].stack).refuse_other_lock()
    worst = 0
    for size in asked.batch_sizes or [None]:
        sized = dataclasses.replace(planned[0], batch_size=size)
        print(f"{slug} on {sized.title}", file=sys.stderr, flush=True)
        try:
            print(f"  {instruments.examine(slug, sized, asked)}", flush=True)
        except KitError as error:
            if not asked.batch_sizes or size == asked.batch_sizes[-1]:
                raise
            print(f"  error: {shown(error)}", file=sys.stderr)
            worst = max(worst, error.exit_code)
    return worst


def _backends_of(asked: Options) -> list[str]:
    """The backend of the case that was typed; all of the article's where it has no such case, so that the plan says what there is."""
    cases = articles.find(asked.article or "inference-tools").cases
    return list(dict.fromkeys(case.backend for case in cases if case.name in asked.cases or not any(other.name in asked.cases for other in cases)))
