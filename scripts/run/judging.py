"""The tokens of a row's timed calls are judged by a job of its own, once the measuring job has ended (bench/checking/judge.py)."""

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

from bench.job import Job, Result
from bench.measuring import timed_tokens
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.run import checkpoints
from scripts.run.engines import Engine

TOLERANCES = ROOT / "bench" / "tolerances.toml"
FLOORS = ("regret_p90", "regret_max", "logits_error")


def floors_of(dtype: str) -> dict[str, float]:
    """The floors of a dtype's bounds, as bench/tolerances.toml has them."""
    bounds = tomllib.loads(TOLERANCES.read_text(encoding="utf-8"))[dtype]
    return {name: bounds[name] for name in FLOORS}


def judge(engine: Engine, job: Job, result: Result | None, work: Path, on_line: Callable[[str], None]) -> None:
    """Judge what a measuring job left in its work folder, and put the verdict into its result's check; nothing where it left nothing.

    The tokens stay beside the result. Where the judge cannot work the row counts as unchecked output does: not passed, with the reason.
    """
    left = [work / timed_tokens.TOKENS, work / timed_tokens.LOGITS]
    if result is None or result.status != "ok" or not result.check or not left[0].exists():
        return
    shutil.copy(left[0], work.parent)
    dtype = result.used.get("dtype") or job.load["dtype"]
    try:
        verdict = checkpoints.judgement(engine, job, dtype, floors_of(dtype), left, on_line)
    except KitError as error:
        verdict = {"passed": False, "reason": f"its tokens were not judged: {str(error).splitlines()[0]}"}
    result.check["judged"] = verdict
    if result.check["passed"] and not verdict["passed"]:
        result.check.update(passed=False, reason=verdict["reason"])
