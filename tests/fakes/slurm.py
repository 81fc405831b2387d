"""A real SLURM on this machine, with simulated nodes and GPUs: munged, slurmctld and a slurmd for each node, under one folder.

Needs root (device nodes, other users' jobs) and the packages slurmctld, slurmd, slurm-client and munge.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "salloc", "srun", "squeue", "scancel", "scontrol", "sinfo")

CONFIGURATION = """\
ClusterName=kit
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=5
MinJobAge=300
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=tiny Nodes=ALL Default=YES MaxTime=INFINITE State=UP DefMemPerCPU=100
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def missing() -> str:
    """Why SLURM cannot be started here; "" where it can."""
    absent = [program for program in PROGRAMS if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    if absent:
        return f"there is no {absent[0]}; as root type apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.getuid() == 0 else "SLURM with simulated nodes needs root"


class Cluster:
    """`gpus` simulated GPUs on each node; the devices are /dev/null under other names."""

    def __init__(self, folder: Path, nodes: int = 2, gpus: int = 4) -> None:
        self.folder, self.nodes, self.gpus = folder, [f"n{number}" for number in range(1, nodes + 1)], gpus
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": os.environ["PATH"] + ":/usr/sbin"}

    def start(self) -> None:
        folder = self.folder
        for name in ("state", "dev", *(f"spool/{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True)
        for index in range(self.gpus):
            os.mknod(folder / "dev" / f"gpu{index}", 0o666 | 0o020000, os.makedev(1, 3))
        lines = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 RealMemory=8000 Gres=gpu:{self.gpus}" for node in self.nodes
        ]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, port=free_port(), nodes="\n".join(lines)))
        (folder / "gres.conf").write_text("".join(f"NodeName={node} Name=gpu File={folder}/dev/gpu[0-{self.gpus - 1}]\n" for node in self.nodes))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = [
            f"--{name}={folder}/munge.{ending}"
            for name, ending in {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed", "key-file": "key"}.items()
        ]
        self.run("munged", "--force", *files)
        self.run("slurmctld", "-i")
        for node in self.nodes:
            self.run("slurmd", "-N", node)
        self.until(lambda: self.run("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * len(self.nodes), "all nodes are idle")

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def until(self, condition, words: str, patience_s: float = 120) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {patience_s} s: {words}"
            time.sleep(0.1)

    def jobs(self) -> list[tuple[str, str, str]]:
        """(number, state, node) of each task that waits or runs."""
        return [tuple(line.split("|")) for line in self.run("squeue", "-h", "-r", "-o", "%i|%T|%N").splitlines()]

    def stop(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.run("scancel", "--user=root")
            self.until(lambda: not self.jobs(), "no job is left", 20)
        pids = []
        for name in (*(f"slurmd-{node}.pid" for node in self.nodes), "slurmctld.pid", "munge.pid"):
            with contextlib.suppress(OSError, ValueError):
                pids.append(int((self.folder / name).read_text()))
                os.kill(pids[-1], signal.SIGTERM)
        for pid in pids:  # all of them end at once
            with contextlib.suppress(OSError):
                for _ in range(100):
                    os.kill(pid, 0)
                    time.sleep(0.1)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the block; without SLURM the test is skipped, loudly. KIT_NEEDS_SLURM=1 makes that a failure."""
    why = missing()
    if why and os.environ.get("KIT_NEEDS_SLURM") == "1":
        pytest.fail(why)
    if why:
        pytest.skip(f"NOT TESTED: SCHEDULER=slurm: {why}")
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
