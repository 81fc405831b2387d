"""A seeded campaign: draw faults, let each happen in a place of its own, ask the oracle, count."""

import collections
import contextlib
import os
import random
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from scripts import results
from tests.chaos import containers, gpus, oracle, worlds
from tests.chaos.faults import PYTHON_STARTS_S, WHOLE_S, Kind, Strike
from tests.chaos.oracle import Breach, Ended
from tests.chaos.place import BACKENDS, BOUND_S, DOCKER, GPU, HOST, REAL, ROOT, Command, Place, copy, removed_at_end
from tests.chaos.worlds import World


@dataclass(frozen=True)
class Fault:
    """The fault of a number in a campaign, `first` of its kind or not; the seed and the number decide everything that is drawn for it."""

    seed: str
    number: int
    kind: Kind
    first: bool = False

    def at_once(self) -> Strike | None:
        return self.kind.at_once if self.first else None

    def draw(self) -> random.Random:
        return random.Random(f"{self.seed} {self.number} {self.kind.name}")


@dataclass
class Outcome:
    """`struck`: the fault came while the command ran. `how`: then its rows ended so."""

    fault: Fault
    struck: bool = False
    words: str = ""
    how: list[str] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)


def drawn(seed: str, count: int, kinds: Sequence[Kind]) -> list[Fault]:
    """So many faults: as many of each kind as its share says, at least one of each where `count` allows, in a drawn order."""
    draw = random.Random(seed)
    first = list(kinds)
    draw.shuffle(first)
    rest = draw.choices(first, [kind.share for kind in first], k=max(0, count - len(first)))
    chosen = [*first, *rest][:count]
    draw.shuffle(chosen)
    return [Fault(seed, number, kind, kind not in chosen[: number - 1]) for number, kind in enumerate(chosen, 1)]


def summary(kinds: Sequence[Kind], outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each kind, a line for each that showed nothing, and the counts of all."""
    lines, not_shown = [], []
    for kind in kinds:
        of_kind = [outcome for outcome in outcomes if outcome.fault.kind is kind]
        late = sum(not outcome.struck for outcome in of_kind)
        breaches = _counted(category for outcome in of_kind for category, _ in outcome.breaches) or "0 breaches"
        how = _counted(word for outcome in of_kind for word in outcome.how) if kind.shows else ""
        lines.append(f"{kind.name}: {len(of_kind) - late} injected{f', {late} came too late' if late else ''}, {breaches}{f' ({how})' if how else ''}")
        if kind.shows and not any(kind.shows in outcome.how for outcome in of_kind):
            not_shown.append(f"not shown: {kind.name}: no run ended with {kind.shows}")
    total = collections.Counter(category for outcome in outcomes for category, _ in outcome.breaches)
    injected = sum(outcome.struck for outcome in outcomes)
    return [*lines, *not_shown, f"faults injected: {injected}, " + ", ".join(f"{category}: {total[category]}" for category in oracle.CATEGORIES)]


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{word} {number}" for word, number in collections.Counter(words).items())


class Campaign:
    """`folder` holds all places; what they share is made for the kinds that are tried, and gone at the end of a `with` block."""

    def __init__(self, folder: Path, kinds: Sequence[Kind]) -> None:
        self.folder, self.kinds = folder, kinds
        self.kits = dict.fromkeys((HOST, REAL, GPU), ROOT)
        self.templates: dict[tuple[str, int, str], Place] = {}
        self.own_engine: containers.OwnEngine | None = None
        self.engine_is_mine, self.gpu_is_mine = threading.Lock(), threading.Lock()
        self.held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            if worlds.compiler():
                worlds.compile_clock(self.folder)
            if any(kind.engine == DOCKER for kind in self.kinds):
                self.kits[DOCKER] = containers.copy_kit(self.folder)
                self.held.enter_context(containers.images(self.kits[DOCKER]))
            if any(kind.own_engine for kind in self.kinds):
                self.own_engine = containers.OwnEngine(self.folder / "engine")
                self.held.callback(self.own_engine.end)
                self.held.enter_context(containers.images(self.kits[DOCKER], self.own_engine.host))
            self._run_templates()
        except BaseException:
            self.held.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def _run_templates(self) -> None:
        """An honest run for each engine, number of ranks and backend: its models and its result are what others find there."""
        for engine, ranks, backend in sorted({(kind.engine, ranks, kind.backend) for kind in self.kinds for ranks in kind.ranks}):
            place = self._place(self.folder / f"template-{engine}-{ranks}-{backend}", engine, ranks, backend)
            command = place.start()
            if command.wait(BOUND_S[place.engine]) != 0:
                raise SystemExit(f"error: an honest run without a fault fails:\n{command.text()}")
            oracle.rows_since(place, {})  # msgspec prepares a type at its first use, and crashes where two threads do it at once
            self.templates[engine, ranks, place.backend] = place

    def _place(self, folder: Path, engine: str, ranks: int, backend: str) -> Place:
        return Place(folder, self.kits[engine], engine, ranks, gpus.settings() if engine == GPU else {}, backend or BACKENDS[ranks])

    def _alone(self, kind: Kind) -> contextlib.AbstractContextManager[object]:
        """Faults of a kind that changes what is there once come one after another."""
        if kind.own_engine:
            return self.engine_is_mine
        return self.gpu_is_mine if kind.engine == GPU else contextlib.nullcontext()

    def perform(self, faults: Sequence[Fault]) -> Iterator[Outcome]:
        with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
            yield from pool.map(self.suffer, faults)

    def suffer(self, fault: Fault) -> Outcome:
        """One fault, the command after it, and what the oracle says."""
        draw, kind = fault.draw(), fault.kind
        folder = Path(tempfile.mkdtemp(prefix=f"{fault.number}-", dir=self.folder)) / "place"
        with removed_at_end(folder.parent), self._alone(kind):
            place = self._place(folder, kind.engine, draw.choice(kind.ranks), kind.backend)
            place.own_engine = self.own_engine if kind.own_engine else None
            world = kind.world(place)
            try:
                return self._suffer(fault, place, world, draw)
            finally:
                place.end_processes()
                world.heal()
                world.end()

    def _suffer(self, fault: Fault, place: Place, world: World, draw: random.Random) -> Outcome:
        kind, template = fault.kind, self.templates[place.engine, place.ranks, place.backend]
        with_models, with_result, make = draw.random() < 0.6, draw.random() < 0.5, kind.make and draw.random() < 0.5
        moment, wait_s = draw.choice(kind.moments or ("start",)), draw.random()
        if fault.at_once():
            moment, wait_s = "the job", 0.0
        if place.engine == GPU:
            with_models = moment != "a helping job"  # with its models a command has none
        if with_models or place.engine == REAL:
            copy(template.models, place.models)
        if with_result:
            copy(template.runs, place.runs)
        place.teach(kind.manners(draw))
        outcome = Outcome(fault, words=f"{kind.name}, ranks {place.ranks}, {moment}, {place.manners}")
        before = oracle.stored(place)

        forced = {"FORCE": "1"} if with_result else {}
        command = place.start(make=make, terminal=kind.terminal, before=world.before, **forced, **place.first)
        outcome.struck = not kind.moments or self._strike(fault, command, place, world, moment, wait_s, draw)
        code = command.wait(BOUND_S[place.engine])
        outcome.breaches += self._judged(command, code, place, before)
        if outcome.struck:
            ended = Ended(code, command.text(), oracle.rows_since(place, before))
            outcome.how = ended.how
            outcome.breaches += kind.expects(ended, world)

        world.heal()
        outcome.breaches += _false(kind, place, code, _new(place, before))
        place.unteach()
        again, of_the_next = self._next(place)
        outcome.breaches += of_the_next
        if outcome.breaches:
            outcome.words += f"\n--- the command with the fault\n{command.text()[-1500:]}\n--- the next\n{again.text()[-1500:]}"
        return outcome

    def _next(self, place: Place) -> tuple[Command, list[Breach]]:
        """A user's next command in the place of a fault, and where it, or what it leaves, is not as after an honest run."""
        before = oracle.stored(place)
        command = place.start(**({"FORCE": "1"} if place.engine == GPU else {}))  # a row that is oom or marked counts as measured
        code = command.wait(BOUND_S[place.engine])
        breaches = self._judged(command, code, place, before)
        if code != 0 or "ok" not in oracle.statuses(place).values():
            breaches.append((oracle.STUCK, f"the next command ended with {code}:\n{command.text()[-1500:]}"))
        if place.engine == GPU:
            breaches += gpus.after_the_next(oracle.rows_since(place, before))
        breaches += oracle.left(place)
        if place.engine in (DOCKER, GPU):
            breaches += containers.left(place)
        return command, breaches

    def _strike(self, fault: Fault, command: Command, place: Place, world: World, moment: str, wait_s: float, draw: random.Random) -> bool:
        if not place.until(moment, command):
            return False
        with_wait = PYTHON_STARTS_S + wait_s * WHOLE_S if moment == "start" else wait_s * self._after_s(fault.kind, place, moment)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.process.wait(with_wait)
        struck = command.running()
        strike = fault.at_once() or fault.kind.strike
        strike(command, place, world, draw)
        return struck and not world.late

    def _after_s(self, kind: Kind, place: Place, moment: str) -> float:
        """Within so many seconds of a moment the fault comes; on a GPU at any time of the job, which took as long before."""
        if kind.engine != GPU or moment != "the job":
            return kind.after_s
        records, _ = results.load_all(self.templates[place.engine, place.ranks, place.backend].runs)
        return max(float(record.host["wall_s"]) for record in records)

    def _judged(self, command: Command, code: int | None, place: Place, before: dict[Path, bytes]) -> list[Breach]:
        output = command.text()
        breaches = [(oracle.HUNG, f"no end within {BOUND_S[place.engine]:.0f} s")] if code is None else []
        breaches += oracle.lost(before) + oracle.promised(output) + oracle.false(place)
        return breaches + oracle.processes_left(place) + oracle.tracebacks(output, f"{ROOT}/scripts/" if place.engine == GPU else "")


def _false(kind: Kind, place: Place, code: int | None, new: dict[str, str]) -> list[Breach]:
    """Where a guest that was not honest came through with its `new` {run: status}, or one that survives its fault did not."""
    breaches = []
    if oracle.dishonest(place.manners.get("measure", {})) and (code == 0 or "ok" in new.values()):
        breaches.append((oracle.FALSE, f"exit code {code} and rows {new} of a guest that was not honest: {place.manners}"))
    if kind.survives and code != 0:
        breaches.append((oracle.FALSE, f"exit code {code} of an honest run"))
    return breaches


def _new(place: Place, before: dict[Path, bytes]) -> dict[str, str]:
    """{run: status} of the results that were not there before."""
    there = {path.parent.name for path in before}
    return {run: status for run, status in oracle.statuses(place).items() if run not in there}
