"""A backend or a form is added by what docs/adding.md says, and by nothing else: here one is added to a copy of the kit, and runs."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import reports
from tests.fakes.tiny_kit import HALF_WRITTEN
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


SETTINGS = {"STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"}


@pytest.fixture
def kit(tmp_path):
    """A copy of the kit, sharing the environments that are made already."""
    copy = tmp_path / "kit"
    left_out = shutil.ignore_patterns(".git", ".venv", ".envs", "demo", "runs", HALF_WRITTEN, ".*_cache")

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


@pytest.mark.full  # half a minute
@pytest.mark.usefixtures("python")
def test_a_new_backend_needs_its_pins_its_module_and_what_render_writes(kit, models):
    with (kit / "docker" / "pins.toml").open("a") as pins:
        pins.write(PINS)
    (kit / "bench" / "backends" / "my_backend.py").write_text(MODULE)
    rendered = python(kit, "-m", "scripts", "render")
    assert rendered.returncode == 0, rendered.stderr
    assert python(kit, "-m", "scripts", "render", "--check").returncode == 0
    assert changed(kit) <= {"docker/pins.toml", "bench/backends/my_backend.py", "docker/README.md", "compose.yaml"}

    settings = {**SETTINGS, "VARIANT": "controlled", "MODELS": str(models), "TIMED_RUNS": "2", "RUNS": "runs"}
    done = python(kit, "-m", "scripts", "bench", "my-backend", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (kit / "runs").glob("*/result.json")
    record = json.loads(path.read_text())
    assert record["job"]["backend"] == record["job"]["case"] == "my-backend"
    assert record["guest"]["check"]["passed"]

    told = python(kit, "-m", "scripts", "report", "--runs", "runs", "--out", "out")
    assert told.returncode == 0 and "my-backend" in reports.text_of(kit / "out"), told.stderr


OWN_ENGINE = '''"""An engine that works in a process of its own and hands out token ids and logits as lists."""

import multiprocessing

from bench.backends import LOGITS, TOKENS, Engine
from bench.measuring import timed_tokens

GIVES = (TOKENS, LOGITS)
FOLLOWED = {"do_sample", "num_beams", "max_new_tokens", "min_length"}


def unsupported(job):
    return "" if timed_tokens.greedy(job) else "the engine is greedy"


def load(job):
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(job.model["path"], theirs))
    process.start()
    return Own(device="cpu", pipe=ours, process=process, ends=ours.recv(), used={"dtype": job.load["dtype"], "preallocated_bytes": 4096})


class Own(Engine):
    def generate(self, input_ids, attention_mask=None, **arguments):
        import torch

        if set(arguments) - FOLLOWED:
            raise ValueError("the engine cannot follow {}".format(sorted(set(arguments) - FOLLOWED)))
        self.pipe.send((input_ids.tolist(), arguments["max_new_tokens"]))
        return torch.tensor(self.pipe.recv())

    def last_logits(self, input_ids, attention_mask=None):
        import torch

        self.pipe.send((input_ids.tolist(), 0))
        return torch.tensor(self.pipe.recv())

    def end_tokens(self):
        return self.ends

    def memory(self, job):
        return {"devices": [], "peak_rss_bytes": 7}

    def close(self):
        self.pipe.send(None)
        self.process.join()
        print("the engine ended with", self.process.exitcode)


def work(path, pipe):
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
    end = model.generation_config.eos_token_id
    pipe.send([end])
    for rows, new_tokens in iter(pipe.recv, None):
        ids = torch.tensor(rows)
        with torch.no_grad():
            if not new_tokens:
                pipe.send(model(ids).logits[:, -1].tolist())
            else:
                made = model.generate(ids, do_sample=False, max_new_tokens=new_tokens, min_new_tokens=new_tokens)
                pipe.send(made[:, ids.shape[1] :].tolist())
'''


@pytest.mark.full
@pytest.mark.usefixtures("python")
def test_an_engine_of_its_own_kind_fits_without_pretending_to_be_a_module(kit, models):
    with (kit / "docker" / "pins.toml").open("a") as pins:
        pins.write(PINS)
    (kit / "bench" / "backends" / "my_backend.py").write_text(OWN_ENGINE)
    settings = {**SETTINGS, "VARIANT": "controlled", "MODELS": str(models), "TIMED_RUNS": "2", "RUNS": "runs"}
    done = python(kit, "-m", "scripts", "bench", "my-backend", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (kit / "runs").glob("*/result.json")
    guest = json.loads(path.read_text())["guest"]
    assert guest["check"]["passed"] and guest["check"]["judged"]["passed"], guest["check"]
    assert guest["check"]["judged"]["not_seen"] == ["logits of a late step: ValueError: the engine cannot follow ['logits_processor']"]
    assert guest["memory"] == {"devices": [], "peak_rss_bytes": 7} and guest["used"]["preallocated_bytes"] == 4096
    assert "the engine ended with 0" in (path.parent / "log.txt").read_text()

    path = kit / "bench" / "articles" / "demo.toml"
    path.write_text(path.read_text().partition("[[cases]]")[0] + CASE.replace('"transformers"', '"my-backend"').replace("my-form", "transformers-pipeline"))
    refused = python(kit, "-m", "scripts", "bench", "my-backend", **settings, ARTICLE="demo")
    assert refused.returncode == 1
    assert refused.stderr.strip() == (
        "error: bench/articles/demo.toml, [cases[my-case]]: the form 'transformers-pipeline' needs mask and module, and the backend 'my-backend' gives tokens, logits: "
        "give the case another form of bench/forms"
    )


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
    assert told.returncode == 0 and "my-case b2" in reports.text_of(kit / "out"), told.stderr
