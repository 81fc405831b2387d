"""Where a site has the runs of its report. The place is checked before the report is made, so this module imports none of the report's code."""

import os
from pathlib import Path

from scripts.errors import KitError


def within(report: Path, runs: Path) -> Path:
    """The path from a report's pages to its runs, for links. Raises KitError where a site could not hold these runs."""
    place_of_runs = Path(os.path.relpath(runs, report))
    if ".." in place_of_runs.parts:
        raise KitError(f"the runs {runs} lie outside of {report}, so a site of it could not hold them; type OUT={runs.parent} with this command")
    return place_of_runs
