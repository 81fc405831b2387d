"""The instrument `restrictions`: how long do a case's calls take in a container without one of the kit's restrictions?

Each way runs the case's own guest in a fresh container: `kit` with all restrictions, the others without one of `restrictions.LOOSENABLE`. The ways take
turns, in an order that alternates between rounds. A first round warms the file cache and is left out.
"""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import forms
from bench.job import Job, to_json, write_whole
from scripts import stats
from scripts.containers.container import Outcome
from scripts.containers.restrictions import LOOSENABLE
from scripts.errors import KitError, shown
from scripts.pins import Image
from scripts.run import engines
from scripts.run.engines import contained
from scripts.run.options import Options

NAME = "restrictions"

KIT = "kit"

#: Rounds that count: as many runs of each way as a verdict needs.
ROUNDS = stats.LEAST_RUNS

#: The number of last lines that are said of a run that is not ok, so that the verdict's lines fit beside them.
SHOWN_LINES = 8


def refusal(job: Job, image: Image, asked: Options) -> str:
    """Why the instrument does not examine a job in an image on the engine that was asked for, in one line; "" where it does."""
    if image.engine == "host":
        return f"STACK={image.stack} has no images, so its jobs run in no container; try STACK=current ENGINE=docker"
    if asked.engine not in contained.CLIENTS:
        return f"ENGINE is {asked.engine}, which sets no such restrictions, allowed are docker and podman; try ENGINE=docker"
    if asked.memlock:
        return "KIT_MEMLOCK is 1, so no container would limit locked memory; leave KIT_MEMLOCK out"
    if not forms.times_runs(forms.find(job.form)):
        return f"the case's form {job.form} does not time the job's runs; take a case of another form, such as CASES=deepspeed ARTICLE=inference-tools"
    return ""


def must_connect(asked: Options) -> None:
    """Raise NothingRuns where the engine does not answer. Unlike other commands, this one does not propose ENGINE=host."""
    contained.CLIENTS[asked.engine]().close()


def examine(engine: contained.DockerEngine, job: Job, work: Path, say: Callable[[str], None], enter: Callable[[str], None]) -> Outcome:
    """Run the case in each way by turns, and `say` the findings. `work`/result.json has them from the first round on; the outcome covers all runs.

    `enter` gets the name of each run before it starts.

    A machine may forbid an engine to loosen a restriction, so a way that fails in the warm-up round is left out, with its reason. Raises KitError
    where another run is not ok.
    """
    ways: dict[str, list[float]] = {way: [] for way in (KIT, *LOOSENABLE)}
    left_out: dict[str, str] = {}
    warmed_up = []
    for way in tuple(ways):
        enter(f"{way}, warm-up")
        try:
            warmed_up.append(_run(engine, job, work / f"0-{way}", way, say)[0])
        except KitError as error:
            if way == KIT:
                raise
            del ways[way]
            left_out[way] = shown(error)
    for number in range(1, ROUNDS + 1):
        for way in ways if number % 2 else reversed(ways):
            enter(f"{way}, round {number} of {ROUNDS}")
            outcome, call_ms = _run(engine, job, work / f"{number}-{way}", way, say)
            ways[way].append(call_ms)
        found = [_told(way, ways) for way in ways]
        write_whole(work / "result.json", to_json({"ways": found, "left_out": left_out}))
    for told in found:
        say(_line(told))
    for way, why in left_out.items():
        say(f"{way}: left out: {why}")
    return Outcome(0, False, False, warmed_up[0].started_at, outcome.finished_at)


def _run(engine: contained.DockerEngine, job: Job, work: Path, way: str, say: Callable[[str], None]) -> tuple[Outcome, float]:
    """Run the case once in a way's container; returns the outcome, and the median in ms of the timed calls with the most tokens.

    Raises KitError where the run is not ok, after it has said the run's last lines.
    """
    work.mkdir()
    lines: collections.deque[str] = collections.deque(maxlen=SHOWN_LINES)

    def keep(line: str) -> None:
        if not line.startswith("@"):  # not the guest's reports of its progress
            lines.append(line)

    engine.loosened = "" if way == KIT else way
    try:
        outcome = engine.run(job, work, keep)
    finally:
        engine.loosened = ""
    result, status, reason = engines.answer(job, work, outcome, engine.gpus)
    if status != "ok" or result is None:
        for line in lines:
            say(line)
        raise KitError(f"{NAME}: the run {work.name} ended with {status}: {reason}")
    return outcome, statistics.median(result.measurements[-1]["timed_ms"])


def _told(way: str, rounds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A way's median call in ms in each round, the mean of these, and how many times as long as in the kit's containers they take."""
    told = {"way": way, "ms_a_call": statistics.fmean(rounds[way]), "rounds": rounds[way]}
    return told if way == KIT else told | {"times_as_long": dataclasses.asdict(stats.ratio_over_runs(rounds[way], rounds[KIT]))}


def _line(told: Mapping[str, Any]) -> str:
    ratio = told.get("times_as_long")
    compared = f", {stats.in_words(stats.Estimate(**ratio), least=3)} times as long as in the kit's containers" if ratio else ""
    return f"{told['way']}: {told['ms_a_call']:.2f} ms a call{compared}"
