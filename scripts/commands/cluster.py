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
    """Show how far the tasks of SCHEDULER=slurm are, from SLURM's queue and the results.

    A failed task that was submitted again is shown only there.
    """
    folders = [runs] if runs else [results.RUNS, results.TRIALS]
    submitted = [(submission, folder) for folder in folders for submission in submissions.load_all(folder)]
    if not submitted:
        print(f"no task was submitted from {folders[0]}; type make article-inference-tools SCHEDULER=slurm")
        return
    jobs = client.queue(submission.name for submission, _ in submitted)
    for number, (submission, folder) in enumerate(submitted):
        later = [task for other, _ in submitted[number + 1 :] for task in other.tasks if other.site == submission.site]
        tasks = [Watched(submission, index, folder) for index in range(len(submission.tasks))]
        now = [(task, states.of(task, jobs)) for task in tasks]
        shown = [(task, state) for task, state in now if state.word != states.FAILED or task.task not in later]
        if shown:
            print(f"{submission.name}, {states.summary(state for _, state in shown)}")
        for task, state in shown:
            if state.word != states.DONE:
                print(f"  {task.task.title}: {state.word}{f' ({state.more})' if state.more else ''}")
