"""SCHEDULER=slurm on a real slurmctld with two simulated nodes: requeue, scancel, Ctrl-C, and the GPUs that SLURM gives."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.commands import cluster as cluster_command
from scripts.errors import KitError
from scripts.run.slurm import client, follow, site, states, submissions
from scripts.run.slurm.tasks import Task
from tests.fakes.slurm import started
from tests.guest.conftest import ROOT
from tests.typed import chosen

CASES = ("bloom-transformers", "bloom-layer-parallel", "gptj-transformers")
TRIAL = {"STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with started(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def here(cluster, monkeypatch):
    """SLURM's commands of this process ask the cluster; its jobs of other tests are gone."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    yield cluster
    client.cancel(client.Job("", number.partition("_")[0], number.partition("_")[2], "", "", "") for number, _, _ in cluster.jobs())
    cluster.until(lambda: not cluster.jobs(), "no job is left")


class Command:
    """`make article-demo SCHEDULER=slurm` of some cases, as a process."""

    def __init__(self, cluster, folder, models, cases=CASES):
        self.runs, self.cases, self.cluster = folder / "results" / "runs", cases, cluster
        self.environment = cluster.environment | TRIAL | {"SCHEDULER": "slurm", "CASES": ",".join(cases), "RUNS": str(self.runs), "MODELS": str(models)}
        self.environment |= {"KIT_LOCKS": str(folder / "locks")}

    def start(self):
        command = [sys.executable, "-m", "scripts", "article", "demo"]
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def results(self):
        """{case: [status of each result]}"""
        found = {}
        for path in self.runs.glob("*/result.json"):
            record = json.loads(path.read_text())
            found.setdefault(record["job"]["case"], []).append(record["status"])
        return found

    def measuring(self):
        """The cases that a guest works on at this moment."""
        return {path.parent.parent.name.split(".")[1] for path in self.runs.glob("*/*/job.json")}

    def number_of(self, case):
        """SLURM's number of a case's task that runs."""
        (tasks,) = self.runs.parent.glob("slurm/*/tasks.json")
        index = [task["title"].split()[0] for task in json.loads(tasks.read_text())["tasks"]].index(f"demo/{case}")
        return next((number for number, state, _ in self.cluster.jobs() if number.endswith(f"_{index}") and state == "RUNNING"), None)

    def until_measuring(self, case):
        self.cluster.until(lambda: case in self.measuring() and self.number_of(case), f"{case} is being measured", 300)
        return self.number_of(case)

    def left_behind(self):
        """Processes of its tasks, locks and work folders that are still there."""
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        return [*(line for line in commands if str(self.runs).encode() in line), *self.runs.glob("*/work"), *self.runs.glob("*/.lock")]


@pytest.mark.full
def test_a_requeued_task_goes_on_and_all_results_are_there_once(python, models, cluster, tmp_path):
    command = Command(cluster, tmp_path, models)
    process = command.start()
    number = command.until_measuring("bloom-transformers")
    cluster.run("scontrol", "requeue", number)
    cluster.until(lambda: (number, "PENDING") in [(job, state) for job, state, _ in cluster.jobs()], "it is queued again")
    cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")  # SLURM waits two minutes by itself
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert command.results() == {case: ["ok"] for case in CASES}
    assert "3 tasks: 3 done" in err and "make report RUNS=" in out
    assert set(Counter(line.split("(on ")[1].rstrip(")") for line in err.splitlines() if "running (on" in line)) == {"n1", "n2"}
    assert not command.left_behind()


@pytest.mark.full
def test_after_scancel_the_same_command_runs_what_is_missing_and_no_other(python, models, cluster, tmp_path):
    command = Command(cluster, tmp_path, models, CASES[:2])
    process = command.start()
    cluster.run("scancel", command.until_measuring("bloom-layer-parallel"))
    _, err = process.communicate(timeout=500)
    assert process.returncode == 1, err
    assert "1 of 2 tasks failed" in err and "CANCELLED" in err
    assert command.results() == {"bloom-transformers": ["ok"]}
    assert not command.left_behind()

    again = command.start()
    _, err = again.communicate(timeout=500)
    assert again.returncode == 0, err
    assert "1 task: 1 done from the same command before" in err and "submitted 1 task as job" in err
    assert command.results() == {case: ["ok"] for case in CASES[:2]}
    assert not command.left_behind()


def waiting(runs, count=3, gpus=0):
    """Tasks that a test submits by itself."""
    return [Task(f"task {number}", ["bench", str(number)], gpus, 1, []) for number in range(count)], chosen(SCHEDULER="slurm", RUNS=str(runs))


def submit(tasks, asked):
    with submissions.one_at_a_time(asked.runs):
        return follow.submit(tasks, asked)


def test_two_commands_at_once_submit_every_task_once(here, tmp_path, monkeypatch):
    with_setup(monkeypatch, tmp_path, "exec sleep 600")
    tasks, asked = waiting(tmp_path / "runs", count=20)
    with ThreadPoolExecutor(4) as commands:
        found = list(commands.map(lambda _: submit(tasks, asked), range(4)))
    assert len({(task.submission.name, task.index) for watched in found for task in watched}) == 20 == len(here.jobs())


def with_setup(monkeypatch, tmp_path, *lines):
    """Tasks run these lines of bash in place of the kit."""
    monkeypatch.setattr(site, "FILE", tmp_path / "slurm.toml")
    site.FILE.write_text(f"setup = {json.dumps(lines)}\n")
    monkeypatch.setattr(site.resources, "__defaults__", (site.FILE,))


def test_the_same_command_waits_for_tasks_that_are_queued_and_submits_none_twice(here, tmp_path, monkeypatch, capsys):
    with_setup(monkeypatch, tmp_path, "exec sleep 600")
    tasks, asked = waiting(tmp_path / "runs")
    first = submit(tasks, asked)
    here.until(lambda: [state for _, state, _ in here.jobs()].count("RUNNING") == 2, "each node runs a task")
    again = submit(tasks, asked)
    assert [(task.submission.name, task.index) for task in again] == [(task.submission.name, task.index) for task in first]
    shown = CliRunner().invoke(cluster_command.status, ["--runs", str(tmp_path / "runs")]).output
    assert "3 tasks: 2 running, 1 queued" in shown and "task 2: queued" in shown
    assert len(here.jobs()) == 3 and capsys.readouterr().err.count("submitted") == 1


def test_interrupted_without_a_terminal_it_says_how_to_end_the_jobs_and_they_go_on(here, tmp_path):
    (tmp_path / "slurm.toml").write_text('setup = ["exec sleep 600"]\n')
    program = f"""
import os, sys
from pathlib import Path
from scripts import errors, surroundings
from scripts.machine import signals
from scripts.run.slurm import follow, site, states
from tests.guest.test_slurm import waiting
surroundings.use(os.environ)
site.resources.__defaults__ = (Path({str(tmp_path / "slurm.toml")!r}),)
tasks, asked = waiting(Path({str(tmp_path / "runs")!r}))
follow.tasks_of = lambda *_: tasks
def run():
    with signals.raised(): return follow.perform([], asked, 0.2)
errors.run_command(run)
"""

    def interrupted(stdin, stderr, shown):
        # A shell that started this test in the background may have made it ignore Ctrl-C, and its children with it.
        heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=here.environment, stdin=stdin, stderr=stderr, preexec_fn=heeding)
        here.until(lambda: "task 0: running" in shown(), "a task runs")
        process.send_signal(signal.SIGINT)
        return process

    log = tmp_path / "err"
    with log.open("w") as err:
        assert interrupted(subprocess.DEVNULL, err, log.read_text).wait(60) == 130
    assert "note: 3 tasks still queued or running; make status shows them, scancel --name=llm-repro-" in log.read_text()
    assert len(here.jobs()) == 3

    ours, its = os.openpty()
    os.set_blocking(ours, False)
    seen = []

    def terminal():
        with contextlib.suppress(BlockingIOError):
            seen.append(os.read(ours, 1 << 16).decode())
        return "".join(seen)

    process = interrupted(its, its, terminal)
    here.until(lambda: "Cancel them? [y/N]" in terminal(), "it asks")
    os.write(ours, b"y\n")
    assert process.wait(60) == 130
    here.until(lambda: not here.jobs(), "the jobs are gone")


def test_a_node_without_the_folder_is_told(here, tmp_path, monkeypatch):
    with_setup(monkeypatch, tmp_path, "true")
    tasks, asked = waiting(tmp_path / "runs", count=1)
    (task,) = submit(tasks, asked)
    task.submission.log(0).unlink(missing_ok=True)
    here.until(lambda: not here.jobs(), "the task has ended")
    task.submission.log(0).unlink()
    (state,) = follow.wait([task], 0.1, 0)
    assert state.word == states.FAILED and "where the nodes do not share that folder, type RUNS=" in state.more
    script = task.submission.script.read_text().replace(str(task.submission.folder), "/nowhere")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 3 and "needs a file system that all nodes share" in done.stderr


def test_more_gpus_than_a_node_has_are_refused_in_one_line_and_leave_no_job(here, tmp_path):
    tasks, asked = waiting(tmp_path / "runs", gpus=16)
    with pytest.raises(KitError, match="no node has 16 GPUs .*jobs over several nodes are not supported: type GPUS=n") as error:
        submit(tasks, asked)
    assert "\n" not in str(error.value) and not here.jobs()
    assert not list((tmp_path / "slurm").iterdir())


def test_a_partition_that_is_not_there_is_refused_in_one_line(here, tmp_path):
    tasks, _ = waiting(tmp_path / "runs")
    with pytest.raises(KitError, match="SLURM refuses the job: .*nope.*look at PARTITION"):
        submit(tasks, chosen(SCHEDULER="slurm", PARTITION="nope", RUNS=str(tmp_path / "runs")))


def test_two_jobs_on_one_node_take_the_gpus_that_slurm_gave_each(here, fake_nvml, tmp_path):
    program = (
        "import os, pathlib, time; from scripts import surroundings; from scripts.machine import gpus; surroundings.use(os.environ)\n"
        "with gpus.select(2) as chosen:\n"
        "    print(os.environ['SLURM_JOB_GPUS'], *[gpu.index for gpu in chosen], gpus.limits(), flush=True)\n"
        f"    pathlib.Path('{tmp_path}', os.environ['SLURM_JOB_ID'] + '.holds').touch()\n"
        f"    while len(list(pathlib.Path('{tmp_path}').glob('*.holds'))) < 2: time.sleep(0.1)\n"
        "gpus.select(3).__enter__()"
    )
    script = tmp_path / "job.sh"
    script.write_text(
        f'#!/bin/bash\ncd {ROOT}\nLD_LIBRARY_PATH={fake_nvml} FAKE_NVML_GPUS=4 KIT_LOCKS={tmp_path}/$SLURM_JOB_ID exec {sys.executable} -c "{program}"\n'
    )
    for number in (1, 2):
        here.run("sbatch", "--gres=gpu:2", "--nodelist=n1", f"--output={tmp_path}/out-{number}", str(script))
    here.until(lambda: not here.jobs(), "both have ended")
    told = [(tmp_path / f"out-{number}").read_text() for number in (1, 2)]
    assert [text.partition(" gives")[0].splitlines()[0].split(" CUDA")[0] for text in told] == ["0,1 0 1", "2,3 2 3"]
    assert all("gives 2 of this machine's 4 GPUs" in text and "type GPUS=2 or less" in text for text in told)


@pytest.mark.full
def test_a_controller_that_restarts_is_waited_for(here, tmp_path, monkeypatch, capsys):
    with_setup(monkeypatch, tmp_path, "sleep 10", "exit 4")
    tasks, asked = waiting(tmp_path / "runs", count=1)
    watched = submit(tasks, asked)
    os.kill(int((here.folder / "slurmctld.pid").read_text()), signal.SIGTERM)
    here.until(lambda: not (here.folder / "slurmctld.pid").exists(), "the controller is gone")
    pause = time.sleep

    def restarting(seconds):
        if "asking again" in capsys.readouterr().err:
            here.run("slurmctld")
        pause(seconds)

    monkeypatch.setattr(follow.time, "sleep", restarting)
    (state,) = follow.wait(watched, 0.2, 0)
    assert state.word == states.FAILED and "SLURM says FAILED" in state.more


@pytest.mark.full
def test_a_thousand_tasks_come_from_one_command(here, tmp_path, monkeypatch):
    with_setup(monkeypatch, tmp_path, "exec sleep 600")
    tasks, asked = waiting(tmp_path / "runs", count=1000)
    watched = submit(tasks, asked)
    now = [states.of(task, client.queue([watched[0].submission.name])) for task in watched[:5]]
    assert len(here.jobs()) == 1000 and {state.word for state in now} <= {states.QUEUED, states.RUNS}
