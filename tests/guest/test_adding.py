"""A backend or a form is added by what docs/adding.md says, and by nothing else: here one is added to a copy of the kit, and runs."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guest.conftest import ROOT

MODULE = '''"""A backend that is transformers under another name."""

from bench.backends import transformers


def unsupported(job):
    return ""


def load(job):
    return transformers.load(job)
'''

PINS = """
[backend.my-backend]
summary = "transformers under another name"
stacks = ["demo"]
"""


@pytest.fixture
def kit(tmp_path):
    """A copy of the kit, sharing the environments that are made already."""
    copy = tmp_path / "kit"
    left_out = shutil.ignore_patterns(".git", ".venv", ".envs", "demo", "runs", "__pycache__", ".*_cache")

    def leave_out(folder, names):
        if "docker" in folder:
            return {"__pycache__"} & set(names)
        return left_out(folder, names) | ({"models", "archives"} & set(names) if Path(folder) == ROOT else set())

    shutil.copytree(ROOT, copy, ignore=leave_out)
    (copy / ".envs").symlink_to(ROOT / ".envs")
    return copy


def python(kit, *arguments, **environment):
    return subprocess.run([sys.executable, *arguments], cwd=kit, env=os.environ | environment, capture_output=True, text=True, timeout=300)


def changed(kit):
    """Files of the copy that are other than the kit's, or new."""
    names = [path.relative_to(kit) for path in kit.rglob("*") if path.is_file() and not {".envs", "runs", "__pycache__"} & set(path.relative_to(kit).parts)]
    return {str(name) for name in names if not (ROOT / name).exists() or not filecmp.cmp(kit / name, ROOT / name, shallow=False)}


@pytest.mark.usefixtures("python")
def test_a_new_backend_needs_its_pins_its_module_and_what_render_writes(kit, models):
    with (kit / "docker" / "pins.toml").open("a") as pins:
        pins.write(PINS)
    (kit / "bench" / "backends" / "my_backend.py").write_text(MODULE)
    rendered = python(kit, "-m", "scripts", "render")
    assert rendered.returncode == 0, rendered.stderr
    assert python(kit, "-m", "scripts", "render", "--check").returncode == 0
    assert changed(kit) <= {"docker/pins.toml", "bench/backends/my_backend.py", "docker/README.md", "compose.yaml"}

    settings = {
        "STACK": "demo",
        "ENGINE": "host",
        "DEVICE": "cpu",
        "SCALE": "tiny",
        "WEIGHTS": "random",
        "VARIANT": "controlled",
        "RUNS": "runs",
        "MODELS": str(models),
        "TIMED_RUNS": "2",
    }
    done = python(kit, "-m", "scripts", "bench", "my-backend", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (kit / "runs").glob("*/result.json")
    record = json.loads(path.read_text())
    assert record["job"]["backend"] == record["job"]["case"] == "my-backend"
    assert record["guest"]["check"]["passed"]

    told = python(kit, "-m", "scripts", "report", "--runs", "runs", "--out", "out")
    assert told.returncode == 0 and "my-backend" in (kit / "out" / "REPORT.md").read_text(), told.stderr


FORM = '''"""A form that measures without a model."""

from bench.measuring import measure

LOADS = False
OPTIONS = {"size": ()}


def run(job, loaded, say):
    assert loaded is None
    calls = measure.measure(lambda: 1, 1, job.warmup_runs, job.timed_runs, cold=False, synchronize=measure.synchronizer(job))
    return [calls], None, {"seen": job.options}
'''

CASE = """
[[cases]]
name = "my-case"
backend = "transformers"
gpus = 1
form = "my-form"
options = { size = 3 }
batch_sizes = [2]
load = { dtype = "float32" }
"""


@pytest.mark.usefixtures("python")
def test_a_new_form_needs_its_module_and_a_case(kit):
    (kit / "bench" / "forms" / "my_form.py").write_text(FORM)
    path = kit / "bench" / "articles" / "demo.toml"
    path.write_text(path.read_text().partition("[[cases]]")[0] + CASE)

    settings = {"ARTICLE": "demo", "STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random", "RUNS": "runs"}
    done = python(kit, "-m", "scripts", "bench", "transformers", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (kit / "runs").glob("*/result.json")
    assert ".my-case.controlled.b2.demo." in path.parent.name
    record = json.loads(path.read_text())
    assert record["status"] == "ok" and record["guest"]["figures"] == {"seen": {"size": 3}}
    assert record["guest"]["check"] is None and record["guest"]["load_s"] is None
    assert not (kit / "models").exists(), "neither weights nor a right answer are made for it"

    told = python(kit, "-m", "scripts", "report", "--runs", "runs", "--out", "out")
    assert told.returncode == 0 and "my-case b2" in (kit / "out" / "REPORT.md").read_text(), told.stderr
