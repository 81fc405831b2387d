"""Where a job runs: in a container of its image (`docker`, `podman`, `apptainer`, `pyxis`) or in an interpreter of this machine (`host`).

All engines offer the same: `prepare()`, `guest_path(path)`, `run(job, work, on_line, module)`, `owns(pid)`, the facts for the result, and the `cores` near
the GPUs, on which the job is kept.
"""

import collections
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.job import InvalidDocument, Job, Result, write_whole
from scripts.containers import docker_errors
from scripts.containers.container import Outcome
from scripts.errors import KitError, UsageError
from scripts.machine.gpus import Gpu
from scripts.pins import Image
from scripts.results import answers
from scripts.run.engines import contained, host, nsight
from scripts.run.engines.contained import CONTAINED, Contained
from scripts.run.options import Options

#: Lines of a failed helping job that its log keeps, and that its error shows.
LOG_LINES, SHOWN_LINES = 2000, 15


Engine = Contained | host.HostEngine


def sweep(asked: Options) -> None:
    """Remove the containers that killed runners left, even where nothing is left to measure. An engine that does not answer is skipped."""
    connect = contained.CLIENTS.get(asked.engine)
    if connect:
        with contextlib.suppress(KitError), docker_errors.answering("a sweep"):
            contained.remove_abandoned(connect())


def refuse_without_image(image: Image, asked: Options) -> None:
    """Raise UsageError where a container is asked for on a stack that has no images."""
    if image.engine == "host" and asked.engine in CONTAINED:
        raise UsageError(f"STACK={image.stack} has no images; try ENGINE=host")


def choose(image: Image, gpus: list[Gpu], asked: Options, profiler: str = "") -> Engine:
    """The requested engine. Raises UsageError where it needs an image and the stack has none."""
    refuse_without_image(image, asked)
    wrapper = nsight.wrapper(asked.engine) if profiler == "nsys" else ()
    if asked.engine in CONTAINED:
        return CONTAINED[asked.engine](image, gpus, asked)
    return host.HostEngine(image, gpus, asked, wrapper)


def answer(job: Job, work: Path, outcome: Outcome, gpus: Sequence[Gpu] = (), resumed: bool = False) -> tuple[Result | None, str, str]:
    """(guest's result or None, status, reason) of a job that has ended, however it did.

    The result comes through the door (scripts/results/answers.py); where it contradicts its job or what the host saw, the job failed.
    """
    wall_s = outcome.finished_at - outcome.started_at
    if outcome.timed_out:
        return None, "timeout", f"stopped after {wall_s:.0f} s; type TIMEOUT_S={max(2 * round(wall_s), 60)} for more"
    result = None
    try:
        result = answers.read(work / "result.json")
        wrong = answers.disagreement(job, result, answers.Seen(outcome.exit_code, wall_s, [gpu.memory_total_bytes for gpu in gpus], resumed))
        reason = f"the guest's result is refused: {wrong}" if wrong else ""
    except FileNotFoundError:
        reason = f"the guest ended with {answers.exit_words(outcome.exit_code)} and wrote no result"
    except (InvalidDocument, OSError) as error:
        reason = f"the guest's result cannot be read: {error}"
    if outcome.oom_killed and (reason or result is None or result.status != "ok"):
        return None, "oom", "the kernel killed it: it needed more host memory than there was"
    if reason or result is None:
        return None, "failed", reason
    return result, result.status, result.reason


def must_answer(engine: Engine, job: Job, work: Path, on_line: Callable[[str], None]) -> Result:
    """The result of a helping job (weights, reference, judge), which has to be ok; KitError otherwise, with the last lines and the place of the log."""
    lines: collections.deque[str] = collections.deque(maxlen=LOG_LINES)

    def keep(line: str) -> None:
        lines.append(line)
        on_line(line)

    result, status, reason = answer(job, work, engine.run(job, work, keep), engine.gpus)
    if status != "ok" or result is None:
        said = [line for line in lines if not line.startswith("@")]
        place = f"its log is {log}" if (log := _kept_log(engine.models / f"failed-{job.kind}.log", said)) else ""
        raise KitError("\n".join(part for part in (f"the {job.kind} job ended with {status}: {reason}", place, *said[-SHOWN_LINES:]) if part))
    return result


def _kept_log(path: Path, lines: Sequence[str]) -> Path | None:
    """Keep the lines of a failed helping job, whose own folder is removed; returns their file, None where there are none or it cannot be written."""
    if not lines:
        return None
    try:
        write_whole(path, "\n".join(lines).encode(errors="replace").decode() + "\n")
    except OSError:
        return None
    return path
