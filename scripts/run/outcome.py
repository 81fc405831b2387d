"""How a run ended, for the person who runs the command: a line, the place of its log, the exit code."""

from pathlib import Path

from scripts import results
from scripts.results import answers
from scripts.results.output import check_of


def exit_code(status: str) -> int:
    """The exit code of a command whose row ended with this status; a refusal of the machine has its own code in scripts/errors.py."""
    return int(status != "ok")


def line_of(record: results.Record) -> str:
    """A result as one line for the terminal. A stored result may come from another kit, which let any characters into names and reasons."""
    return answers.one_line(_words_of(record))


def _words_of(record: results.Record) -> str:
    if record.status != "ok" or record.guest is None:
        return f"{record.status}: {record.reason}"
    from scripts.stats import summarise  # which imports numpy: a sixth of a second that most commands need not wait for

    parts = []
    for measurement in record.guest.measurements:
        summary = summarise(measurement["timed_ms"])
        parts.append(f"{measurement['new_tokens']} new token(s): {summary.mean:.2f} ± {summary.std:.2f} ms, p95 {summary.p95:.2f} ms")
    measured = "; ".join(parts or [f"measured: {', '.join(record.guest.figures)}"])
    check = check_of(record)
    if check is None:
        return f"{measured} (output not checked)"
    outcome = "output as plain transformers'" if check.get("passed") else f"OUTPUT CHECK FAILED: {check.get('reason', 'not made')}"
    return f"{measured} ({outcome})"


def log_line(record: results.Record, runs: Path) -> str:
    """Where the log of a run that did not end well lies; "" for a run that ended well or left no log."""
    log = runs / record.id / "log.txt"
    return f"its log is {log}" if record.status != "ok" and log.exists() else ""
