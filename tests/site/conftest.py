"""The site of the committed results, and a headless Chromium. Without one the tests skip, loudly; KIT_NEEDS_BROWSER=1 makes that a failure."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.share import site
from tests.site import axe, chromium

REPORTS = Path(__file__).resolve().parents[2] / "reports"


def not_tested(reason: str) -> None:
    if os.environ.get("KIT_NEEDS_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED: {reason}")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built from a copy: reports/site may be what its owner looks at."""
    folder = tmp_path_factory.mktemp("reports-of-the-kit") / "reports"
    shutil.copytree(REPORTS, folder, ignore=shutil.ignore_patterns("site", "demo", "trials", "*.lock", "*.nsys-rep", "trace.json.gz", "outputs.jsonl"))
    return site.build(folder, folder / "runs").parent


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[chromium.Chromium]:
    if not chromium.found():
        not_tested("the site needs a browser to be looked at; install chromium-headless-shell or chromium")
    opened = chromium.Chromium(tmp_path / "profile")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def axe_core() -> str:
    """The script that finds text without contrast."""
    return axe.script()
