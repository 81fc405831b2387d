"""doctor: is this machine ready for a run on GPUs?"""

from pathlib import Path

import click

from scripts import results
from scripts.commands.values import MODELS, RUNS
from scripts.errors import PreflightError, shown
from scripts.run import readiness
from scripts.verdicts import rules


@click.command
@MODELS
@RUNS
def doctor(models: Path, runs: Path | None) -> int:
    """Look at GPUs, stacks, Docker, memory, disk and articles' files, a line each, and print what to type next; exit code 3 where something is missing."""
    findings, next_command = readiness.look(models, runs or results.RUNS, list(rules.mistakes().values()))
    for finding in findings:
        print(shown(finding.line))
    print(f"next: {next_command}")
    return PreflightError.exit_code if any(finding.remedy for finding in findings) else 0
