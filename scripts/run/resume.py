"""The answers of a long run, carried from a run that was killed to the one that goes on (bench/measuring/answers_file.py writes them).

A guest writes in its work folder, which goes with the run; the file is moved beside job.json first, and from there into the
work folder of the next run of the same job. It is always moved and never copied: there is one file of a job's answers.
"""

import contextlib
from pathlib import Path

from bench.measuring.answers_file import NAME
from scripts import results


def keep(work: Path) -> None:
    """Move the answers out of a work folder that is about to go."""
    with contextlib.suppress(FileNotFoundError):
        (work / NAME).replace(work.parent / NAME)


def hand_over(prefix: str, runs: Path, work: Path) -> None:
    """Give a run that begins the answers of the latest earlier run of its job that came to no end."""
    for name in reversed(results.existing(prefix, runs)):
        left = runs / name / NAME
        if left.exists() and not (left.parent / "work").exists() and not _ended(left.parent):
            left.replace(work / NAME)
            return


def _ended(folder: Path) -> bool:
    try:
        return results.load(folder).status in results.DONE
    except (results.InvalidDocument, OSError):
        return False
