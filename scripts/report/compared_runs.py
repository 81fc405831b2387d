"""The runs that A or B of make compare stands for: a run, a folder of runs, or those of a git revision."""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from bench.job import InvalidDocument
from bench.reasons import first_line
from scripts import results
from scripts.errors import KitError, UsageError
from scripts.machine import unpack
from scripts.paths import ROOT
from scripts.report.text import plain


def of(name: str, typed: str, runs: Path) -> list[results.Record]:
    """The records that A or B stands for; raises UsageError with the allowed values, and KitError for a result that cannot be read."""
    for path in (Path(typed), *(folder / typed for folder in (runs, results.WITHOUT_CONTAINERS, results.TRIALS))):
        if (path / "result.json").is_file():
            try:
                return [results.load(path)]
            except InvalidDocument as error:
                raise KitError(
                    f"{name} is {typed!r}, whose result cannot be read: {error}; allowed is a whole result; try {name}={results.RUNS.relative_to(ROOT)}"
                ) from error
        if path.is_dir() and not results.any_run(path):
            raise results.no_run_in(name, typed, path)
        if path.is_dir():
            return _all_in(name, typed, path)
    return _at_revision(name, typed)


def _all_in(name: str, typed: str, folder: Path) -> list[results.Record]:
    """The records of a folder; a line tells each run that cannot be read. Raises UsageError for a folder without a readable run."""
    records, skipped = results.load_runs(folder)
    for skip in skipped:
        print(plain(f"skipped {skip.path}: {skip.reason}"), file=sys.stderr)
    if not records:
        raise UsageError(f"{name} is {typed!r}, which holds no run that can be read; try {name}=reports/runs")
    return records


def _at_revision(name: str, revision: str) -> list[results.Record]:
    command = ["git", "-C", str(ROOT), "archive", "--end-of-options", revision, "reports/runs"]
    done = subprocess.run(command, capture_output=True)
    if b"not a git repository" in done.stderr:
        raise UsageError(f"{name} is {revision!r}, and there is no git repository here; type a folder: {name}=reports/runs")
    if done.returncode != 0:
        allowed = "a run's id, a folder of runs or a git revision with reports/runs"
        if revision.startswith((".", "/")):  # no revision begins so
            makes = f"type {results.measuring_into(Path(revision))}, which makes such a folder, or {name}=reports/runs"
            raise UsageError(f"{name} is {revision!r}, which is not a folder, allowed are {allowed}; {makes}")
        cause = "" if b"not a valid object name" in done.stderr else f" ({first_line(done.stderr.decode(errors='replace'))})"
        shallow = (ROOT / ".git" / "shallow").exists()
        better = "git fetch --unshallow first, because this clone is shallow" if shallow else f"{name}=reports/runs"
        raise UsageError(f"{name} is {revision!r}, allowed are {allowed}{cause}; try {better}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
                unpack.unpack(archive, Path(folder))
        except (tarfile.TarError, KitError) as error:  # a link among the runs, or git attributes that keep all runs out of the archive
            raise KitError(f"{name} is {revision!r}, whose reports/runs cannot be unpacked: {first_line(error)}; try {name}=reports/runs") from error
        return _all_in(name, revision, Path(folder) / "reports" / "runs")
