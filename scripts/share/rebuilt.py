"""The report made anew from the data of a folder that nobody vouches for: a bundle, unpacked or about to be packed.

The report follows from results, articles and pins. All of them are data, so the code of this kit is copied to another place,
the folder's data is put beside the code, and the report is written there. Nothing of the folder runs.
"""

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

from scripts import results, surroundings
from scripts.containers import programs
from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.report import data, quoted
from scripts.results import Record, json_schema

#: The code of this kit.
CODE = ("scripts/**/*", "bench/**/*.py", "bench/**/*.pyc")

#: The folders of the reports, each beside its runs.
REPORTS = tuple(runs.parent.relative_to(ROOT).as_posix() for runs in (results.RUNS, results.WITHOUT_CONTAINERS))

#: The pages that are written by hand and quote numbers.
BY_HAND = tuple(page.relative_to(ROOT).as_posix() for page in quoted.PAGES)

#: The data that a report follows from. Python imports no files of these names or places.
DATA = (
    *BY_HAND,
    "bench/**/*.toml",
    "docker/**/*.toml",
    "docker/**/*.txt",
    *(f"{folder}/runs/**/*" for folder in REPORTS),
    "reports/instruments/**/*.json",
    "reports/verdicts-version-1.json",
)

#: Besides its Markdown pages, a report's folder has its rows as data and the schemas of a run's files.
DATA_FILES = (data.CSV, data.JSON, json_schema.RESULT, json_schema.JOB)
PAGES = ("*.md", *DATA_FILES)

#: Variables of the user's command that must not change this report.
NOT_PASSED = ("RUNS", "OUT", "FORMAT", "COST_PER_GPU_HOUR", "PYTHONPATH", "PYTHONSTARTUP")

#: A report takes seconds; results that keep it busy for longer are hostile.
TIME_LIMIT_S = 600


def report(folder: Path, work: Path) -> dict[str, bytes]:
    """{place: content} of what follows from a folder's data: pages of report and rows, rows as data, plots, and the pages written by hand with their
    numbers.

    `work` is an empty folder. Raises KitError with the last line of what went wrong.
    """
    _copy(ROOT, CODE, work, bytecode=True)
    _copy(folder, DATA, work)
    (work / "reports" / "runs").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "scripts", "report", "--rows"]
    try:
        done = subprocess.run(
            command, cwd=work, env=surroundings.current().without(NOT_PASSED), capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise KitError(f"it takes longer than {TIME_LIMIT_S} s") from error
    if done.returncode != 0:
        raise KitError(programs.last_line(done).removeprefix("error: "))
    patterns = (*BY_HAND, *(f"{folder}/{pattern}" for folder in REPORTS for pattern in (*PAGES, "plots/*.svg")))
    made = [path for pattern in patterns for path in work.glob(pattern) if path.is_file()]
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in made}


def held(folder: Path) -> dict[str, list[Record]]:
    """{place of a folder of runs within a kit or a bundle: its records}."""
    places = [f"{report}/runs" for report in REPORTS]
    return {place: results.load_all(folder / place)[0] for place in places if (folder / place).is_dir()}


def is_page(place: Path) -> bool:
    """Is this the place of a page or of the rows of a report within a kit or a bundle?"""
    return place.parent in map(Path, REPORTS) and any(place.match(pattern) for pattern in PAGES)


def _copy(source: Path, patterns: tuple[str, ...], target: Path, bytecode: bool = False) -> None:
    """Copy the files of these patterns, each to the same place. Empty folders too: such a run is a run that did not finish.

    With `bytecode`, for the kit's own code, compiled files are copied too and all files keep their times, or Python would compile the kit again.
    """
    for path in itertools.chain.from_iterable(source.glob(pattern) for pattern in patterns):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif "__pycache__" not in path.parts or (bytecode and path.suffix == ".pyc"):  # a file with a longer ending is half written
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copy2 if bytecode else shutil.copyfile)(path, place)
