"""What the state of a run's machine says about the run: its marks, whether it judges nothing, whether it ran out of memory by itself."""

from collections.abc import Sequence

from scripts.results.store import Record


def marks_of(record: Record) -> list[str]:
    """What makes a run's times doubtful, by the state of its machine (scripts/machine/conditions.py)."""
    return (record.host.get("conditions") or {}).get("marks") or []


def disturbed_by(record: Record) -> list[str]:
    """The marks because of which a run judges nothing; results from before version 3 of the rules have none. A run beside other jobs always has one."""
    disturbed: list[str] = (record.host.get("conditions") or {}).get("disturbed") or []
    return disturbed or ([f"shared machine: {record.host['shared_with']} other jobs (JOBS)"] if record.host.get("shared_with") else [])


def counting(runs: Sequence[Record]) -> Sequence[Record]:
    """Of runs that ended well those that count (docs/verdict-rules.md): the undisturbed ones, or all where each was disturbed."""
    return [run for run in runs if not disturbed_by(run)] or runs


def ran_out_by_itself(run: Record) -> bool:
    """Was the memory of its GPUs too small for a run? A lack of the host's memory, or one on a disturbed machine, says nothing about the case."""
    return run.status == "oom" and not run.host.get("oom_killed") and not disturbed_by(run)
