"""The campaign on a real GPU: a foreign process on it, what the machine needs, and what must be true of the rows that come of it."""

import contextlib
import ctypes
import functools
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from scripts import pins
from scripts.containers import container
from scripts.errors import KitError, PreflightError
from scripts.images import build
from scripts.machine import conditions, gpus
from scripts.machine.gpus import Gpu
from scripts.results import Record
from scripts.results.marks import disturbed_by
from tests.chaos import hog, oracle
from tests.chaos.oracle import FALSE, Breach, Ended
from tests.chaos.place import Command, Place, soon
from tests.chaos.worlds import World

STACK = "current"

#: What takes memory of a GPU: torch, DeepSpeed's workspace, BMInf, bitsandbytes.
BACKENDS = ("transformers", "deepspeed", "bminf", "int8")

#: What the foreign process leaves free: nothing, too little for a context, enough for a context and too little for more.
LEFT_BYTES = (0, 64 << 20, 600 << 20, 1 << 30)

#: Shares of the free memory that a foreign process holds beside a run; a tiny model fits into the rest.
SHARES = (0.05, 0.25, 0.6)

#: Seconds in which a foreign process has the GPU, and in which the driver has forgotten it.
TAKEN_WITHIN_S, FORGOTTEN_WITHIN_S = 30.0, 10.0

#: A process of others that is there for so long of a job must be seen: twice the time between two lists of processes.
SEEN_WITHIN_S = 2 * conditions.INTERVAL_S * conditions.LOOKS_BETWEEN_LISTS


@functools.cache
def lacking() -> str:
    """Why no foreign process can be set on a GPU here, or ""."""
    try:
        present = gpus.given()
        if not present:
            return "it needs a GPU"
        ctypes.CDLL("libcuda.so.1")
        if all(gpus.foreign_use(gpu) for gpu in present):
            return "it needs a GPU that nobody uses"
        container.connect().close()
    except OSError:
        return "it needs libcuda.so.1 where the loader finds it (LD_LIBRARY_PATH)"
    except KitError as error:
        return str(error).splitlines()[0]
    return ""


def lacking_for(backend: str) -> Callable[[], str]:
    """The same for jobs of a backend, which need its image: a campaign builds none."""

    def lacks() -> str:
        if lacking():
            return lacking()
        tag = pins.load().image(backend, STACK).tag
        return "" if build.exists(container.connect(), tag) else f"it needs the image {tag}; type make restore, or make build-{backend} STACK={STACK}"

    return lacks


@functools.cache
def chosen() -> Gpu:
    """The GPU that all faults happen on, one after another: the first that nobody uses."""
    return next(gpu for gpu in gpus.given() if not gpus.foreign_use(gpu))


def settings() -> dict[str, str]:
    """What a command sees beside what all commands see: its GPU, where the driver's libraries are, and how containers get a GPU."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "GPU_MODE") if name in os.environ}
    return kept | {"GPU_IDS": str(chosen().index)}


class Foreign(World):
    """A foreign process that takes the GPU when it is told to. `held_at`: since when it has it, in seconds since the epoch."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, hog.__file__, chosen().uuid], text=True, **pipes)
        self.held_at = 0.0

    def take(self, order: str) -> None:
        """Give the order and wait until it is done; a foreign process that cannot obey ends the campaign, because it would try nothing."""
        assert self.process.stdin and self.process.stdout, "both are pipes"
        print(order, file=self.process.stdin, flush=True)
        answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda stream: answers.put(stream.readline()), args=(self.process.stdout,), daemon=True).start()
        try:
            answer = answers.get(timeout=TAKEN_WITHIN_S)
        except queue.Empty:
            answer = f"no answer within {TAKEN_WITHIN_S:.0f} s"
        if not answer.startswith("holds "):
            raise SystemExit(f"error: the foreign process does not take GPU {chosen().index} ({order}): {answer.strip() or 'it ended'}")
        self.held_at = time.time()

    def heal(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # an order that it did not hear any more
                pipe.close() if pipe else None
        soon(lambda: not gpus.foreign_use(chosen()), FORGOTTEN_WITHIN_S)

    def end(self) -> None:
        self.heal()


class HasItBefore(Foreign):
    """The foreign process has the GPU before the command begins. A command with `more` settings runs beside it."""

    def __init__(self, place: Place, **more: str) -> None:
        super().__init__(place)
        place.first |= more
        try:
            self.take("hold 0.25")
        except BaseException:
            self.end()
            raise


def take_all(command: Command, place: Place, world: World, draw: random.Random) -> None:
    """Nearly all memory, so that the job has too little."""
    _take(command, world, f"all {draw.choice(LEFT_BYTES)}")


def take_everything(command: Command, place: Place, world: World, draw: random.Random) -> None:
    """All memory."""
    _take(command, world, "all 0")


def take_a_part(command: Command, place: Place, world: World, draw: random.Random) -> None:
    """As much as leaves the job enough."""
    _take(command, world, f"{draw.choice(('hold', 'busy'))} {draw.choice(SHARES)}")


def _take(command: Command, world: World, order: str) -> None:
    assert isinstance(world, Foreign), "the kind has a foreign process"
    world.take(order)
    world.late = not command.running()


@dataclass(frozen=True)
class Row:
    """What the expectations look at in a row: its job began and ended so, in seconds since the epoch; `pids` of others on its GPU."""

    status: str
    reason: str
    began: float
    ended: float
    disturbed: tuple[str, ...]
    pids: tuple[int, ...]


def row_of(record: Record) -> Row:
    of_gpus = (record.host.get("conditions") or {}).get("gpus") or []
    pids = [pid for gpu in of_gpus for pid in gpu.get("foreign_pids") or []]
    began = record.host.get("began") or 0.0
    return Row(record.status, record.reason, began, began + (record.host.get("wall_s") or 0.0), tuple(disturbed_by(record)), tuple(pids))


def of_others(row: Row) -> list[str]:
    """The marks for others on the GPU; those for others on the cores come and go with the campaign itself."""
    return [words for words in row.disturbed if words.startswith("foreign load: others")]


def names_it(row: Row, pid: int) -> bool:
    """Do the conditions of a row name this process, and judges the row nothing?"""
    return any("when it began" in words or ("during the run" in words and pid in row.pids) for words in of_others(row))


def after_oom(ended: Ended, world: World) -> list[Breach]:
    """Memory ran out: a row says so, or one line. A row that is ok had its memory before, and names the foreign process beside it; so had the timed calls
    of a row that failed after them."""
    rows = [row_of(record) for record in ended.rows]
    wrong = [row for row in rows if row.status not in ("ok", "oom") and not row.reason.startswith("a call after the timed ones")]
    breaches = [(FALSE, f"a row is {row.status} where memory of the GPU ran out: {row.reason}") for row in wrong]
    breaches += [breach for row in rows if row.status == "ok" for breach in _not_named(row, world)]
    if any(row.status != "ok" for row in rows) and ended.code == 0:
        breaches.append((FALSE, "exit code 0 with a row that is not ok"))
    return breaches + ([] if rows else _one_line(ended))


def after_a_guest(ended: Ended, world: World) -> list[Breach]:
    """The foreign process left enough: the row is ok, and it is marked where both were on the GPU for long enough to be seen."""
    rows = [row_of(record) for record in ended.rows]
    if [row.status for row in rows] != ["ok"]:
        return [(FALSE, f"rows {[(row.status, row.reason) for row in rows]} of a job that had memory enough")]
    return _not_named(rows[0], world)


def _not_named(row: Row, world: World) -> list[Breach]:
    """The foreign process was beside the row's job for long enough to be seen, and no mark names it."""
    assert isinstance(world, Foreign), "the kind has a foreign process"
    if row.ended - max(row.began, world.held_at) < SEEN_WITHIN_S or names_it(row, world.process.pid):
        return []
    since = world.held_at - row.began
    return [(FALSE, f"no mark names pid {world.process.pid}, on the GPU from second {since:.1f} of {row.ended - row.began:.1f}: {row.disturbed}, {row.pids}")]


def refused(ended: Ended, world: World) -> list[Breach]:
    """The foreign process had the GPU before: the command says so in one line and measures nothing."""
    if ended.rows or ended.code != PreflightError.exit_code:
        return [(FALSE, f"exit code {ended.code} and {len(ended.rows)} rows on a GPU that others use")]
    told = any(words in ended.output for words in ("in use by pid", "GiB in use"))
    return _one_line(ended) + ([] if told else [(FALSE, "the refusal does not say who uses the GPU")])


def _one_line(ended: Ended) -> list[Breach]:
    lines = [line for line in ended.output.splitlines() if line.lstrip().startswith("error: ")]
    if ended.code == 0 or len(lines) != 1:
        return [(FALSE, f"no row, exit code {ended.code} and {len(lines)} lines that begin with error")]
    return []


def after_the_next(rows: list[Record]) -> list[Breach]:
    """The foreign process has gone: the command measures again, and nothing marks the GPU."""
    measured = [row_of(record) for record in rows]
    if [row.status for row in measured] != ["ok"]:
        return [(oracle.STUCK, f"rows {[(row.status, row.reason) for row in measured]} after the foreign process has gone")]
    return [(FALSE, f"a mark of a process that has gone: {words}") for words in of_others(measured[0])]
