"""What was submitted from a folder of results, kept beside it: <results>/../slurm/<name>/.

tasks.json       the tasks and what SLURM was asked for; written before they are submitted
job.sh           the script of the arrays, which runs a task by its number
task-<n>.log     what a task printed, of all its starts
receipt-<n>.json {run: status} of a task that came to its end; a task without it is to be run again

Jobs are found by their name, which is that of the folder, so that a command that is killed between submitting and writing loses nothing.
"""

import contextlib
import dataclasses
import json
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench.job import write_whole
from bench.reasons import first_line
from scripts import results
from scripts.errors import KitError
from scripts.machine import locks, permissions
from scripts.paths import ROOT
from scripts.run.slurm import tasks
from scripts.run.slurm.site import Site
from scripts.run.slurm.tasks import Task

PREFIX = "llm-repro-"

#: Tasks of a submission: SLURM allows 1,001 in an array unless its site says otherwise.
MOST_TASKS = 1000

SCRIPT = """\
#!/bin/bash
# Written by the kit. Each task of the array runs one command of the kit on its node.
if [ ! -x {python} ] || [ ! -d {folder} ]; then
    echo "error: $(hostname) has no {python} or no {folder}; SCHEDULER=slurm needs a file system that all nodes share" >&2
    exit 3
fi
cd {root} || exit 3
{setup}
case $SLURM_ARRAY_TASK_ID in
{cases}
*) echo "error: there is no task $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
# exec: SLURM's signal goes to the runner, which then removes its container and lets its locks go.
exec {python} -m scripts "$@" --receipt {folder}/receipt-"$SLURM_ARRAY_TASK_ID".json
"""


@dataclasses.dataclass(frozen=True)
class Submission:
    """`site` is what SLURM was asked for."""

    folder: Path
    tasks: list[Task]
    site: dict[str, object]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def script(self) -> Path:
        return self.folder / "job.sh"

    def log(self, index: int) -> Path:
        return self.folder / f"task-{index}.log"

    def receipt(self, index: int) -> dict[str, str] | None:
        """{run: status} of a task that came to its end; None without."""
        return tasks.receipt_in(self.folder / f"receipt-{index}.json")

    def is_done(self, index: int, runs: Path) -> bool:
        """Did a task come to its end, with results that need no repeat and are still there?"""
        receipt = self.receipt(index)
        return bool(receipt) and all(status in results.DONE and (runs / run / "result.json").exists() for run, status in (receipt or {}).items())


def place(runs: Path) -> Path:
    return runs.parent / "slurm"


@contextlib.contextmanager
def one_at_a_time(runs: Path) -> Iterator[None]:
    """Within the block no other command submits to this folder of results: two that ask the same would both find nothing submitted.

    Every user who may write results may submit. Raises KitError where the folder of submissions cannot be written.
    """
    folder = place(runs)
    with contextlib.ExitStack() as held:
        try:
            if not folder.exists():
                permissions.make(folder)
                shutil.copymode(folder.parent, folder)
            held.enter_context(locks.held(folder / ".lock"))
        except OSError as error:
            raise KitError(f"{folder} cannot be written ({error.strerror}); make it writable, or type RUNS=/folder/that/all/nodes/share") from error
        yield


def prepare(asked: Sequence[Task], site: Site, runs: Path) -> Submission:
    """The folder of a new submission, with all that its tasks need."""
    folder = place(runs).absolute() / f"{PREFIX}{secrets.token_hex(4)}"
    folder.mkdir()
    submission = Submission(folder, list(asked), msgspec.structs.asdict(site))
    cases = "\n".join(f"{number}) set -- {shlex.join(task.arguments)} ;;" for number, task in enumerate(asked))
    quoted = {"python": shlex.quote(sys.executable), "folder": shlex.quote(str(folder)), "root": shlex.quote(str(ROOT))}
    submission.script.write_text(SCRIPT.format(**quoted, setup="\n".join(site.setup), cases=cases), encoding="utf-8")
    described = {"tasks": [dataclasses.asdict(task) for task in asked], "site": submission.site}
    write_whole(folder / "tasks.json", json.dumps(described, indent=1))
    return submission


def same_request(task: Task, site: Site, submission: Submission) -> Iterator[int]:
    """The numbers of the submission's tasks that equal `task`, where it asked SLURM for the same resources."""
    if submission.site == msgspec.structs.asdict(site):
        yield from (number for number, earlier in enumerate(submission.tasks) if earlier == task)


def load_all(runs: Path) -> list[Submission]:
    """Every submission beside a folder of results, the oldest first; one that cannot be read is named and left out."""
    described = [path for path in place(runs).glob(f"{PREFIX}*/tasks.json") if path.is_file()]
    in_order = sorted(described, key=lambda path: path.stat().st_mtime_ns)  # by this file, which is written once; the folder's time changes with each receipt
    return list(_readable(path.parent for path in in_order))


def _readable(folders: Iterable[Path]) -> Iterator[Submission]:
    for folder in folders:
        try:
            described = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
            yield Submission(folder.absolute(), [Task(**task) for task in described["tasks"]], described["site"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            print(f"note: {folder / 'tasks.json'} is damaged and left out: {first_line(error)}", file=sys.stderr)
