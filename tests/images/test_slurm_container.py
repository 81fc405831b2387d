"""A container of a task of SLURM goes with its task: Docker runs it outside SLURM's reach."""

import os
import sys
from pathlib import Path

import docker

from scripts.containers import container
from tests.fakes.slurm import started
from tests.images.a_runner import BENCH


def left(client: docker.DockerClient, folder: Path) -> list[str]:
    """The runs under a folder whose containers are there."""
    every = client.containers.list(all=True, filters={"label": f"{container.RUN_LABEL}={folder.name}"}, ignore_removed=True)
    return [one.labels[container.RUN_LABEL] for one in every]


def test_scancel_and_requeue_leave_no_container(client: docker.DockerClient, image: str, tmp_path: Path) -> None:
    with started(tmp_path / "slurm") as cluster:
        work = tmp_path / f"work-of-{os.getpid()}"
        work.mkdir()
        script, log = tmp_path / "job.sh", tmp_path / "log"
        script.write_text(f"#!/bin/bash\ncd {BENCH.parent}\nexec {sys.executable} -m tests.images.a_runner {image} {work} 0 sh -c 'echo up; sleep 100'\n")
        number = cluster.run(
            "sbatch", "--parsable", "--requeue", "--exclusive", "--signal=B:TERM@60", "--open-mode=append", f"--output={log}", str(script)
        ).strip()
        cluster.until(lambda: log.exists() and "up" in log.read_text(), "the container runs")
        assert left(client, work) == [work.name]
        cluster.run("scontrol", "requeue", number)
        cluster.until(lambda: not left(client, work), "the container is gone", 20)

        cluster.until(lambda: [state for _, state, _ in cluster.jobs()] == ["PENDING"], "the task is queued again")
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")
        cluster.until(lambda: log.read_text().count("up") == 2, "the container runs again")
        cluster.run("scancel", number)
        cluster.until(lambda: not left(client, work) and not cluster.jobs(), "container and task are gone", 20)
