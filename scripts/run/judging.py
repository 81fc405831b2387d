"""The tokens of a row's timed calls are judged by a job of its own, once the measuring job has ended (bench/checking/judge.py)."""

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

from bench.job import InvalidDocument, Job, Result
from bench.measuring import timed_tokens
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.results import door, shapes
from scripts.run import checkpoints
from scripts.run.engines import Engine

TOLERANCES = ROOT / "bench" / "tolerances.toml"
FLOORS = ("regret_p90", "regret_max", "logits_error")


def floors_of(dtype: str) -> dict[str, float]:
    """The floors of a dtype's bounds, as bench/tolerances.toml has them."""
    bounds = tomllib.loads(TOLERANCES.read_text(encoding="utf-8"))[dtype]
    return {name: bounds[name] for name in FLOORS}


def dtype_of(job: Job, result: Result) -> str:
    """The job's dtype, whose bounds judge a row: a guest could report a dtype with wider bounds. KitError where the guest ran in another."""
    asked = "int8" if job.load.get("quantization") else str(job.load["dtype"])
    dtype = str(result.used.get("dtype") or asked)
    if dtype != asked:
        raise KitError(f"the guest says that it ran in {dtype[:40]!r}, the job asks for {asked!r}")
    return asked


def judge(engine: Engine, job: Job, result: Result | None, work: Path, on_line: Callable[[str], None]) -> None:
    """Judge what a measuring job left in its work folder, and put the verdict into its result's check; nothing where it left nothing.

    The tokens stay beside the result. Where the judge cannot work the row counts as unchecked output does: not passed, with the reason.
    """
    tokens, logits = work / timed_tokens.TOKENS, work / timed_tokens.LOGITS
    if result is None or result.status != "ok" or not result.check or not os.path.lexists(tokens):
        return
    try:
        door.keep(tokens, work.parent / tokens.name)
        dtype = dtype_of(job, result)
        verdict = checkpoints.judgement(engine, job, dtype, floors_of(dtype), [tokens, logits], on_line)
        shapes.check(verdict, shapes.Judged, "verdict")
    except (KitError, InvalidDocument, OSError) as error:
        verdict = {"passed": False, "reason": f"its tokens were not judged: {str(error).splitlines()[0]}"}
    result.check["judged"] = verdict
    if result.check["passed"] and not verdict["passed"]:
        result.check.update(passed=False, reason=verdict["reason"])
