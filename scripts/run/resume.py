"""The answers of a long run, carried from a killed run to the run that continues it (bench/measuring/answers_file.py writes them).

A guest writes its answers in its work folder, which is removed with the run. The kit first moves the file beside job.json, and from there
into the work folder of the next run of the same job. The file always moves, so a job has one file of answers. A guest wrote it, so it passes
the door (scripts/results/door.py); a file that the door refuses is named and left behind. On a full disk there is no room for the door's
copy: then the file itself is renamed and checked, and passes the door when the next run takes it.
"""

import sys
from pathlib import Path

from bench.measuring.answers_file import NAME
from scripts import results
from scripts.results import door


def keep(work: Path) -> None:
    """Move the answers out of a work folder that is about to go; where they cannot be copied, as on a full disk, they are renamed."""
    try:
        door.move(work / NAME, work.parent / NAME)
    except door.Refused as error:
        _not_carried_on(error)
    except OSError:
        _rename(work / NAME, work.parent / NAME)


def hand_over(prefix: str, runs: Path, work: Path) -> bool:
    """Give a new run the answers of its job's latest unfinished run; False where there are none."""
    for name in reversed(results.existing(prefix, runs)):
        folder = runs / name
        if (folder / NAME).exists() and not _ended(folder):
            moved = _move(folder, work)
            if moved:
                (work / NAME).chmod(0o666)  # a container's user goes on writing it
            return moved
    return False


def _move(source: Path, target: Path) -> bool:
    try:
        return door.move(source / NAME, target / NAME)
    except (door.Refused, OSError) as error:
        _not_carried_on(error)
        return False


def _rename(source: Path, target: Path) -> None:
    """Rename a guest's file, which needs no disk space; the door then checks it where the guest no longer reaches it."""
    try:
        source.replace(target)
        door.check(target)
    except door.Refused as error:
        target.unlink()
        _not_carried_on(error)
    except OSError as error:
        _not_carried_on(error)


def _not_carried_on(error: Exception) -> None:
    print(f"note: {error}; a later run does not use these answers", file=sys.stderr)


def _ended(folder: Path) -> bool:
    try:
        return results.load(folder).status in results.DONE
    except (results.InvalidDocument, OSError):
        return False
