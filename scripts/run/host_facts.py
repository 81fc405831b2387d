"""What this machine knows of a run and the guest does not: Record.host of scripts/results/store.py."""

import contextlib
import datetime
import os
import platform
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.job import Result
from scripts import __version__, surroundings
from scripts.containers.container import Outcome
from scripts.errors import UsageError
from scripts.machine import gpus
from scripts.paths import ROOT
from scripts.results import rules_version
from scripts.run.engines import Engine

OF_A_GPU = ("index", "uuid", "name", "memory_total_bytes", "compute_capability", "memory_bytes_per_s", "nvlinks")


def at_start(engine: Engine, asked_at: float) -> dict[str, Any]:
    """The facts known when a job's process starts; `asked_at`, in monotonic seconds, is when the job was asked for."""
    seen = devices(engine.gpus)
    commit, dirty = git_state()  # before the job: the user may commit while it runs
    return {
        "engine": engine.name,
        "commit": commit,
        "dirty": dirty,
        "prepare_s": round(time.monotonic() - asked_at, 3),
        "pins_id": engine.image.pins_id,
        "image": engine.facts,
        "machine": seen["machine"] | {"load_average_before": round(os.getloadavg()[0], 2)},
        "driver": gpus.driver() if engine.gpus else None,
        "gpus": seen["gpus"],
    }


def devices(chosen: Sequence[gpus.Gpu]) -> dict[str, Any]:
    """The facts that decide the kind of machine (scripts/results/machine_kind.py); `chosen` are the GPUs of a job."""
    return {"machine": machine(), "gpus": [{name: getattr(gpu, name) for name in OF_A_GPU} for gpu in chosen]}


def at_end(engine: Engine, outcome: Outcome, result: Result | None, sampler: gpus.MemorySampler, ran_s: float, judge_s: float) -> dict[str, Any]:
    """The facts known once the job has ended; `result` is the guest's, None where there is none.

    ran_s: seconds from the call that starts the job's container or process to its removal; judge_s: seconds of the judge's job after it.
    """
    return when(outcome) | {
        "container_s": max(0.0, round(ran_s - (outcome.finished_at - outcome.started_at), 3)),
        "judge_s": round(judge_s, 3),
        "kit_version": __version__,
        "rules_version": rules_version.VERSION,
        "oom_killed": outcome.oom_killed,  # also where only a child was killed, in a job that ended well
        "differences": engine.differences(result),
        "gpu_memory": sampler.summary(result.phases if result else {}),
    }


def between_gpus(engine: Engine) -> dict[str, str]:
    """The variables that tell a job on this engine's GPUs how to exchange data; "a path" replaces a path, which may name the user."""
    of_machine = surroundings.current()
    told = of_machine.between_gpus if engine.name == "host" else of_machine.between_gpus_inside
    return {name: "a path" if "/" in value else value for name, value in sorted(told.items())} if engine.gpus else {}


def when(outcome: Outcome) -> dict[str, Any]:
    """When a job's process started, and the seconds until it ended."""
    began = datetime.datetime.fromtimestamp(outcome.started_at, datetime.UTC)
    return {
        "started_at": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "began": round(outcome.started_at, 3),
        "wall_s": max(0.0, round(outcome.finished_at - outcome.started_at, 3)),  # a clock may be set back
    }


def machine() -> dict[str, Any]:
    """This machine without its name: processor, cores, memory."""
    import psutil

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cpu_count": os.cpu_count(), "memory_total_bytes": psutil.virtual_memory().total}


def stated_commit() -> str:
    """KIT_COMMIT, or "" where it is not set. Raises UsageError."""
    stated = surroundings.current().text("KIT_COMMIT")
    if stated and not re.fullmatch(r"[0-9a-f]{6,64}", stated):
        raise UsageError(f"KIT_COMMIT is {stated[:70]!r}, allowed is a commit in 6 to 64 hex digits; try KIT_COMMIT=$(git rev-parse HEAD)")
    return stated


def git_state() -> tuple[str, bool]:
    """(commit, has the code changed since?); the results themselves do not count as changes.

    KIT_COMMIT comes first: it names the commit of a copy of the kit. Git does not know this commit, or names a wrong one where a repository
    of an older state lies beside the copy.
    """
    if stated := stated_commit():
        return stated, False
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return "unknown", True
    return commit, bool(_git("status", "--porcelain", "--untracked-files=normal", "--", ".", ":!reports"))


def _git(*arguments: str) -> str:
    """The output of git in the kit's folder; "" where git fails or is not there.

    Git takes no optional locks: a git that is killed with one leaves `.git/index.lock`, and the user's next commit fails.
    """
    try:
        done = subprocess.run(["git", "--no-optional-locks", "-C", str(ROOT), *arguments], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
