"""The demo's environments, where the guest's real libraries are; made once, shared by the tests here."""

import json
import subprocess
from pathlib import Path

import pytest

from bench.job import parse_result, to_json
from scripts.run.engines import demo_environments

ROOT = Path(__file__).resolve().parent.parent.parent
SHAPES = {"bloom": "bloomz-7b1", "gptj": "gpt-j-6B", "llama": "llama-3-8B"}


@pytest.fixture(scope="session")
def python():
    """The interpreter with current transformers."""
    return demo_environments.ensure("common")


@pytest.fixture(scope="session")
def python_tensor_parallel():
    """The interpreter with tensor_parallel and the transformers that it can drive."""
    return demo_environments.ensure("tensor-parallel")


class Guest:
    """Runs `python -m bench` in a folder of its own and hands back what it wrote."""

    def __init__(self, python, folder):
        self.python, self.folder = python, folder

    def raw(self, text, result_name="result.json"):
        (self.folder / "job.json").write_text(text)
        command = [str(self.python), "-m", "bench", str(self.folder / "job.json"), str(self.folder / result_name)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

    def run(self, job):
        done = self.raw(to_json(job))
        assert done.returncode == 0, done.stdout + done.stderr
        return parse_result((self.folder / "result.json").read_text())

    def code(self, text):
        """What a line of Python prints there, as JSON."""
        done = subprocess.run([str(self.python), "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def guest(python, tmp_path):
    return Guest(python, tmp_path)


@pytest.fixture(scope="session")
def checkpoints(python, tmp_path_factory):
    """{architecture: folder of its tiny random checkpoint}."""
    from tests.guest.samples import tiny_job

    folders = {}
    for architecture in SHAPES:
        folder = tmp_path_factory.mktemp(architecture)
        (folder / "checkpoint").mkdir()
        result = Guest(python, folder).run(tiny_job(architecture, folder / "checkpoint", kind="weights"))
        assert result.status == "ok", result.reason
        folders[architecture] = folder / "checkpoint"
    return folders


@pytest.fixture(scope="session")
def references(python, checkpoints, tmp_path_factory):
    """{architecture: file with plain transformers' answer}."""
    from tests.guest.samples import tiny_job

    files = {}
    for architecture, checkpoint in checkpoints.items():
        folder = tmp_path_factory.mktemp("reference-" + architecture)
        files[architecture] = str(folder / "reference.npz")
        result = Guest(python, folder).run(tiny_job(architecture, checkpoint, kind="reference", reference=files[architecture]))
        assert result.status == "ok", result.reason
    return files
