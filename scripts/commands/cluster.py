"""status, manifest: what runs on a cluster."""

import functools
import sys
from pathlib import Path
from typing import Any

import click

from scripts import pins, results
from scripts.commands.images import REGISTRY, checked_registry
from scripts.commands.measure import OF_ROWS, options_of, with_choices
from scripts.commands.values import RUNS
from scripts.errors import KitError, UsageError
from scripts.images import registry as through_registry
from scripts.run import host_facts, kubernetes, plan
from scripts.run.slurm import client, states, submissions


@click.command
@RUNS
def status(runs: Path | None) -> None:
    """Show which tasks of SCHEDULER=slurm wait, run or failed, from SLURM's queue and the results.

    A failed task that was submitted again is shown only there.
    """
    folders = [runs] if runs else [results.RUNS, results.WITHOUT_CONTAINERS, results.TRIALS]
    submitted = [(submission, folder) for folder in folders for submission in submissions.load_all(folder)]
    if not submitted:
        if runs and not runs.is_dir():
            raise UsageError(f"RUNS is {str(runs)!r}, which is no folder; type RUNS=reports/runs, or leave RUNS out")
        print(f"no task was submitted from {folders[0]}; type make article-inference-tools SCHEDULER=slurm")
        return
    jobs = client.queue(submission.name for submission, _ in submitted)
    for number, (submission, folder) in enumerate(submitted):
        later = [task for other, _ in submitted[number + 1 :] for task in other.tasks if other.site == submission.site]
        now = [(task, states.of(task, jobs)) for task in states.tasks_of(submission, folder)]
        shown = [(task, state) for task, state in now if state.word != states.FAILED or task.task not in later]
        if shown:
            print(f"{submission.name}, {states.summary(state for _, state in shown)}")
        for task, state in shown:
            if state.word != states.DONE:
                print(f"  {task.task.title}: {state.word}{f' ({state.more})' if state.more else ''}")


@click.command
@click.argument("backend")
@REGISTRY
@functools.partial(with_choices, choices=OF_ROWS)
def manifest(backend: str, registry: str, **typed: Any) -> None:
    """Print a Kubernetes Job that measures the cases of a backend in its image of a registry."""
    asked, repository, loaded = options_of(typed), checked_registry(registry), pins.load()
    planned = plan.plan([backend], asked, every=False, verb="manifest")
    reference = through_registry.reference(loaded.image(backend, planned[0].stack), repository)
    commit, dirty = host_facts.git_state()
    if commit == "unknown":
        raise KitError("the kit's commit is unknown, and a manifest must name it; type the same in a clone of the kit")
    print(kubernetes.manifest(planned, asked, loaded, reference, commit), end="")
    if dirty:
        print("note: some changes of the kit are not committed; the Job runs without them", file=sys.stderr)
    if "@sha256:" not in reference:
        print(f"note: docker/digests.json has no digest of the image, so the Job names the image's tag; type make push REGISTRY={repository}", file=sys.stderr)
