"""The GPUs that this process was given, by a scheduler or by a person: CUDA_VISIBLE_DEVICES and SLURM's own variables.

CUDA_VISIBLE_DEVICES names GPUs by numbers, by UUIDs of GPUs, which may be shortened, or by UUIDs of MIG instances. Its numbers are those
that this process sees. SLURM_STEP_GPUS and SLURM_JOB_GPUS hold the numbers of the whole node, even where SLURM hides the other GPUs and numbers
the rest from 0. https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html,
https://slurm.schedmd.com/gres.html
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from scripts import surroundings
from scripts.errors import NothingRuns, PreflightError
from scripts.machine import number_ranges

CUDA = "CUDA_VISIBLE_DEVICES"

#: SLURM's variables, the narrower first.
OF_SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")

#: How the UUID of a MIG instance begins.
MIG = "MIG-"


class Device(Protocol):
    @property
    def index(self) -> int: ...

    @property
    def uuid(self) -> str: ...


D = TypeVar("D", bound=Device)


def _variables() -> Mapping[str, str]:
    return surroundings.current().variables


def typed() -> str:
    """The variables that limit the GPUs of this process, as a shell would show them; "" where none does."""
    names = [name for name in (CUDA, *OF_SLURM) if name in _variables()]
    if not names and _job():
        return f"job {_job()} of SLURM without {OF_SLURM[-1]}"
    return " and ".join(f"{name}={_variables()[name]}" for name in names)


def _job() -> str:
    """The number of the job of SLURM that this process belongs to; "" outside SLURM."""
    return _variables().get("SLURM_JOB_ID", "")


def words() -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names. CUDA ignores the list from the first negative number on; SLURM writes NoDevFiles for no GPU."""
    named: list[str] = []
    for word in (part.strip() for part in _variables().get(CUDA, "").split(",")):
        if not word or word.startswith("-") or word == "NoDevFiles":
            break
        named.append(word)
    return list(dict.fromkeys(named))


def of(present: Sequence[D], lost: Collection[int] = ()) -> list[D]:
    """Those of the GPUs present that this process was given, in the order of CUDA_VISIBLE_DEVICES; all where no variable limits them.

    `lost` are the numbers of GPUs that the machine has and the driver does not reach: they are left out, whoever named them.
    A job of SLURM that asked for no GPU was given none, although it may see those of other jobs. Raises PreflightError for a name that fits none of them.
    """
    in_job = _of_job(present, len(lost))
    if CUDA not in _variables():
        return in_job
    if not any(name in _variables() for name in OF_SLURM):
        in_job = list(present)
    named = [_named(word, present) for word in words() if not (word.isdecimal() and int(word) in lost)]
    # SLURM counts MIG instances in its own way, so only their UUIDs say anything.
    return [device for device in named if device in in_job or device.uuid.startswith(MIG)]


def _of_job(present: Sequence[D], lost: int) -> list[D]:
    """The GPUs of SLURM's job. Where this process sees as many as the job has, SLURM hides the others and has numbered these anew."""
    named = next((_variables()[name] for name in OF_SLURM if _variables().get(name)), "")
    if not named and _job():
        return []
    numbers = _numbers(named)
    whole = [device for device in present if not device.uuid.startswith(MIG)]
    if not numbers or len(numbers) >= len(whole) + lost:
        return list(present)
    return [device for device in present if device.index in numbers]


def _numbers(named: str) -> set[int]:
    """The numbers of a list such as "0,2-3"; none where SLURM wrote something else."""
    try:
        return number_ranges.parsed(named)
    except ValueError:
        return set()


def _named(word: str, present: Sequence[D]) -> D:
    if word.isdecimal():
        fitting = [device for device in present if device.index == int(word) and not device.uuid.startswith(MIG)]
    else:
        fitting = [device for device in present if device.uuid.startswith(word)]
    if len(fitting) == 1:
        return fitting[0]
    several = "names more than one GPU" if fitting else "names no GPU"
    known = ", ".join(f"{device.index} ({device.uuid})" for device in present)
    raise PreflightError(f"{CUDA} is {_variables()[CUDA]!r}, and {word!r} {several} of this machine, which has {known}; correct the variable or unset it")


def refuse_none(asked: str) -> NothingRuns:
    """The error where the variables leave no GPU; `asked` is what the user typed."""
    return NothingRuns(
        f"{asked}: {typed()} gives this process no GPU; ask the scheduler for some (--gres=gpu:1), name GPUs that are yours ({CUDA}=0,1), or type DEVICE=cpu"
    )


def may_be_renumbered() -> bool:
    """May the numbers that this process sees differ from those of the whole node, as in a job of SLURM?"""
    return bool(_job()) or any(name in _variables() for name in OF_SLURM)


def is_of_an_array() -> bool:
    """Does this process belong to an array of SLURM, whose tasks may run on other nodes at the same time?"""
    return "SLURM_ARRAY_TASK_ID" in _variables()


def refuse_several_nodes() -> None:
    """Raise PreflightError within a job of SLURM that has more than one node."""
    nodes = _variables().get("SLURM_JOB_NUM_NODES", "1")
    if nodes != "1":
        raise PreflightError(f"this job of SLURM has {nodes} nodes, and a measurement takes the GPUs of one; ask for --nodes=1")
