"""What a user may choose for a measurement; scripts/commands/measure.py reads it from the command line."""

import dataclasses
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts import results
from scripts.errors import UsageError
from scripts.paths import ROOT

#: On a CPU, GPUS is the number of processes or stages of a tiny model; they share the CPU's cores.
MOST_ON_A_CPU = 16

#: {field: option of the command line}, where they differ.
OPTION_NAMES = {"folder": "runs", "memlock": "kit_memlock"}

#: {engine: fields that it does not use, but another engine does}
UNUSED = {
    "docker": ("python_host",),
    "podman": ("python_host", "wheels", "gpu_mode"),
    "apptainer": ("python_host", "wheels", "gpu_mode", "memlock"),
    "pyxis": ("python_host", "wheels", "gpu_mode", "memlock"),
    "host": ("wheels", "gpu_mode", "memlock"),
}

#: Why an engine does not use a field, and what to type.
INSTEAD = {
    "python_host": "which does not use it; type ENGINE=host, or leave PYTHON_HOST out",
    "wheels": "which builds no image; leave one of them out",
    "gpu_mode": "which does not ask Docker for GPUs; leave one of them out",
    "memlock": "which sets no limit of locked memory; leave one of them out",
}

#: What only SLURM reads; sbatch has options of these names.
OF_SLURM = ("partition", "account", "qos", "time", "constraint")


@dataclass(frozen=True)
class Options:
    """The choices of one command; raises UsageError for two that contradict each other.

    `folder` is where results go; None is the kit's own place for them.
    `plan` asks only what would run, and for how long.
    `repeats` is how many runs each row shall have, a fresh process each.
    `claims` are claims of the article: only the rows that they compare run.
    `model_path` is a folder that has the real weights already; None fetches them.
    `scheduler` is local or slurm; partition, account, qos, time and constraint are for SLURM.
    `jobs` is how many cases run at once, `shared_with` how many others of the same command may run beside this one.
    `receipt` is a file that gets {run: status} when the command has come to its end.
    `gpus` and `gpu_ids` None, `variant` and `article` empty and `batch_sizes` None mean the case's own.
    """

    article: str = ""
    variant: str = ""
    stack: str = "article"
    weights: str = "hub"
    scale: str = "full"
    engine: str = "docker"
    device: str = "cuda"
    gpus: int | None = None
    gpu_ids: tuple[int, ...] | None = None
    gpu_mode: str = "auto"
    allow_busy: bool = False
    batch_sizes: tuple[int, ...] | None = None
    items: int | None = None
    timed_runs: int | None = None
    repeats: int = 1
    cases: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    profiler: str = "torch"
    force: bool = False
    plan: bool = False
    timeout_s: int = 3600
    python_host: str = ""
    wheels: Path | None = None
    memlock: bool = False
    models: Path = ROOT / "models"
    model_path: Path | None = None
    folder: Path | None = None
    scheduler: str = "local"
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = ""
    constraint: str = ""
    receipt: Path | None = None
    jobs: int = 1
    shared_with: int = 0

    def __post_init__(self) -> None:
        if self.model_path and self.weights == "random":
            raise UsageError(f"MODEL_PATH is {str(self.model_path)!r} with WEIGHTS=random; leave one of them out")
        for name in UNUSED[self.engine]:
            value = getattr(self, name)
            if value != getattr(Options, name):
                shown = int(value) if isinstance(value, bool) else repr(str(value))
                raise UsageError(f"{OPTION_NAMES.get(name, name).upper()} is {shown} with ENGINE={self.engine}, {INSTEAD[name]}")
        if self.gpus and self.gpu_ids and self.gpus != len(self.gpu_ids):
            raise UsageError(f"GPUS is {self.gpus} and GPU_IDS names {len(self.gpu_ids)}; type one of them")
        if self.device == "cpu" and self.gpu_ids:
            typed = ",".join(map(str, self.gpu_ids))
            raise UsageError(f"GPU_IDS is {typed!r} with DEVICE=cpu; leave one of them out")
        if self.device == "cpu" and (self.gpus or 0) > MOST_ON_A_CPU:
            raise UsageError(f"GPUS is {self.gpus} with DEVICE=cpu, allowed is a whole number from 1 to {MOST_ON_A_CPU}; try GPUS=2")
        if self.claims and self.batch_sizes:
            typed = ",".join(map(str, self.batch_sizes))
            raise UsageError(f"BATCH_SIZES is {typed!r} with CLAIMS={','.join(self.claims)}, whose rows have batch sizes of their own; leave one of them out")
        if self.jobs > 1 and self.scheduler == "slurm":
            raise UsageError(f"JOBS is {self.jobs} with SCHEDULER=slurm, which itself runs tasks at once; leave JOBS out")
        for name in OF_SLURM:
            if getattr(self, name) and self.scheduler == "local":
                raise UsageError(f"{name.upper()} is {getattr(self, name)!r}, which only SLURM reads; type SCHEDULER=slurm, or leave {name.upper()} out")

    @property
    def runs(self) -> Path:
        """The folder of results."""
        return self.folder or results.runs_for(self.scale, self.device, self.engine)


def arguments(asked: Options, left_out: Collection[str] = ()) -> list[str]:
    """The options that differ from their defaults, for a command of the kit elsewhere; `left_out` are names of fields."""
    return [word for name, value in _chosen(asked, left_out) for word in (f"--{name.replace('_', '-')}", value)]


def typed_with_make(asked: Options, left_out: Collection[str] = ()) -> str:
    """The same options as a person types them after a target of make, each with a blank before it."""
    return "".join(f" {name.upper()}={shlex.quote(value)}" for name, value in _chosen(asked, left_out))


def _chosen(asked: Options, left_out: Collection[str]) -> Iterator[tuple[str, str]]:
    """(the name of the command line, the value as text) of each option that differs from its default."""
    for field in dataclasses.fields(Options):
        value = getattr(asked, field.name)
        if field.name not in left_out and value != field.default:
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(int(value)) if isinstance(value, bool) else str(value)
            yield OPTION_NAMES.get(field.name, field.name), shown


def variables() -> set[str]:
    """The names of the variables by which Make hands over these options."""
    return {OPTION_NAMES.get(field.name, field.name).upper() for field in dataclasses.fields(Options)}
