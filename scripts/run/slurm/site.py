"""What SLURM is asked for beside GPUs: the options of the command line, then the site file, then SLURM's own defaults.

slurm.toml in the kit's folder (git ignores it):

    partition = "gpu"
    account = "abc123"
    qos = "normal"
    time = "04:00:00"
    constraint = "h100"
    setup = ["module load python/3.11"]    # lines of bash that each task runs first
"""

import re
from pathlib import Path
from typing import Annotated

import msgspec

from scripts import surroundings, toml_tables
from scripts.errors import UsageError
from scripts.paths import ROOT
from scripts.run.options import OF_SLURM, Options

FILE = ROOT / "slurm.toml"

#: The formats of sbatch --time.
TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite", re.IGNORECASE)

#: A value that begins with "-" would be another option of sbatch.
Word = Annotated[str, msgspec.Meta(pattern=r"^[^-\s][^\n]{0,254}\Z")]


class Site(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    time: Word = ""
    constraint: Word = ""
    setup: list[str] = []


def resources(asked: Options, file: Path = FILE) -> Site:
    """The typed options, which take precedence over the site file. Raises UsageError for a wrong time or another cluster, KitError for a wrong site file."""
    if clusters := surroundings.current().text("SBATCH_CLUSTERS"):  # sbatch would follow it, and squeue would then know none of the tasks
        raise UsageError(
            f"SBATCH_CLUSTERS is {clusters[:60]!r}, allowed is none: the kit asks this machine's own cluster for its tasks; "
            "type `unset SBATCH_CLUSTERS`, and the command on a login node of the cluster that is to run it"
        )
    table = toml_tables.read(file) if file.exists() else {}
    toml_tables.check(table, Site, file.name)
    typed = {name: getattr(asked, name) for name in OF_SLURM if getattr(asked, name)}
    site = Site(**{**table, **typed})
    if site.time and not TIME.fullmatch(site.time):
        raise UsageError(f"TIME is {site.time!r}, allowed are minutes, h:m:s and d-h:m:s; try TIME=04:00:00")
    return site


def options_of(site: Site) -> list[str]:
    """The options of sbatch for these resources."""
    return [f"--{name}={value}" for name in OF_SLURM if (value := getattr(site, name))]
