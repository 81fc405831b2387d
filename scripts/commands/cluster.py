"""status: how far the tasks that a cluster got are."""

from pathlib import Path

import click

from scripts import results
from scripts.commands.measure import RUNS
from scripts.run.slurm import client, states, submissions
from scripts.run.slurm.states import Watched


@click.command
@RUNS
def status(runs: Path | None) -> None:
    """Show how far the tasks of SCHEDULER=slurm are, from SLURM's queue and the results."""
    folders = [runs] if runs else [results.RUNS, results.TRIALS]
    submitted = [(submission, folder) for folder in folders for submission in submissions.load_all(folder)]
    if not submitted:
        print(f"no task was submitted from {folders[0]}; type make article-inference-tools SCHEDULER=slurm")
        return
    jobs = client.queue(submission.name for submission, _ in submitted)
    for submission, folder in submitted:
        tasks = [Watched(submission, index, folder) for index in range(len(submission.tasks))]
        now = [states.of(task, jobs) for task in tasks]
        print(f"{submission.name}, {states.summary(now)}")
        for task, state in zip(tasks, now, strict=True):
            if state.word != states.DONE:
                print(f"  {task.task.title}: {state.word}{f' ({state.more})' if state.more else ''}")
