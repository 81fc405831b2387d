"""SLURM's own commands: sbatch, squeue, scancel. Accounting (sacct) is not needed."""

import dataclasses
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts import surroundings
from scripts.errors import KitError, NothingRuns, PreflightError
from scripts.run import options

#: Seconds after which a command of SLURM counts as unanswered.
PATIENCE_S = 60

WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "SUSPENDED", "RESIZING")
RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED")

#: The variables of this process that sbatch and a task on a node do not get: tokens, make's own variables, another allocation's GPUs. With SBATCH_WAIT
#: sbatch would answer only once the tasks have ended.
DROPPED = ("SBATCH_WAIT", "HF_TOKEN", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "KIT_NAME", "KIT_TYPED", "CUDA_VISIBLE_DEVICES")


@dataclasses.dataclass(frozen=True)
class Job:
    """A task of an array, as squeue knows it. `node` is "" while it waits; `reason` is SLURM's word for why it waits."""

    name: str
    array: str
    index: int
    state: str
    node: str
    reason: str

    @property
    def id(self) -> str:
        return f"{self.array}_{self.index}"

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def runs(self) -> bool:
        return self.state in RUNNING

    @property
    def ended_by_itself(self) -> bool:
        """Did its command end, and not SLURM end it?"""
        return self.state in ("COMPLETED", "FAILED")


def submit(script: Path, name: str, indices: Sequence[int], gpus: int, resources: Iterable[str], after: str = "") -> str:
    """Submit an array and return its number; `after` is the number of an array that ends before this one begins."""
    options = [
        f"--job-name={name}",
        f"--array={','.join(map(str, indices))}",
        "--nodes=1",
        "--exclusive",
        "--mem=0",
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        "--requeue",
        "--signal=B:TERM@60",
        "--open-mode=append",
        f"--output={str(script.parent).replace('%', '%%')}/task-%a.log",
        f"--chdir={script.parent}",
        *([f"--dependency=afterany:{after}"] if after else []),
        *resources,
    ]
    done = _run("sbatch", "--parsable", *options, str(script))
    if done.returncode != 0:
        raise refused(done.stderr, gpus)
    numbers = [line.partition(";")[0] for line in done.stdout.splitlines()]  # the name of the cluster may follow the number
    array = next((number for number in reversed(numbers) if number.isdecimal()), "")
    if not array:
        raise KitError(f"sbatch printed no job id, but {' '.join(done.stdout.split())[:200]!r}; see what `squeue --me` says, and type the same again")
    return array


def refused(message: str, gpus: int) -> KitError:
    """The kit's error for an error of sbatch."""
    message_line = " ".join(message.replace("sbatch: error:", "").split())
    if "node configuration is not available" in message_line:
        resources = f"{gpus} GPUs" if gpus else "what was asked for"
        return PreflightError(
            f"no node has {resources} (SLURM: {message_line}); a measurement takes the GPUs of one node, jobs over several nodes are not supported: "
            "type GPUS=n with fewer, or another PARTITION or CONSTRAINT"
        )
    if "configuration source" in message_line or "Unable to contact slurm controller" in message_line:
        last = message.strip().splitlines()[-1].strip()
        return PreflightError(f"SLURM does not answer: {last}; type this on a machine where `sinfo` answers, such as a login node")
    return PreflightError(f"SLURM refuses the job: {message_line}; look at PARTITION, ACCOUNT, QOS, TIME and CONSTRAINT, and at what `sinfo` lists")


def queue(names: Iterable[str]) -> list[Job]:
    """The tasks of jobs with these names that SLURM still knows; ended tasks stay for some minutes. Raises KitError where SLURM does not answer."""
    joined = ",".join(names)
    if not joined:
        return []
    done = _run("squeue", "--noheader", "--array", "--states=all", f"--name={joined}", "--format=%j|%F|%K|%T|%N|%r")
    if done.returncode != 0:
        raise KitError(f"squeue does not answer ({' '.join(done.stderr.split())}); see what `sinfo` says")
    rows = (line.strip().split("|", 5) for line in done.stdout.splitlines())
    tasks = [row for row in rows if len(row) == 6 and row[2].isdecimal()]  # a site's own squeue may print other lines, such as a greeting
    return [Job(name, array, int(index), state, node, reason) for name, array, index, state, node, reason in tasks]


def cancel(jobs: Iterable[Job]) -> None:
    ids = [job.id for job in jobs]
    if ids:
        _run("scancel", *ids)


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([program, *arguments], env=environment(), capture_output=True, text=True, errors="replace", timeout=PATIENCE_S)
    except FileNotFoundError:
        raise NothingRuns(f"SCHEDULER=slurm: this machine has no {program}; type the command on a login node of the cluster, or leave SCHEDULER out") from None
    except subprocess.TimeoutExpired:
        raise KitError(f"{program} did not answer within {PATIENCE_S} s; see what `sinfo` says") from None


def environment() -> dict[str, str]:
    """The variables for SLURM's commands and for the tasks: without tokens, without this command's options, without those of another job."""
    kept = surroundings.current().without({*options.variables(), *DROPPED})
    return {name: text for name, text in kept.items() if name == "SLURM_CONF" or not name.startswith("SLURM_")}
