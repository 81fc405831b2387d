"""Submit the tasks of a command that are still to go, and wait for all of them.

The same command, typed again, continues: it submits the tasks that neither ended well nor are queued or running, and waits for the rest.
"""

import collections
import contextlib
import dataclasses
import itertools
import sys
import time
from collections.abc import Iterator, Sequence

from scripts import results
from scripts.errors import KitError, UsageError
from scripts.machine import removal, signals
from scripts.run import outcome
from scripts.run.options import Options
from scripts.run.runner import Planned
from scripts.run.slurm import client, site, states, submissions, tasks
from scripts.run.slurm.client import Job
from scripts.run.slurm.states import State, Watched
from scripts.run.slurm.tasks import Task
from scripts.units import counted

#: Seconds between two looks at the queue; sites ask their users not to look more often.
LOOK_EVERY_S = 10.0

#: Seconds for which this machine may not see a file that a node wrote: NFS asks for a folder's changes once a minute (`acdirmax` in nfs(5)).
UNSEEN_S = 60.0


def tasks_of(planned: Sequence[Planned], asked: Options) -> list[Task]:
    """The tasks of a command. Raises UsageError for what SLURM itself decides."""
    if asked.gpu_ids:
        raise UsageError(f"GPU_IDS is {','.join(map(str, asked.gpu_ids))!r} with SCHEDULER=slurm, and SLURM chooses the GPUs; type GPUS=n in place of GPU_IDS")
    return list(tasks.split(planned, asked))


def lines(array: Sequence[Task]) -> Iterator[str]:
    """The tasks, for PLAN=1."""
    yield f"{counted(len(array), 'task')} of SLURM, each on a node of its own:"
    yield from (f"  {task.title}, {task.devices}" for task in array)


def perform(planned: Sequence[Planned], asked: Options, look_every_s: float = LOOK_EVERY_S) -> int:
    """Run the cases of a command as tasks of SLURM; returns the exit code of the command. Raises KitError where tasks left no result."""
    array, watched = tasks_of(planned, asked), []
    try:
        with submissions.one_at_a_time(asked.runs), signals.held_back():  # no signal separates a submission from its entry in `watched`
            watched = submit(array, asked)
        ended = wait(watched, look_every_s)
    except (KeyboardInterrupt, SystemExit):
        _leave(watched)
        raise
    failed = [state for state in ended if state.word == states.FAILED]
    print(results.where_shown(asked.runs))
    receipts = [task.submission.receipt(task.index) for task in watched]
    if None in receipts:
        raise KitError(f"{len(failed)} of {len(ended)} tasks failed, as shown above; the same command again runs them and no other")
    return max((outcome.exit_code(status) for receipt in receipts if receipt for status in receipt.values()), default=0)


def submit(array: Sequence[Task], asked: Options) -> list[Watched]:
    """The tasks with the jobs that run them or ran them; tasks without such a job are submitted."""
    resources, runs = site.resources(asked), asked.runs
    earlier = [] if asked.force else submissions.load_all(runs)
    jobs = client.queue(submission.name for submission in earlier)
    there = {number: _adopted(task, resources, earlier, jobs, asked) for number, task in enumerate(array)}
    to_go = [task for number, task in enumerate(array) if there[number] is None]
    adopted = [task for task in there.values() if task]
    now = [states.of(task, jobs) for task in adopted]
    if adopted:
        print(states.summary(now) + " from the same command before", file=sys.stderr)
    before: dict[int, set[str]] = collections.defaultdict(set)
    for task, state in zip(adopted, now, strict=True):
        if state.job and (state.job.waits or state.job.runs):
            before[task.task.gpus].add(state.job.array)
    new: list[Watched] = []
    for start in range(0, len(to_go), submissions.MOST_TASKS):
        submission = submissions.prepare(to_go[start : start + submissions.MOST_TASKS], resources, runs)
        try:
            _submit(submission, resources, before)
        except KitError:
            with contextlib.suppress(KitError):
                client.cancel(client.queue([submission.name]))  # an earlier array of the same submission
            removal.remove(submission.folder)
            raise
        new += states.tasks_of(submission, runs)
    return adopted + new


def _adopted(task: Task, resources: site.Site, earlier: Sequence[submissions.Submission], jobs: Sequence[Job], asked: Options) -> Watched | None:
    """The task of an earlier submission that asks the same and has ended well, waits or runs; None without."""
    for submission in reversed(earlier):
        for index in submissions.same_request(task, resources, submission):
            watched = Watched(submission, index, asked.runs)
            if states.of(watched, jobs).word != states.FAILED:
                return watched
    return None


def _submit(submission: submissions.Submission, resources: site.Site, before: dict[int, set[str]]) -> None:
    """Submit a submission's tasks: an array for each number of GPUs, and for each repeat of tasks whose repeats are tasks of their own.

    `before` has the arrays that later repeats wait for, by the number of GPUs; the new arrays are added to it.
    """
    numbered = sorted(enumerate(submission.tasks), key=lambda pair: (pair[1].gpus, pair[1].repeat))
    for (gpus, repeat), group in itertools.groupby(numbered, key=lambda pair: (pair[1].gpus, pair[1].repeat)):
        indices = [index for index, _ in group]
        after = ":".join(sorted(before[gpus])) if repeat > 1 else ""
        array = client.submit(submission.script, submission.name, indices, gpus, site.options_of(resources), after)
        if repeat:
            before[gpus].add(array)
        resources_text = f"{counted(gpus, 'GPU')} each" if gpus else "on CPUs"
        print(f"submitted {counted(len(indices), 'task')} as job {array}, {resources_text}; logs in {submission.folder}", file=sys.stderr)


def wait(watched: Sequence[Watched], look_every_s: float, unseen_s: float = UNSEEN_S) -> list[State]:
    """Wait until all tasks have ended, and print a line whenever one begins or ends.

    A task that ended by itself without a receipt has failed once the receipt is not seen for `unseen_s`.
    """
    printed: dict[int, State] = {}
    first_seen: dict[int, float] = {}
    names = list(dict.fromkeys(task.submission.name for task in watched))
    silent = ""
    while True:
        try:
            jobs = client.queue(names)
        except KitError as error:  # a controller that restarts: the jobs run on
            if str(error) != silent:
                print(f"note: {error}; asking again", file=sys.stderr)
            silent = str(error)
            time.sleep(look_every_s)
            continue
        now = [states.of(task, jobs) for task in watched]
        looked = time.monotonic()
        for number, state in enumerate(now):
            if state.may_have_a_receipt and looked < first_seen.setdefault(number, looked) + unseen_s:
                now[number] = dataclasses.replace(state, word=states.RUNS, more="")
        _tell(watched, now, printed)
        if all(state.word in (states.DONE, states.FAILED) for state in now):
            return now
        time.sleep(look_every_s)


def _tell(watched: Sequence[Watched], now: Sequence[State], printed: dict[int, State]) -> None:
    """Print what has changed since the last look, a line a task after the counts of all."""
    changed = [number for number, state in enumerate(now) if state.word != (printed[number].word if number in printed else states.QUEUED)]
    counts = states.summary(now)
    if not printed and not changed:
        print(counts, file=sys.stderr, flush=True)
    for number in changed:
        more = f" ({now[number].more})" if now[number].more else ""
        print(f"[{counts}] {watched[number].task.title}: {now[number].word}{more}", file=sys.stderr, flush=True)
    printed.update(enumerate(now))


def _leave(watched: Sequence[Watched]) -> None:
    """Ask, when the command is interrupted, whether to cancel its jobs too; without a terminal, say how to."""
    names = list(dict.fromkeys(task.submission.name for task in watched))
    with contextlib.suppress(KitError, EOFError, KeyboardInterrupt):
        queued = client.queue(names)
        left = [job for task in watched for job in task.jobs(queued) if job.waits or job.runs]
        if not left:
            return
        how = f"make status shows them, scancel --name={','.join(names)} ends them, the same command again waits for them"
        if sys.stdin.isatty() and sys.stderr.isatty():
            print(f"\ntasks that are queued or run: {len(left)}. Cancel them? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() in ("y", "yes"):
                client.cancel(left)
                print("cancelled; what was measured is kept", file=sys.stderr)
                return
        print(f"note: {counted(len(left), 'task')} still queued or running; {how}", file=sys.stderr)
