"""Turn the cases of a command into tasks. A task is a command of the kit for the GPUs of one node.

Cases that a claim compares are one task, with all their repeats in alternating order, so that one node measures them. Each repeat of any
other case is a task of its own; a repeat begins after the one before it.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.articles import Article, references
from scripts.errors import KitError
from scripts.run import options, runner
from scripts.run.options import OF_SLURM, Options
from scripts.run.runner import Planned
from scripts.units import counted

#: The options that a task does not take over from the typed command.
OWN = ("article", "cases", "variant", "stack", "repeats", "plan", "folder", "models", "receipt", "profiler", "scheduler", "jobs", *OF_SLURM)


#: The last error is searched for in this many bytes at the end of a log: a program in a task may print without end.
END_OF_A_LOG_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Task:
    """`arguments` are those of `python -m scripts`; `gpus` 0 on a CPU.

    repeat   0 for a task with all repeats, else the number of its repeat
    rows     what decides the numbers of its rows, pins included
    """

    title: str
    arguments: list[str]
    gpus: int
    repeat: int
    rows: list[str]

    @property
    def devices(self) -> str:
        """How many GPUs it needs, in words."""
        return counted(self.gpus, "GPU") if self.gpus else "CPU"


def receipt_in(path: Path) -> dict[str, str] | None:
    """{run: status} of what a task measured, or found measured; None where it came to no end."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return {str(run): str(status) for run, status in loaded.items()} if isinstance(loaded, dict) else None


def last_error(log: Path) -> str:
    """The last error that a task printed; "" where the end of its log holds none."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - END_OF_A_LOG_BYTES))
        lines = stream.read(END_OF_A_LOG_BYTES).decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if "error:" in line), "")


def split(planned: Sequence[Planned], asked: Options) -> Iterator[Task]:
    """The tasks of these cases, those that a claim rests on first."""
    for variant in dict.fromkeys(case.variant for case in planned):
        cases = [case for case in planned if case.variant == variant]
        together = compared(cases[0].article, [case.case.name for case in cases])
        for names in together:
            yield _task([case for case in cases if case.case.name in names], asked, 0, asked.repeats)
        alone = [case for case in cases if not any(case.case.name in names for names in together)]
        for case in alone:
            for repeat in range(1, asked.repeats + 1):
                yield _task([case], asked, repeat, 1 if asked.force else repeat)  # stored runs count, except with FORCE=1


def of_case(case: Planned, asked: Options) -> Task:
    """One case with all its repeats."""
    return _task([case], asked, 0, asked.repeats)


def compared(article: Article, names: Sequence[str]) -> list[set[str]]:
    """Sets of those cases among `names` that relations of claims compare with each other; no case is in two sets."""
    sets: list[set[str]] = []
    for claim in article.claims:
        for relation in claim["relations"]:
            related = set(references.cases_of(relation)) & set(names)
            touched = [group for group in sets if group & related]
            if len(related) > 1:
                sets = [group for group in sets if group not in touched] + [related.union(*touched)]
    return sorted(sets, key=lambda group: min(names.index(name) for name in group))


def _task(cases: Sequence[Planned], asked: Options, repeat: int, repeats: int) -> Task:
    first = cases[0]
    names = [case.case.name for case in cases if case.article.case(case.case.name)]
    backends = {case.case.backend for case in cases}
    verb = ["bench", first.case.backend, "--article", first.article.slug] if len(backends) == 1 else ["article", first.article.slug]
    chosen = ["--cases", ",".join(names)] if names else []
    folders = ["--runs", str(asked.runs.absolute()), "--models", str(asked.models.absolute())]
    arguments = [*verb, *chosen, "--variant", first.variant, "--stack", first.stack, "--repeats", str(repeats), *folders, *options.arguments(asked, OWN)]
    which = f", run {repeat} of {asked.repeats}" if repeat and asked.repeats > 1 else ""
    title = f"{first.article.slug}/{','.join(case.case.name for case in cases)} ({first.variant}, {first.stack}){which}"
    return Task(title, arguments, runner.most_gpus(cases, asked), repeat, [_row(case, asked) for case in cases])


def _row(planned: Planned, asked: Options) -> str:
    """A row's prefix without its machine, which a login node does not know; only the row's title where its weights cannot be looked up now."""
    with contextlib.suppress(KitError):
        return runner.question(planned, asked, {})[1]
    return planned.title
