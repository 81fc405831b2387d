"""How far tasks are: from their receipts, and from SLURM's queue."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.run.slurm import tasks
from scripts.run.slurm.client import Job
from scripts.run.slurm.submissions import Submission
from scripts.run.slurm.tasks import Task
from scripts.units import counted

QUEUED, RUNS, DONE, FAILED = "queued", "running", "done", "failed"
#: In the order in which they are shown.
STATES = (DONE, FAILED, RUNS, QUEUED)


@dataclasses.dataclass(frozen=True)
class Watched:
    """A task of a submission, and the job that is to run it; `runs` is the folder of results."""

    submission: Submission
    index: int
    runs: Path

    @property
    def task(self) -> Task:
        return self.submission.tasks[self.index]

    def jobs(self, jobs: Iterable[Job]) -> list[Job]:
        """Those that run this task or ran it, oldest first."""
        return [job for job in jobs if (job.name, job.index) == (self.submission.name, self.index)]

    @property
    def has_ended_well(self) -> bool:
        return self.submission.is_done(self.index, self.runs)


def tasks_of(submission: Submission, runs: Path) -> list[Watched]:
    """All tasks of a submission."""
    return [Watched(submission, index, runs) for index in range(len(submission.tasks))]


@dataclasses.dataclass(frozen=True)
class State:
    """`word` is one of STATES, `more` what else is known: the node, SLURM's reason, how the task ended.

    `may_have_a_receipt`: the task ended by itself, and its receipt is not to be seen, at least not yet.
    """

    word: str
    more: str = ""
    job: Job | None = None
    may_have_a_receipt: bool = False


def of(watched: Watched, jobs: Sequence[Job]) -> State:
    """How far a task is. `jobs` are those that SLURM still knows; a task that SLURM has forgotten has ended."""
    own = watched.jobs(jobs)
    job = own[-1] if own else None
    if job and job.waits:
        return State(QUEUED, job.reason if job.reason != "None" else "", job)
    receipt = watched.submission.receipt(watched.index)
    if job and job.runs and receipt is None:
        return State(RUNS, f"on {job.node}", job)
    if receipt:
        counts = Counter(receipt.values())
        word = DONE if watched.has_ended_well else FAILED
        return State(word, ", ".join(f"{count} {status}" for status, count in counts.items()), job)
    return State(FAILED, _without_receipt(watched, job), job, may_have_a_receipt=bool(job and job.ended_by_itself))


def _without_receipt(watched: Watched, job: Job | None) -> str:
    """Why a task left no receipt, in words."""
    ended = f"SLURM says {job.state}" + (f" on {job.node}" if job.node else "") if job else "SLURM no longer knows the task"
    log = watched.submission.log(watched.index)
    if log.is_file():
        last = tasks.last_error(log)
        return f"{ended}; {last[:300] + '; ' if last else ''}its log is {log}"
    if job and job.state == "CANCELLED":
        return f"{ended}, before it began"
    return f"{ended}, and it left no log in {log.parent}: where the nodes do not share that folder, type RUNS=/folder/that/all/nodes/share"


def summary(states: Iterable[State]) -> str:
    """ "10 tasks: 3 done, 2 running, 5 queued"."""
    counts = Counter(state.word for state in states)
    return f"{counted(counts.total(), 'task')}: {', '.join(f'{counts[word]} {word}' for word in STATES if counts[word])}"
