"""scripts/run/engines/demo_environments.py: the order of ways to a CPU torch, and what is said when one fails. The real thing is `make demo`."""

import platform
import subprocess
import sys
import threading

import pytest

from scripts import pins
from scripts.errors import PreflightError
from scripts.machine import locks
from scripts.run.engines import demo_environments

LOCK = pins.load().image("transformers", "demo").lock_text()
ON_LINUX = (sys.platform, platform.machine()) == ("linux", "x86_64")


@pytest.mark.skipif(not ON_LINUX, reason="NOT TESTED: CPU builds of torch have their own name on x86_64 Linux only")
def test_a_folder_of_wheels_comes_first_and_the_cuda_build_last(monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    ways = list(demo_environments._attempts(LOCK))
    assert [options for _, options, _ in ways] == [["--find-links=/wheels", "--find-links=/more"], ["--torch-backend=cpu"], []]
    assert "torch==2.13.0+cpu" in ways[0][2] and "nvidia-" not in ways[1][2]
    assert ways[2][2] == LOCK


def test_without_such_a_folder_nobody_looks_for_one(monkeypatch):
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert not [how for how, _, _ in demo_environments._attempts(LOCK) if "PIP_FIND_LINKS" in how]


@pytest.mark.skipif(not ON_LINUX, reason="NOT TESTED: CPU builds of torch have their own name on x86_64 Linux only")
def test_that_the_large_build_comes_is_said_before_it_does_with_the_host_that_did_not_answer(monkeypatch, tmp_path):
    told = []

    def install(folder, options, requirements, title, disk_mb):
        told.append(disk_mb)
        return subprocess.CompletedProcess([], 0 if requirements == LOCK else 2, "", "error: no route to host")

    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(demo_environments, "_uv", lambda *_: subprocess.CompletedProcess([], 0, "", ""))
    monkeypatch.setattr(demo_environments, "_install", install)
    assert demo_environments._make(tmp_path, sys.executable, LOCK, "environment common", told.append, 1120) == demo_environments.ORDINARY
    _, failed, large, way_out, size_mb, done = told
    assert failed.endswith("no: no route to host") and "did not come from torch's own index" in large and "about 5,000 MB in place of 1,120 MB" in large
    assert "PIP_FIND_LINKS=" in way_out and size_mb == 5000 and done.startswith("environment common, ordinary build")


def test_uv_gets_the_user_s_index_and_no_folder_of_wheels_which_is_a_way_of_its_own(monkeypatch):
    of_pip = {"UV_DEFAULT_INDEX": "https://mirror.example", "UV_INDEX": "a", "UV_INDEX_STRATEGY": "b", "UV_FIND_LINKS": "/wheels"}
    monkeypatch.setattr(demo_environments.uv, "settings_of_pip", lambda python: of_pip)
    for name in of_pip:
        monkeypatch.delenv(name, raising=False)
    given = demo_environments._environment()
    assert {name: given.get(name) for name in of_pip} == {**dict.fromkeys(of_pip), "UV_DEFAULT_INDEX": "https://mirror.example"}


def test_uv_gets_the_user_s_variables_and_none_that_leads_into_another_environment(monkeypatch):
    monkeypatch.setattr(demo_environments.uv, "settings_of_pip", lambda python: {})
    astray = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}
    for name in (*astray, "NETRC"):
        monkeypatch.setenv(name, "/elsewhere")
    given = demo_environments._environment()
    assert given["NETRC"] == "/elsewhere" and not astray & set(given)


def test_an_environment_for_older_pythons_only_says_so(monkeypatch):
    image = pins.load().image("tensor-parallel", "demo")
    monkeypatch.setitem(image.options, "python", ["3.4"])
    with pytest.raises(PreflightError, match="tensor-parallel needs Python 3.4 in addition to"):
        demo_environments._python_for(image)


def test_an_environment_without_a_limit_uses_the_python_that_runs_the_kit():
    assert demo_environments._python_for(pins.load().image("transformers", "demo")) == sys.executable


def test_one_process_at_a_time_makes_environments_and_another_waits_which_it_says_once(monkeypatch, tmp_path, capsys):
    known = pins.load()
    made = []

    def make(folder, *_):
        made.append(locks.take(tmp_path / ".envs/.lock"))
        folder.mkdir()
        return "by a test"

    monkeypatch.setattr(pins, "load", lambda root: known)
    monkeypatch.setattr(demo_environments, "_make", make)
    (tmp_path / ".envs").mkdir()
    lock = locks.take(tmp_path / ".envs/.lock")
    threading.Timer(0.6, lock.close).start()
    interpreter = demo_environments.ensure("common", lambda line: None, tmp_path)
    assert made == [None] and (interpreter.parents[1] / demo_environments.MARKER).read_text() == "by a test\n"
    assert capsys.readouterr().err.count("another process makes an environment of the demo (pid ") == 1
    assert not (tmp_path / ".envs/.lock").exists()
