"""`make profile-…` on a real tiny model: a result among the runs with the trace beside it, under torch's profiler and under Nsight Systems."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from tests import reports
from tests.guest.conftest import ROOT

SETTINGS = {"ARTICLE": "demo", "CASES": "gptj-transformers", "STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"}

#: Stands for nsys: writes the report that it was asked for and runs the program.
NSYS = """#!/bin/sh
echo "$@" > "$(dirname "$0")/asked"
for word in "$@"; do case $word in --output=*) echo fake > "${word#--output=}.nsys-rep";; esac; done
while [ "${1#-}" != "$1" ] || [ "$1" = profile ]; do shift; done
exec "$@"
"""


@pytest.fixture
def profile(tmp_path, models):
    """Runs the command on one of the demo's cases; the run lies in tmp_path/runs."""

    def run(**settings):
        environment = os.environ | SETTINGS | {"RUNS": str(tmp_path / "runs"), "MODELS": str(models)} | settings
        return subprocess.run(
            [sys.executable, "-m", "scripts", "profile", "transformers"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.mark.full
def test_a_profile_is_a_run_with_its_trace_beside_it_and_stands_in_the_report(profile, tmp_path):
    done = profile()
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert ".profile." in folder.name and "8 new tokens in" in done.stdout and str(folder / "trace.json.gz") in done.stdout
    assert json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    told = subprocess.run(
        [sys.executable, "-m", "scripts", "report", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    text = reports.text_of(tmp_path)
    assert "# Profiles" in text and "aten::" in text and "](profiles.md)" in text
    assert "make profile-transformers ARTICLE=" in text


@pytest.mark.full
def test_nsight_systems_wraps_the_run_where_it_is_installed(profile, tmp_path):
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(NSYS)
    program.chmod(0o755)
    done = profile(PROFILER="nsys", PATH=f"{program.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "profile.nsys-rep").read_text() == "fake\n" and "under nsys" in done.stdout
    asked = (program.parent / "asked").read_text()
    assert "--capture-range=cudaProfilerApi" in asked and "-m bench" in asked
    assert "--trace=cuda,nvtx,osrt" in asked and "--sample=none" in asked and "--cpuctxsw=none" in asked


def test_without_nsight_systems_it_says_what_to_install(profile, tmp_path):
    done = profile(PROFILER="nsys", PATH="/usr/bin:/bin")
    assert done.returncode == 3
    assert "nsys is not on the PATH" in done.stderr and "nsight-systems-cli" in done.stderr and "PROFILER=torch" in done.stderr
    assert not list((tmp_path / "runs").glob("*/result.json"))
