"""What a run costs beside its timed calls, from the stamps in its record."""

import math

from scripts.results import Record

#: The guest's phases in which calls are timed.
CALLS = ("measure", "profile")

#: The guest's other phases (bench/actions.py). A guest may invent names, so no other name reaches the terminal.
PHASES = ("import", "load", "prompt", "check", "texts", "answers", "longer", "tokens", "limits", "describe")

#: The phases of the jobs that help a measurement: right answers, verdicts on tokens, weights.
OF_HELPERS = ("reference", "judge", "weights", "convert")


def whole_s(record: Record) -> float | None:
    """Seconds from the start of a run's container to its verdict; None for a record without stamps."""
    parts = [record.host.get(name) for name in ("wall_s", "container_s", "judge_s")]
    return math.fsum(part for part in parts if part is not None) if parts[0] is not None else None


def calls_s(record: Record) -> float:
    """Seconds of the phases in which the guest made the calls that it timed."""
    phases = record.guest.phases if record.guest else {}
    return math.fsum(phases[name][1] - phases[name][0] for name in CALLS if name in phases)


def beside_calls(record: Record) -> dict[str, float]:
    """{part of a run: its seconds} of everything but the timed calls, in the order of time; parts without a stamp are left out.

    prepare     choosing GPUs, checks, and building or writing what was missing
    container   making the container and removing it
    start       from the container's start to the guest's first phase: interpreter, modules of the kit, ranks
    import, load, check…   the guest's own phases
    other       between those, and phases of other names
    end         from the guest's last phase to the end of its process
    judge       the job that judges the tokens
    """
    host, phases = record.host, record.guest.phases if record.guest else {}
    seconds_of = {"prepare": host.get("prepare_s"), "container": host.get("container_s")}
    if phases and host.get("began") is not None and host.get("wall_s") is not None:
        first, last = min(span[0] for span in phases.values()), max(span[1] for span in phases.values())
        own = {name: span[1] - span[0] for name, span in sorted(phases.items(), key=lambda item: item[1]) if name in PHASES}
        seconds_of["start"] = first - host["began"]
        seconds_of |= own
        seconds_of["other"] = last - first - math.fsum(own.values()) - calls_s(record)
        seconds_of["end"] = host["began"] + host["wall_s"] - last
    seconds_of["judge"] = host.get("judge_s")
    return {name: max(0.0, seconds) for name, seconds in seconds_of.items() if seconds is not None}


def line(record: Record) -> str:
    """ "9.1 s beside the calls (0.7 s): start 0.8, import 3.1, …"; parts below 0.05 s are left out. "" for a run without phases."""
    parts = beside_calls(record)
    if not record.guest or not record.guest.phases:
        return ""
    shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items() if seconds >= 0.05)
    return f"{math.fsum(parts.values()):.1f} s beside the calls ({calls_s(record):.1f} s): {shown}"
