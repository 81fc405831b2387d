"""Compare what a measuring job says about its tokens with what it was asked, because the judge (bench/checking/judge.py) trusts the file."""

from pathlib import Path
from typing import Annotated

import msgspec

from bench import forms
from bench.job import Job, Result
from bench.measuring import timed_tokens
from scripts.results import door

Count = Annotated[int, msgspec.Meta(ge=0)]


class Run(msgspec.Struct):
    new_tokens: Count
    timed_ms: list[float]


class Told(msgspec.Struct):
    """The fields of tokens.json that the job decides (bench/measuring/timed_tokens.py)."""

    greedy: bool
    rows: Count
    stop_tokens: list[int]
    runs: list[Run]


def contradiction(tokens: Path, job: Job, result: Result) -> str:
    """How the file contradicts its job or its result, in words; "" where it does not. Raises door.Refused for a file that the door refuses.

    The judge would be milder with a guest that calls greedy tokens sampled, ends answers where the form lets none end, or says that its calls
    were slower than it timed them.
    """
    try:
        told = msgspec.json.decode(door.read(tokens), type=Told)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"damaged {tokens.name}: {error}"
    timed = {calls["new_tokens"]: calls["timed_ms"] for calls in result.measurements}
    faults = [
        f"its tokens are {_kind(told.greedy)}, the job asks for {_kind(not told.greedy)} ones" if told.greedy != timed_tokens.greedy(job) else "",
        f"it answers {told.rows} sequences, the job has {job.batch_size}" if told.rows != job.batch_size else "",
        "end tokens end its answers, which the job's form does not allow" if told.stop_tokens and not forms.stops(forms.find(job.form)) else "",
        *(_of_run(run, timed) for run in told.runs),
        "" if sorted(run.new_tokens for run in told.runs) == sorted(timed) else f"it tells calls of {[run.new_tokens for run in told.runs][:9]} new tokens",
    ]
    return "; ".join(fault for fault in faults if fault)


def _kind(greedy: bool) -> str:
    return "greedy" if greedy else "sampled"


def _of_run(run: Run, timed: dict[int, list[float]]) -> str:
    """The file has the first rank's own times, the result the slowest rank's, so no time in the file may be longer."""
    of_result = timed.get(run.new_tokens, [])
    slower = len(run.timed_ms) != len(of_result) or any(own > slowest for own, slowest in zip(run.timed_ms, of_result, strict=True))
    return f"its calls of {run.new_tokens} new tokens have other times than the result's" if slower else ""
