"""JOBS=n: run cases of a command at once, each in a command of its own, on GPUs (or, on a CPU, cores) that no other of them has.

Their runs are marked as measured on a shared machine and judge nothing (docs/verdict-rules.md). A job ends with this process, however
this process ends.
"""

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts import results, surroundings
from scripts.errors import PreflightError, UsageError
from scripts.machine import cores, gpus, number_ranges, signals, temporary_folders
from scripts.machine.warden import PR_SET_PDEATHSIG
from scripts.paths import ROOT
from scripts.run import options, outcome, plan, runner
from scripts.run.options import Options
from scripts.run.runner import Planned
from scripts.run.slurm import tasks
from scripts.run.slurm.tasks import Task
from scripts.units import counted

#: Seconds between two looks at the jobs.
LOOK_EVERY_S = 0.1

#: If the disk of temporary files has no room for these, it had none for a job's receipt or its last lines.
PROBE_BYTES = 1 << 16

#: Seconds that an interrupted job gets to remove its container and to let its locks go.
PATIENCE_S = 60.0


@dataclasses.dataclass
class Running:
    """A job that has started; `own` are the numbers of its GPUs, or of its cores."""

    task: Task
    own: list[int]
    process: subprocess.Popen[bytes]
    folder: Path

    def receipt(self) -> dict[str, str]:
        """{run: status} of the runs that the job measured or found stored; {} where it did not finish."""
        return tasks.receipt_in(self.folder / "receipt.json") or {}

    def why_no_receipt(self, runs: Path) -> str:
        """Why nothing is known of the job's runs: its output and its receipt have no room, or the last error that it printed."""
        try:
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"\0" * PROBE_BYTES)
                probe.flush()
        except OSError as error:
            cannot = f"its output cannot be written to {self.folder.parents[1]} ({error.strerror})"
            return f"{cannot}; what it measured is stored in {runs}; make room there, or type TMPDIR=/another/folder, and type the same again"
        return f"no result: {tasks.last_error(self.folder / 'log.txt') or f'ended with {self.process.returncode}'}"


def split(planned: Sequence[Planned], asked: Options) -> list[Task]:
    """A task for each case in each variant, with all its repeats; those that a claim rests on first."""
    for_one = dataclasses.replace(asked, gpu_ids=None, shared_with=_at_once(planned, asked) - 1)
    return [tasks.of_case(case, for_one) for group in plan.groups(planned) for case in group]


def _at_once(planned: Sequence[Planned], asked: Options) -> int:
    """How many of the cases may ever run at once: JOBS, unless there are fewer cases or too few GPUs."""
    if asked.device == "cpu":
        return min(asked.jobs, len(planned))
    room, of_case = len(_places(asked, 1)), dataclasses.replace(asked, gpu_ids=None)
    needed = itertools.accumulate(sorted(runner.device_count(case, of_case) for case in planned))
    return max(1, min(asked.jobs, sum(gpus_of_all <= room for gpus_of_all in needed)))


def lines(planned: Sequence[Planned], asked: Options) -> Iterator[str]:
    """The jobs, for PLAN=1."""
    waiting = split(planned, asked)
    at_once = _at_once(planned, asked)
    marked = ", whose runs are marked as of a shared machine and judge nothing" if at_once > 1 else ", because there is room for only one"
    yield f"{counted(len(waiting), 'job')}, {at_once} at once{marked}:"
    yield from (f"  {task.title}, {task.devices}" for task in waiting)


def perform(planned: Sequence[Planned], asked: Options, command: Sequence[str] = (sys.executable, "-m", "scripts")) -> int:
    """Run the cases, JOBS at once; returns the exit code of the command. Raises PreflightError or UsageError before anything starts."""
    waiting, free = split(planned, asked), _places(asked, _at_once(planned, asked))
    for task in waiting:
        if task.gpus > len(free):
            raise PreflightError(f"{task.title} needs {task.gpus} GPUs, but JOBS may use only {len(free)}; type GPUS=n with fewer, or leave JOBS out")
    running: list[Running] = []
    ended: list[Running] = []
    with temporary_folders.made(temporary_folders.OF_JOBS) as folder:
        try:
            while waiting or running:
                with signals.held_back():  # no signal separates a job's start from its entry in `running`
                    running += _started(waiting, free, asked, len(running), command, folder / str(len(waiting)))
                for job in [job for job in running if job.process.poll() is not None]:
                    running.remove(job)
                    free += [[number] for number in job.own] if job.task.gpus else [job.own]
                    ended.append(job)
                    _tell(job, ended, running, waiting, asked.runs)
                time.sleep(LOOK_EVERY_S)
        finally:
            _end(running)
        return _exit_code(ended)


def _exit_code(ended: Sequence[Running]) -> int:
    statuses = [status for job in ended for status in job.receipt().values()]
    refused = [job.process.returncode for job in ended if not job.receipt()]
    if refused:
        print(f"{len(refused)} of {len(ended)} jobs told no result; the reasons stand above, and the same command again runs what is missing", file=sys.stderr)
    return max([outcome.exit_code(status) for status in statuses] + [code if code > 0 else 1 for code in refused], default=0)


def cores_of_one(planned: Sequence[Planned], asked: Options) -> str:
    """The cores that the first job gets on a CPU; "" on GPUs, whose jobs share all cores."""
    return "" if asked.device == "cuda" else number_ranges.text(set(_places(asked, _at_once(planned, asked))[0]))


def _places(asked: Options, at_once: int) -> list[list[int]]:
    """The places that jobs take: one for each GPU, with its number, or one for each job on a CPU, with its cores. Raises UsageError for too few cores."""
    if asked.device == "cuda":
        chosen = asked.gpu_ids or [gpu.index for gpu in gpus.given() if asked.allow_busy or not gpus.foreign_use(gpu)]
        return [[number] for number in dict.fromkeys(chosen)]  # the number of a GPU names all its MIG instances
    allowed = sorted(os.sched_getaffinity(0))
    if at_once > len(allowed):
        raise UsageError(f"JOBS is {asked.jobs}, allowed is a whole number from 1 to {len(allowed)}, the cores of this machine; try JOBS={len(allowed)}")
    each = len(allowed) // at_once
    return [allowed[number * each : (number + 1) * each] for number in range(at_once)]


def _started(waiting: list[Task], free: list[list[int]], asked: Options, running: int, command: Sequence[str], folder: Path) -> list[Running]:
    """The next task as a job, where there is room for it; it is taken from `waiting`, and its GPUs or cores from `free`."""
    if not waiting or running >= asked.jobs or len(free) < (waiting[0].gpus or 1):
        return []
    task = waiting.pop(0)
    own = sorted(number for _ in range(task.gpus or 1) for number in free.pop(0))
    chosen = ["--gpu-ids", ",".join(map(str, own))] if task.gpus else []
    folder.mkdir()
    with (folder / "log.txt").open("wb") as log, cores.kept_on("" if task.gpus else number_ranges.text(set(own))):
        process = subprocess.Popen(
            [*command, *task.arguments, *chosen, "--receipt", str(folder / "receipt.json")],
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on to every job once
            preexec_fn=functools.partial(_die_with, os.getpid()),
        )
    print(f"{task.title}: starts on {'GPU' if task.gpus else 'cores'} {','.join(map(str, own))}", file=sys.stderr, flush=True)
    return [Running(task, own, process, folder)]


def _environment() -> dict[str, str]:
    """The variables of this process without its command's options: a job gets its own as arguments, and with JOBS it would split itself again."""
    return surroundings.current().without(options.variables() | {"KIT_TYPED", "KIT_NAME"})


def _die_with(parent: int) -> None:
    """Let the job get SIGTERM, on which it cleans up, when its runner dies: a killed runner would leave its jobs behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the runner was killed before the line above
        os._exit(128 + signal.SIGKILL)


def _tell(job: Running, ended: Sequence[Running], running: Sequence[Running], waiting: Sequence[Task], runs: Path) -> None:
    """A line for a job that has ended, after the counts of all."""
    receipt = job.receipt()
    counts = f"[{len(ended)} of {len(ended) + len(running) + len(waiting)} ended, {len(running)} running]"
    if not receipt:
        print(f"{counts} {job.task.title}: {job.why_no_receipt(runs)}", file=sys.stderr, flush=True)
        return
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(receipt.values()).items())
    print(f"{counts} {job.task.title}: {statuses}; {outcome.line_of(results.load(runs / list(receipt)[-1]))}", flush=True)


def _end(running: Sequence[Running], kill: Callable[[int, int], None] = os.killpg) -> None:
    """Interrupt jobs and wait until they have let go of what they held; kill what does not end."""
    for job in running:
        job.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    for job in running:
        try:
            job.process.wait(max(0.1, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):  # a second signal kills; the first is still on its way up
            with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
                kill(job.process.pid, signal.SIGKILL)
            job.process.wait()
