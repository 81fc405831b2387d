"""An instrument of bench/instruments on a case, in the image and with the weights of its runs. What it finds is stored with where it was found.

Its process does not write where it was measured, so the kit does: the job, the image, the machine and its GPUs, the commit.
"""

import collections
import contextlib
import dataclasses
import functools
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.job import InvalidDocument, to_json, write_whole
from scripts import pins
from scripts.errors import KitError
from scripts.machine import temporary_folders
from scripts.paths import ROOT
from scripts.results import answers, door
from scripts.run import checkpoints, engines, host_facts, measurement, runner
from scripts.run.options import Options
from scripts.run.progress import JobDisplay
from scripts.run.runner import Planned


@functools.cache
def names() -> Sequence[str]:
    """The instruments that examine one job: their first lines say so."""
    files = sorted((ROOT / "bench/instruments").glob("*.py"))
    return tuple(file.stem for file in files if re.search(rf"-m bench\.instruments\.{file.stem} JOB \[?OUT\b", file.read_text(encoding="utf-8")))


def examine(name: str, planned: Planned, options: Options) -> Path:
    """Let an instrument examine a case, print what it says, and return the file with what it found, in `instruments` beside the folder of results.

    Raises KitError where it fails; what it had found until then is stored before.
    """
    asked_at, title = time.monotonic(), f"{name} on {planned.title}"
    folder = options.runs.parent / "instruments"
    with runner.gpus_of(planned, options) as chosen, temporary_folders.made(temporary_folders.OF_INSTRUMENTS) as around:
        image = pins.load().image(planned.case.backend, planned.stack)
        job, prefix = runner.question(planned, options, host_facts.devices(chosen))
        runner.refuse_unwritable(folder)
        host_facts.stated_commit()  # a wrong one is refused now, not when the weights are made
        engine = engines.choose(image, chosen, options)
        runner.refuse_impossible(planned, job, engine, folder)
        engine.prepare()
        work, said = around / "work", _Said()
        work.mkdir()
        with JobDisplay(title) as display:
            job = measurement.with_checkpoint(dataclasses.replace(job, id=f"{name}-{prefix}"), engine, work, display.line)
            display.phase("examine")
            at_start = host_facts.at_start(engine, asked_at)
            outcome = engine.run(job, work, said.line, module=f"bench.instruments.{name}")
        print(*said.lines, sep="\n", flush=True)
        host = at_start | host_facts.when(outcome)
        told = dataclasses.asdict(checkpoints.without_places(job, engine.models))
        stored = _store(work, {"instrument": name, "job": told, "host": host}, folder, f"{name}-{prefix}")
    if outcome.timed_out:
        raise KitError(f"{title} was stopped after {options.timeout_s} s; type TIMEOUT_S={2 * options.timeout_s} for more")
    if outcome.exit_code or not stored:
        kept = f"; what it had found stands in {stored}" if stored else ""
        raise KitError(f"{title} ended with {answers.exit_words(outcome.exit_code)}{kept}{' and wrote no answer' if not stored else ''}")
    return stored


class _Said:
    """The last lines that an instrument said, as a terminal can show them."""

    def __init__(self) -> None:
        self.lines: collections.deque[str] = collections.deque(maxlen=engines.SHOWN_LINES)

    def line(self, text: str) -> None:
        if not text.startswith("@{") and "\r" not in text.strip():  # what loading a model reports of its progress, and a library's bar, which redraws its line
            self.lines.append(answers.one_line(text))


def _store(work: Path, told: dict[str, Any], folder: Path, prefix: str) -> Path | None:
    """Store what an instrument found under the next number, an earlier reading stays; None where it wrote nothing that the door lets in."""
    with contextlib.suppress(FileNotFoundError):
        try:
            found = door.parse(door.read(work / "result.json"))
        except InvalidDocument as error:
            print(f"note: the instrument's answer is refused: {error}", file=sys.stderr)
            return None
        path = next(path for number in range(1, 1000) if not (path := folder / f"{prefix}-{number:02d}.json").exists())
        write_whole(path, to_json({**told, "found": found}))
        return path
    return None
