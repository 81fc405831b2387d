"""The demo's environments, where the guest's real libraries are; made once, shared by the tests here."""

import functools
import json
import os
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


@pytest.fixture(scope="session", params=["transformers 5", "transformers 4"])
def either(request, tmp_path_factory):
    """A guest with current transformers, and one near those of the articles' time, which DeepSpeed's kernels still know."""
    return Guest(request.getfixturevalue("python" if request.param.endswith("5") else "python_tensor_parallel"), tmp_path_factory.mktemp("either"))


@functools.cache
def warm(python):
    """The interpreter of warm.py, whose processes have torch imported already; it ends with this process."""
    return subprocess.Popen([str(python), str(Path(__file__).with_name("warm.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """MODELS of the commands that run jobs by themselves: one folder for all, so that weights and right answers are made once."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "models"


class Process:
    """A process of `python arguments…`, whose output goes to files of `folder`; an interpreter has no second beside it."""

    def __init__(self, python, folder, arguments, cwd, environment):
        self.interpreter, self.arguments = warm(python), arguments
        self.output = {name: str(folder / f"{name}.txt") for name in ("stdout", "stderr")}
        command = {"arguments": arguments, "folder": str(cwd), "environment": environment, **self.output}
        self.interpreter.stdin.write(json.dumps(command) + "\n")
        self.interpreter.stdin.flush()
        self.pid = int(self.interpreter.stdout.readline())

    def running(self):
        return Path(f"/proc/{self.pid}").exists()

    def wait(self):
        """What subprocess.run gives back."""
        code = int(self.interpreter.stdout.readline())
        return subprocess.CompletedProcess(self.arguments, code, **{name: Path(path).read_text() for name, path in self.output.items()})


class Guest:
    """Runs `python -m bench` in a folder of its own and hands back what it wrote."""

    def __init__(self, python, folder):
        self.python, self.folder = python, folder

    def start(self, *arguments, cwd=ROOT, **environment):
        """A Process of `python arguments…`."""
        return Process(self.python, self.folder, arguments, cwd, environment)

    def command(self, *arguments, cwd=ROOT, **environment):
        """What `python arguments…` ended with."""
        return self.start(*arguments, cwd=cwd, **environment).wait()

    def raw(self, text, result_name="result.json"):
        (self.folder / "job.json").write_text(text)
        return self.command("-m", "bench", str(self.folder / "job.json"), str(self.folder / result_name))

    def run(self, job):
        done = self.raw(to_json(job))
        assert done.returncode == 0, done.stdout + done.stderr
        return parse_result((self.folder / "result.json").read_text())

    def code(self, text):
        """What a line of Python prints there, as JSON."""
        done = self.command("-c", text)
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
