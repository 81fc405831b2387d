"""Where a site has the runs of its report. It is asked before the report is made, so this module imports nothing of that."""

import os
from pathlib import Path

from scripts.errors import KitError


def within(report: Path, runs: Path) -> Path:
    """Where the links of a report's pages lead to: the place of its runs relative to them. KitError where a site could not hold these runs."""
    place_of_runs = Path(os.path.relpath(runs, report))
    if ".." in place_of_runs.parts:
        raise KitError(f"the runs {runs} lie outside of {report}, so a site of it could not hold them; type OUT={runs.parent} with this command")
    return place_of_runs
