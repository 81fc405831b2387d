"""The articles' own loops run beside the kit's clock. How near they are is for a quiet machine to say (make clocks)."""

import dataclasses

import pytest

from bench.job import to_json
from scripts.run import clocks


def beside_the_articles_loop(guest, checkpoints, instrument="clocks_batches", **settings):
    """What an instrument prints for five rounds."""
    job = dataclasses.replace(clocks.job_of(instrument), id="clocks")
    path = guest.folder / "clocks.json"
    path.write_text(to_json(dataclasses.replace(job, model={**job.model, "path": str(checkpoints[job.model["architecture"]])})))
    done = guest.command("-m", f"bench.instruments.{instrument}", str(path), str(guest.folder / "out.json"), "5", **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("instrument", clocks.COMPARED)
def test_the_articles_own_loop_runs_beside_the_kits_row(guest, checkpoints, instrument):
    """How near they are is for a quiet machine to say (make clocks); that both make the same work of the same texts is seen here."""
    printed = beside_the_articles_loop(guest, checkpoints, instrument)
    assert "over 5 rounds" in printed
    # The median: one round of a busy machine says nothing.
    ratio = float(printed.partition("median ")[2].rstrip(")\n"))
    assert 0.2 < ratio < 5


def test_the_rounds_beside_the_articles_loop_are_as_many_as_the_time_allows(guest, checkpoints):
    assert "over 1 rounds" in beside_the_articles_loop(guest, checkpoints, LIMIT_S="0.01")
