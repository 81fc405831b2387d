"""The kinds of faults: where each happens, at which moments, and what it does to a running command."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import containers, gpus, guest, worlds
from tests.chaos.oracle import Breach, Ended
from tests.chaos.place import DOCKER, GPU, HOST, MOMENTS, REAL, ROOT, Command, Place
from tests.chaos.worlds import World, WorldOf

#: Unless its kind says more, a fault comes so many seconds after the moment it waits for; after the start of a command, at any time of it.
AFTER_S, WHOLE_S = 0.12, 3.0

#: In the first moments of a process Python starts, and answers Ctrl-C with a traceback of its own.
PYTHON_STARTS_S = 0.3

Strike = Callable[[Command, Place, World, random.Random], None]


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `share` is its weight in a campaign; `lacking` says what this machine lacks for it, "" for nothing.

    `survives`: the command must end well in spite of it. `manners` draws those of the guest; `strike` hits the running command, at a moment of `moments` where there are any.
    `backend`: whose jobs, "" for the first of so many ranks. `expects` says what is wrong with how the command ended.
    `shows`: the status without which a campaign shows nothing of the kind, "" where any will do. `at_once`: what the kind's first fault of a
    campaign does in place of `strike`, as soon as the job begins: a fault at a drawn moment may come too late to show that status.
    """

    name: str
    share: int
    engine: str = HOST
    ranks: tuple[int, ...] = (1,)
    strike: Strike = lambda command, place, world, draw: None
    moments: tuple[str, ...] = tuple(MOMENTS)
    manners: Callable[[random.Random], str] = lambda draw: ""
    world: WorldOf = World
    make: bool = False
    terminal: bool = False
    after_s: float = AFTER_S
    survives: bool = False
    own_engine: bool = False
    backend: str = ""
    expects: Callable[[Ended, World], list[Breach]] = lambda ended, world: []
    shows: str = ""
    at_once: Strike | None = None
    lacking: Callable[[], str] = field(default=lambda: "")


def signalled(number: int, times: int = 1, group: bool = False) -> Strike:
    def strike(command: Command, place: Place, world: World, draw: random.Random) -> None:
        for _ in range(times):
            command.signal(number, group)
            time.sleep(draw.uniform(0, 0.05))

    return strike


def close_terminal(command: Command, place: Place, world: World, draw: random.Random) -> None:
    command.close_terminal()


def change_world(command: Command, place: Place, world: World, draw: random.Random) -> None:
    world.strike()


def remove_container(command: Command, place: Place, world: World, draw: random.Random) -> None:
    containers.remove(place)


def restart_engine(command: Command, place: Place, world: World, draw: random.Random) -> None:
    assert place.own_engine, "the kind has an engine of its own"
    place.own_engine.restart(draw.choice([signal.SIGTERM, signal.SIGKILL]))


def kill_a_rank(command: Command, place: Place, world: World, draw: random.Random) -> None:
    """SIGKILL for a process of the place that is a rank of a job."""
    ranks = []
    for pid in place.processes():
        with contextlib.suppress(OSError):
            if any(line.startswith(b"RANK=") for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                ranks.append(pid)
    if ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(sorted(ranks)), signal.SIGKILL)


def any_manners(draw: random.Random) -> str:
    """A hostile guest: one kind of job in up to four bad manners; mostly the measuring job."""
    kind = draw.choice(["measure"] * 5 + ["weights", "reference", "judge"])
    words = {
        "write": draw.choice([draw.choice(list(guest.WRITING)), "good"]),
        "print": draw.choice([draw.choice(list(guest.PRINTING)), "nothing"]),
        "leave": draw.choice([draw.choice(list(guest.LEAVING)), "nothing"]),
        "end": draw.choice([draw.choice([name for name in guest.ENDING if name not in ("eat", "kill-parent")]), "exit-0"]),
    }
    return f"{kind}: " + " ".join(f"{name}={value}" for name, value in words.items())


def ends_by(*endings: str) -> Callable[[random.Random], str]:
    return lambda draw: f"measure: end={draw.choice(endings)} pause_s={draw.uniform(0, 0.3):.3f}"


def rank_dies(draw: random.Random) -> str:
    ending = draw.choice(["exit-3", "SIGKILL", "SIGSEGV", "SIGABRT", "exit-0"])
    return f"measure: rank={draw.choice([0, 1])} end={ending} pause_s={draw.uniform(0, 0.3):.3f}"


def slow(draw: random.Random) -> str:
    """An honest guest that takes long enough to be hit."""
    return "".join(f"{kind}: pause_s={draw.uniform(0.02, 0.4):.3f}\n" for kind in ("weights", "reference", "measure", "judge"))


#: Moments of a run at which its results are or will be written.
WHILE_RUNNING = ("a helping job", "its folder", "its question", "the job", "the answer", "the result")

ON_HOST = (
    Kind("kill -9, one rank, host", 24, strike=signalled(signal.SIGKILL), manners=slow),
    Kind("kill -9, two ranks, host", 16, ranks=(2,), strike=signalled(signal.SIGKILL), manners=slow),
    Kind("Ctrl-C (SIGINT to all)", 5, ranks=(1, 2), strike=signalled(signal.SIGINT, group=True), manners=slow, make=True),
    Kind("Ctrl-C twice", 5, ranks=(1, 2), strike=signalled(signal.SIGINT, times=2, group=True), manners=slow, make=True),
    Kind("SIGINT to the kit", 3, strike=signalled(signal.SIGINT), manners=slow),
    Kind("SIGINT to the kit, twice", 3, strike=signalled(signal.SIGINT, times=2), manners=slow),
    Kind("SIGTERM", 5, ranks=(1, 2), strike=signalled(signal.SIGTERM), manners=slow),
    Kind("SIGHUP", 4, ranks=(1, 2), strike=signalled(signal.SIGHUP), manners=slow),
    Kind("closed terminal", 5, strike=close_terminal, manners=slow, make=True, terminal=True),
    Kind("guest ends by a signal", 4, moments=(), manners=ends_by("SIGSEGV", "SIGABRT", "SIGKILL", "SIGTERM", "kill-parent")),
    Kind("rank dies in a collective", 6, ranks=(2,), moments=(), manners=rank_dies),
    Kind("guest hangs or stops", 2, ranks=(1, 2), moments=(), manners=ends_by("hang", "SIGSTOP")),
    Kind("hostile guest", 20, ranks=(1, 1, 2), moments=(), manners=any_manners),
    Kind("out of memory", 3, moments=(), manners=ends_by("eat"), world=worlds.LittleMemory, lacking=worlds.no_memory_limit),
    Kind("results folder full", 5, strike=change_world, manners=slow, world=worlds.SmallDisk, lacking=worlds.no_mounts),
    Kind("results folder read-only", 5, strike=change_world, manners=slow, world=worlds.ReadOnly, lacking=worlds.no_mounts),
    Kind(
        "clock set back",
        4,
        strike=change_world,
        moments=WHILE_RUNNING,
        manners=slow,
        survives=True,
        world=lambda place: worlds.OtherClock(place, -7200),
        lacking=worlds.no_clock,
    ),
    Kind(
        "clock set forward",
        4,
        strike=change_world,
        moments=WHILE_RUNNING,
        manners=slow,
        survives=True,
        world=lambda place: worlds.OtherClock(place, 86400 * 400),
        lacking=worlds.no_clock,
    ),
)

#: Moments at which a container is there.
IN_CONTAINER = ("a helping job", "the job")

IN_DOCKER = (
    Kind("kill -9, one rank, Docker", 8, engine=DOCKER, strike=signalled(signal.SIGKILL), manners=slow),
    Kind("kill -9, two ranks, Docker", 6, engine=DOCKER, ranks=(2,), strike=signalled(signal.SIGKILL), manners=slow),
    Kind("Ctrl-C, Docker", 2, engine=DOCKER, ranks=(1, 2), strike=signalled(signal.SIGINT, group=True), manners=slow, make=True),
    Kind("Ctrl-C twice, Docker", 2, engine=DOCKER, strike=signalled(signal.SIGINT, times=2, group=True), manners=slow),
    Kind("SIGTERM, Docker", 2, engine=DOCKER, strike=signalled(signal.SIGTERM), manners=slow),
    Kind("SIGHUP, Docker", 1, engine=DOCKER, strike=signalled(signal.SIGHUP), manners=slow),
    Kind("container removed", 3, engine=DOCKER, ranks=(1, 2), strike=remove_container, moments=IN_CONTAINER, manners=slow),
    Kind("hostile guest, Docker", 6, engine=DOCKER, ranks=(1, 2), moments=(), manners=any_manners),
    Kind("rank dies in a collective, Docker", 2, engine=DOCKER, ranks=(2,), moments=(), manners=rank_dies),
    Kind(
        "dockerd restarted", 2, engine=DOCKER, strike=restart_engine, moments=IN_CONTAINER, manners=slow, own_engine=True, lacking=containers.OwnEngine.lacking
    ),
)


def no_demo() -> str:
    """Why no real tiny model can run here, or ""."""
    there = all(list(ROOT.glob(f".envs/demo-{name}-*/bin/python")) for name in ("common", "tensor-parallel"))
    return "" if there else "it needs the demo's environments; type make demo"


#: A real job takes seconds.
REAL_AFTER_S, IN_REAL_RUN = 4.0, ("its question", "the job")

OF_REAL_MODELS = (
    Kind(
        "kill -9, real tiny model", 2, engine=REAL, ranks=(1, 2), strike=signalled(signal.SIGKILL), moments=IN_REAL_RUN, after_s=REAL_AFTER_S, lacking=no_demo
    ),
    Kind("SIGINT, real tiny model", 1, engine=REAL, ranks=(1, 2), strike=signalled(signal.SIGINT), moments=IN_REAL_RUN, after_s=REAL_AFTER_S, lacking=no_demo),
    Kind("rank killed, real tiny model", 2, engine=REAL, ranks=(2,), strike=kill_a_rank, moments=("the job",), after_s=REAL_AFTER_S, lacking=no_demo),
)

#: Moments at which a command has its GPU and has not stored its result.
ON_ITS_GPU = ("a helping job", "the job", "the job", "the job")

ON_GPU = (
    *(
        Kind(
            f"GPU memory runs out, {backend}",
            2,
            engine=GPU,
            backend=backend,
            strike=gpus.take_all,
            moments=ON_ITS_GPU,
            after_s=REAL_AFTER_S,
            world=gpus.Foreign,
            expects=gpus.after_oom,
            shows="oom",
            at_once=gpus.take_everything,
            lacking=gpus.lacking_for(backend),
        )
        for backend in gpus.BACKENDS
    ),
    Kind(
        "another process takes the GPU in mid-run",
        2,
        engine=GPU,
        strike=gpus.take_a_part,
        moments=ON_ITS_GPU,
        after_s=REAL_AFTER_S,
        survives=True,
        world=gpus.Foreign,
        expects=gpus.after_a_guest,
        lacking=gpus.lacking_for("transformers"),
    ),
    Kind(
        "another process has the GPU before",
        1,
        engine=GPU,
        moments=(),
        world=gpus.HasItBefore,
        expects=gpus.refused,
        lacking=gpus.lacking_for("transformers"),
    ),
    Kind(
        "another process has the GPU before, ALLOW_BUSY=1",
        1,
        engine=GPU,
        moments=(),
        survives=True,
        world=lambda place: gpus.HasItBefore(place, ALLOW_BUSY="1"),
        expects=gpus.after_a_guest,
        lacking=gpus.lacking_for("transformers"),
    ),
)

KINDS = (*ON_HOST, *IN_DOCKER, *OF_REAL_MODELS, *ON_GPU)

#: Faults that the campaign has no kind for, and why.
NEVER_TRIED = {
    "an Xid or ECC error of a GPU": "only a broken GPU has it; tests/unit/test_conditions.py lets a simulated driver count errors of ECC",
}
