"""Run planned cases, round after round, as often as asked for; scripts/run/runner.py performs each."""

import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from bench import reasons
from scripts import results
from scripts.articles import batch_sweep
from scripts.errors import KitError, NothingRuns, shown
from scripts.machine import locks, temporary_folders
from scripts.machine.steps import Steps
from scripts.results.marks import marks_of
from scripts.run import checkpoints, cost, engines, outcome, plan, run_folders, runner
from scripts.run.options import Options
from scripts.run.runner import Planned


class _Sitting:
    """Runs cases one after another. With `keep_going`, the error of a case that cannot start is printed and the next case runs, unless none can run."""

    def __init__(self, asked: Options, keep_going: bool, steps: Steps) -> None:
        self.asked, self.keep_going, self.steps = asked, keep_going, steps
        self.records: list[results.Record] = []
        self.refused: list[KitError] = []
        self.tried = 0

    def run(self, in_batches_of: Callable[[int], Planned], repeat: int, batch_size: int) -> str | None:
        """The status that a case ended with in a batch size, "oom" wherever memory ran out; None where it could not start."""
        planned = in_batches_of(batch_size)
        which = f", run {repeat} of {self.asked.repeats}" if self.asked.repeats > 1 else ""
        print(f"{self.steps.next()} {planned.title}{which}", file=sys.stderr, flush=True)
        self.tried += 1
        began = time.time()
        try:
            record = runner.perform(planned, self.asked, repeat)
        except KitError as error:
            if not self.keep_going or isinstance(error, NothingRuns):
                raise
            print(f"  error: {shown(error)}", file=sys.stderr)
            self.refused.append(error)
            return None
        if (record.host.get("began") or began) < began:
            self.steps.cost_nothing()
        if record.id not in {told.id for told in self.records}:  # the newest record is returned for each run that was measured before
            self._tell(record)
        self.records.append(record)
        # Where memory ran out after the timed calls the run failed, and larger batches would run out too.
        return "oom" if record.reason.startswith(reasons.AFTER_TIMED_CALLS) else record.status

    def _tell(self, record: results.Record) -> None:
        marks = [f"note: {mark}" for mark in marks_of(record)]
        result = str(self.asked.runs / record.id / "result.json")
        lines = [outcome.line_of(record), outcome.log_line(record, self.asked.runs), cost.line(record), *marks, result]
        print("\n".join(f"  {line}" for line in lines if line), flush=True)


def sweep(asked: Options) -> None:
    """Remove what killed commands left: containers, locks, temporary files, partial weights, work folders of runs."""
    engines.sweep(asked)  # before the folders in which such a container writes
    locks.sweep()
    temporary_folders.sweep()
    checkpoints.sweep(asked.models)
    for folder in run_folders.sweep_unfinished(asked.runs):
        print(f"note: {folder.name} did not finish; its log is {folder / 'log.txt'}", file=sys.stderr)


def run_all(planned: list[Planned], asked: Options, keep_going: bool) -> list[results.Record]:
    """Run cases in the order of `plan.groups`, each in its batch sizes, as often as asked for; raises KitError where some runs could not start.

    Every second round of a group goes backwards (ABBA), so that a machine that warms up or slows down favours no case and no batch size. Going backwards, a
    case begins with the largest batch that did not run out of memory.
    """
    sweep(asked)
    sized = [[plan.sizes_and_sized(case, asked) for case in group] for group in plan.groups(planned)]
    of_cases = [sizes for group in sized for sizes, _ in group]
    until_oom = any(isinstance(sizes, Mapping) for sizes in of_cases)  # nobody knows how many batch sizes fit
    sitting = _Sitting(asked, keep_going, Steps(None if until_oom else asked.repeats * sum(map(len, of_cases))))
    for group in sized:
        _run_group(group, sitting)
    if sitting.refused:
        raise type(sitting.refused[0])(f"{len(sitting.refused)} of {sitting.tried} runs could not start; the reasons stand above")
    return sitting.records


def _run_group(group: Sequence[plan.Sized], sitting: _Sitting) -> None:
    """Run all rounds of a group."""
    fitting: list[list[int]] = []
    for repeat in range(1, sitting.asked.repeats + 1):
        runs = [functools.partial(sitting.run, in_batches_of, repeat) for _, in_batches_of in group]
        if repeat % 2:
            fitting = [batch_sweep.walk(sizes, run) for (sizes, _), run in zip(group, runs, strict=True)]
        else:
            _run_backwards(fitting, runs)


def _run_backwards(fitting: Sequence[Sequence[int]], runs: Sequence[batch_sweep.Try]) -> None:
    """Run the last case first, each in the batch sizes that fit its memory, the largest first."""
    for sizes, run in zip(reversed(fitting), reversed(runs), strict=True):
        for size in reversed(sizes):
            run(size)
