"""The tokens of a row's timed calls are judged by a job of its own, once the measuring job has ended (bench/checking/judge.py)."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import forms
from bench.job import InvalidDocument, Job, Result
from bench.measuring import timed_tokens
from bench.reasons import first_line
from scripts import articles
from scripts.errors import KitError
from scripts.results import door, shapes
from scripts.results.answers import one_line
from scripts.run import checkpoints, jobs, told_tokens
from scripts.run.engines import Engine

FLOORS = ("regret_p90", "regret_max", "logits_error")


def floors_of(dtype: str) -> dict[str, float]:
    """The floors of a dtype's bounds, as bench/tolerances.toml has them."""
    bounds: Mapping[str, Any] = articles.tolerances()[dtype]
    return {name: bounds[name] for name in FLOORS}


def dtype_of(job: Job, result: Result) -> str:
    """The job's dtype, whose bounds judge a row: a guest could report a dtype with wider bounds. Raises KitError where the guest reports another."""
    asked = jobs.dtype_of(job.load)
    dtype = str(result.used.get("dtype") or asked)
    if dtype != asked:
        raise KitError(f"the guest says that it ran in {dtype[:40]!r}, the job asks for {asked!r}")
    return asked


class NotJudged(Exception):
    """The judge failed for a reason outside the row, so the row has no verdict yet."""


def judge(engine: Engine, job: Job, result: Result | None, work: Path, on_line: Callable[[str], None]) -> None:
    """Judge the tokens that a measuring job left in its work folder, and put the verdict into its result's check. A form that leaves no tokens is not judged.

    The tokens stay beside the result. Tokens that cannot be judged do not pass, nor do missing tokens where the job's form leaves some.
    Raises NotJudged where the judge itself fails: a full disk or an engine that stops says nothing about the row.
    """
    tokens, logits = work / timed_tokens.TOKENS, work / timed_tokens.LOGITS
    if result is None or result.status != "ok" or not result.check:
        return
    is_left = os.path.lexists(tokens)
    if not is_left and not forms.leaves_tokens(forms.find(job.form), job):
        return
    try:
        if not is_left:
            raise KitError(f"the guest left no {tokens.name}, and its form {job.form!r} must leave one")
        dtype = dtype_of(job, result)
        door.check(logits)
        if told := told_tokens.contradiction(tokens, job, result):
            raise KitError(told)
    except (KitError, door.Refused) as error:
        verdict: dict[str, Any] = _not_passed(error)
    except OSError as error:
        raise NotJudged(first_line(error)) from error
    else:
        verdict = _verdict(engine, job, dtype, [tokens, logits], work.parent / tokens.name, on_line)
    result.check["judged"] = verdict
    if result.check["passed"] and not verdict["passed"]:
        result.check.update(passed=False, reason=verdict["reason"])


def _verdict(engine: Engine, job: Job, dtype: str, answers: list[Path], kept: Path, on_line: Callable[[str], None]) -> dict[str, Any]:
    """The judge's verdict on the answers; their tokens are kept as the file `kept`. A verdict of another shape has not passed."""
    try:
        door.keep(answers[0], kept)
        verdict = checkpoints.judgement(engine, job, dtype, floors_of(dtype), answers, on_line)
        shapes.check(verdict, shapes.Judged, "verdict")
        verdict["reason"] = one_line(verdict["reason"])
    except InvalidDocument as error:
        return _not_passed(error)
    except (KitError, OSError) as error:
        raise NotJudged(first_line(error)) from error
    return verdict


def _not_passed(error: Exception) -> dict[str, Any]:
    return {"passed": False, "reason": f"its tokens were not judged: {first_line(error)}"}
