"""SCHEDULER=slurm without a cluster: which tasks there are, what each runs, what SLURM is asked for, how far tasks are."""

import dataclasses
import json
import os
import shlex
import subprocess
import time
from pathlib import Path

import click
import pytest

from scripts import articles, pins
from scripts.commands import measure
from scripts.commands.line import command_line, invoke
from scripts.errors import KitError, UsageError
from scripts.paths import ROOT
from scripts.run import plan
from scripts.run.slurm import client, follow, site, states, submissions, tasks
from scripts.run.slurm.client import Job
from scripts.run.slurm.states import Watched
from tests import synthetic
from tests.typed import chosen


def split(article="inference-tools", every=True, **typed):
    asked = chosen(**{"ARTICLE": article, "WEIGHTS": "random", "SCHEDULER": "slurm", **typed})
    return list(tasks.split(plan.plan(list(pins.load().backends), asked, every), asked))


def option_of(task, name):
    return task.arguments[task.arguments.index(name) + 1]


def test_rows_that_a_claim_compares_are_one_task_with_all_their_repeats():
    found = split(CASES="deepspeed,layer-parallel,tensor-parallel", REPEATS="5", GPUS="2")
    assert [option_of(task, "--variant") for task in found] == ["published", "controlled"]
    assert {option_of(task, "--repeats") for task in found} == {"5"}
    assert all(set(option_of(task, "--cases").split(",")) == {"deepspeed", "layer-parallel", "tensor-parallel"} for task in found)
    assert all(task.arguments[:2] == ["article", "inference-tools"] and task.repeat == 0 and task.gpus == 2 for task in found)


def test_each_repeat_of_a_row_that_nothing_compares_is_a_task_of_its_own():
    found = split("demo", CASES="bloom-transformers,gptj-transformers", REPEATS="2", STACK="demo", ENGINE="host", DEVICE="cpu", SCALE="tiny")
    assert [(option_of(task, "--cases"), task.repeat, option_of(task, "--repeats")) for task in found] == [
        ("bloom-transformers", 1, "1"),
        ("bloom-transformers", 2, "2"),
        ("gptj-transformers", 1, "1"),
        ("gptj-transformers", 2, "2"),
    ]
    assert found[1].title.endswith("run 2 of 2") and found[0].gpus == 0


def test_a_repeat_by_force_is_one_run_because_stored_runs_do_not_count():
    found = split("demo", CASES="bloom-transformers", REPEATS="3", FORCE="1", STACK="demo", ENGINE="host", DEVICE="cpu", SCALE="tiny")
    assert [(task.repeat, option_of(task, "--repeats"), option_of(task, "--force")) for task in found] == [(1, "1", "1"), (2, "1", "1"), (3, "1", "1")]


def test_cases_that_relations_join_over_a_third_are_one_set():
    article = articles.find("inference-tools")
    assert tasks.compared(article, ["tensor-parallel", "deepspeed", "int8", "transformers"]) == [{"tensor-parallel", "deepspeed", "int8"}]
    assert tasks.compared(article, ["deepspeed"]) == []


def test_a_task_gets_as_many_gpus_as_the_largest_of_its_cases():
    (task,) = split("deepspeed-inference", CASES="pipeline-transformers,pipeline-deepspeed-1,pipeline-deepspeed-4", VARIANT="controlled")
    assert task.gpus == articles.find("deepspeed-inference").case("pipeline-deepspeed-4").gpus == 4


def test_what_a_task_runs_is_a_command_of_the_kit_that_means_the_same():
    typed = {"CASES": "layer-parallel", "BATCH_SIZES": "1,8", "TIMED_RUNS": "7", "FORCE": "1", "KIT_MEMLOCK": "1", "TIMEOUT_S": "60", "GPUS": "2"}
    (task,) = split(every=False, RUNS="/x/runs", MODELS="/x/models", STACK="current", PARTITION="gpu", **typed)
    context = command_line.get_command(click.Context(command_line), "bench").make_context("bench", task.arguments[1:])
    asked, wanted = measure.options_of(context.params), chosen(**typed, RUNS="/x/runs", MODELS="/x/models", STACK="current", WEIGHTS="random")
    assert (asked.scheduler, asked.partition, asked.variant) == ("local", "", "published")
    same = [name for name in tasks.Options.__dataclass_fields__ if name not in ("variant", "article")]
    assert {name: getattr(asked, name) for name in same} == {name: getattr(wanted, name) for name in same}


def test_a_backend_that_the_article_never_ran_is_a_task_too():
    asked = chosen(SCHEDULER="slurm", STACK="current", WEIGHTS="random")
    planned = plan.plan(["compiled"], asked, every=False)
    (task,) = tasks.split(planned, asked)
    params = command_line.get_command(click.Context(command_line), "bench").make_context("bench", task.arguments[1:]).params
    assert plan.plan([params["backend"]], measure.options_of(params), every=False) == planned


def test_gpu_ids_are_refused_and_so_are_values_of_slurm_without_slurm():
    with pytest.raises(UsageError, match="GPU_IDS is '0,1' with SCHEDULER=slurm.*type GPUS=n in place of GPU_IDS"):
        follow.tasks_of([], chosen(SCHEDULER="slurm", GPU_IDS="0,1"))
    with pytest.raises(UsageError, match="PARTITION is 'gpu', which only SLURM reads; type SCHEDULER=slurm"):
        chosen(PARTITION="gpu")


def test_what_is_typed_goes_before_the_site_file(tmp_path):
    file = tmp_path / "slurm.toml"
    file.write_text('partition = "gpu"\naccount = "abc"\nsetup = ["module load python"]\n')
    found = site.resources(chosen(SCHEDULER="slurm", PARTITION="debug", TIME="1-02:00:00"), file)
    assert site.options_of(found) == ["--partition=debug", "--account=abc", "--time=1-02:00:00"]
    assert found.setup == ["module load python"]
    assert site.options_of(site.resources(chosen(SCHEDULER="slurm"), tmp_path / "absent")) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [('partion = "x"\n', "did you mean 'partition'"), ("time = 4\n", "slurm.toml"), ('qos = "-x"\n', "slurm.toml"), ("x", "not TOML")],
)
def test_a_wrong_site_file_is_one_line(tmp_path, text, words):
    file = tmp_path / "slurm.toml"
    file.write_text(text)
    with pytest.raises(KitError, match=words):
        site.resources(chosen(SCHEDULER="slurm"), file)


def test_a_wrong_time_is_named_with_what_is_allowed():
    with pytest.raises(UsageError, match="TIME is 'soon', allowed are minutes, h:m:s and d-h:m:s; try TIME=04:00:00"):
        site.resources(chosen(SCHEDULER="slurm", TIME="soon"), Path("/absent"))


def test_another_cluster_is_refused_because_its_tasks_would_not_be_found(monkeypatch):
    site.resources(chosen(SCHEDULER="slurm"), Path("/absent"))
    monkeypatch.setenv("SBATCH_CLUSTERS", "west")
    with pytest.raises(UsageError, match="SBATCH_CLUSTERS is 'west', allowed is none: .*; type `unset SBATCH_CLUSTERS`, and the command on a login node"):
        site.resources(chosen(SCHEDULER="slurm"), Path("/absent"))


def test_sbatch_does_not_wait_itself_for_the_end_of_the_tasks(monkeypatch):
    for name in ("SBATCH_WAIT", "SBATCH_RESERVATION"):
        monkeypatch.setenv(name, "x")
    assert set(client.environment()) & {"SBATCH_WAIT", "SBATCH_RESERVATION"} == {"SBATCH_RESERVATION"}


def test_tokens_and_the_options_of_the_command_stay_out_of_the_jobs(monkeypatch):
    for name in ("HF_TOKEN", "SCHEDULER", "PARTITION", "RUNS", "FORCE", "SLURM_JOB_ID", "SLURM_CONF", "CUDA_VISIBLE_DEVICES", "KIT_TYPED", "HF_HOME"):
        monkeypatch.setenv(name, "x")
    passed = client.environment()
    assert {"SLURM_CONF", "HF_HOME", "PATH"} <= set(passed)
    assert not set(passed) & {"HF_TOKEN", "SCHEDULER", "PARTITION", "RUNS", "FORCE", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "KIT_TYPED"}


def test_an_array_is_submitted_with_its_gpus_and_what_it_waits_for_and_a_refusal_is_told(monkeypatch, tmp_path):
    program, cancelled = tmp_path / "sbatch", tmp_path / "scancel"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncase "$*" in *gpu:9*) echo "sbatch: error: too many" >&2; exit 1;; esac\necho "41;cluster"\n')
    cancelled.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/cancelled\n')
    for one in (program, cancelled):
        one.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert client.submit(tmp_path / "script", "name", [0, 2], 2, ["--partition=gpu"], after="40") == "41"
    assert {"--job-name=name", "--array=0,2", "--gres=gpu:2", "--dependency=afterany:40", "--partition=gpu"} <= set((tmp_path / "asked").read_text().split())
    with pytest.raises(KitError, match="SLURM refuses the job: too many"):
        client.submit(tmp_path / "script", "name", [0], 9, [])
    client.cancel([])
    assert not (tmp_path / "cancelled").exists(), "scancel without a job is an error"
    client.cancel([Job("name", "41", index, "RUNNING", "n1", "None") for index in (0, 2)])
    assert (tmp_path / "cancelled").read_text() == "41_0 41_2\n"


@pytest.mark.parametrize(("gpus", "after", "more"), [(2, "40:41", ["--gres=gpu:2", "--dependency=afterany:40:41"]), (0, "", [])])
def test_a_task_has_a_node_of_its_own_and_is_warned_and_queued_again_and_its_log_keeps_every_start(monkeypatch, gpus, after, more):
    commands = answering(monkeypatch, "42")
    client.submit(Path("/results/slurm/name/job.sh"), "name", [0, 2], gpus, ["--partition=gpu"], after)
    (command,) = commands
    assert set(command) == {
        *("sbatch", "--parsable", "--job-name=name", "--array=0,2", "--nodes=1", "--exclusive", "--mem=0", "--requeue", "--signal=B:TERM@60"),
        *("--open-mode=append", "--output=/results/slurm/name/task-%a.log", "--chdir=/results/slurm/name", "--partition=gpu", *more),
        "/results/slurm/name/job.sh",
    }
    assert command[0] == "sbatch" and command[-1] == "/results/slurm/name/job.sh"


def test_slurm_chooses_the_gpus_of_tasks_itself():
    asked = {"ARTICLE": "inference-tools", "WEIGHTS": "random", "SCHEDULER": "slurm", "CASES": "deepspeed"}
    planned = plan.plan(["deepspeed"], chosen(**asked), every=True)
    assert follow.tasks_of(planned, chosen(**asked)) == split(CASES="deepspeed")
    with pytest.raises(UsageError, match="GPU_IDS is '0,1' with SCHEDULER=slurm, and SLURM chooses the GPUs"):
        follow.tasks_of(planned, chosen(**asked, GPU_IDS="0,1"))


def test_the_queue_is_what_squeue_says_of_these_names_and_no_queue_where_it_fails(monkeypatch, tmp_path):
    program = tmp_path / "squeue"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *--name=one,two*) echo "one|7|0|RUNNING|node1|None"; echo "two|8|1-3|PENDING||Resources";; *) echo "down" >&2; exit 1;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert client.queue(["one", "two"]) == [Job("one", "7", 0, "RUNNING", "node1", "None")]
    with pytest.raises(KitError, match=r"squeue does not answer \(down\)"):
        client.queue(["three"])


def test_the_queue_is_asked_for_each_task_also_for_those_that_have_just_ended(monkeypatch):
    commands = answering(monkeypatch, "one|7|0|FAILED|node1|JobLaunchFailure|2 of 3\n")
    assert client.queue(["one"]) == [Job("one", "7", 0, "FAILED", "node1", "JobLaunchFailure|2 of 3")]
    assert commands == [("squeue", "--noheader", "--array", "--states=all", "--name=one", "--format=%j|%F|%K|%T|%N|%r")]


def test_without_slurm_the_way_out_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KitError, match="this machine has no squeue; type the command on a login node"):
        client.queue(["llm-repro-1"])


def answering(monkeypatch, text):
    """Let every command of SLURM end well with this output; the commands, as they come."""
    commands = []
    monkeypatch.setattr(client, "_run", lambda *command: commands.append(command) or subprocess.CompletedProcess(command, 0, text, ""))
    return commands


@pytest.mark.parametrize("around", ["Welcome to the cluster\n", "\n", "a|b\n", "JOBNAME|1|N/A|RUNNING|n1|None\n"])
def test_what_a_site_prints_around_its_queue_is_no_task(monkeypatch, around):
    answering(monkeypatch, f"{around}llm-repro-1|7|0|RUNNING|n1|None\n{around}")
    assert client.queue(["llm-repro-1"]) == [Job("llm-repro-1", "7", 0, "RUNNING", "n1", "None")]


@pytest.mark.parametrize("text", ["1234", "1234;cluster\n", "note: the queue is long\n1234\n"])
def test_the_number_of_a_job_is_found_whatever_a_site_prints_before_it(monkeypatch, text):
    answering(monkeypatch, text)
    assert client.submit(Path("/runs/job.sh"), "llm-repro-1", [0], 1, []) == "1234"


def test_a_job_without_a_number_is_one_line(monkeypatch):
    answering(monkeypatch, "queued for review\n")
    with pytest.raises(KitError, match="sbatch printed no job id, but 'queued for review'; see what `squeue --me` says"):
        client.submit(Path("/runs/job.sh"), "llm-repro-1", [0], 1, [])


def test_a_per_cent_sign_in_the_folder_of_results_is_no_pattern_of_slurm(monkeypatch):
    commands = answering(monkeypatch, "1234")
    client.submit(Path("/50%done/job.sh"), "llm-repro-1", [0], 1, [])
    assert "--output=/50%%done/task-%a.log" in commands[0]


@pytest.fixture
def watched(tmp_path):
    """A task that was submitted from an empty folder of results."""
    (task,) = split(every=False, CASES="deepspeed", STACK="hopper", VARIANT="published", GPUS="1")
    with submissions.one_at_a_time(tmp_path / "runs"):
        submission = submissions.prepare([task], site.Site(partition="gpu", setup=["echo it's loaded"]), tmp_path / "runs")
    return Watched(submission, 0, tmp_path / "runs")


def job(watched, state, node="n1"):
    return Job(watched.submission.name, "7", 0, state, node, "Priority")


def test_a_controller_that_does_not_answer_is_asked_again_and_that_is_said_once(watched, monkeypatch, capsys):
    answers = iter([KitError("squeue does not answer"), KitError("squeue does not answer"), [job(watched, "FAILED")]])

    def queue(names):
        answer = next(answers)
        if isinstance(answer, KitError):
            raise answer
        return answer

    monkeypatch.setattr(client, "queue", queue)
    (state,) = follow.wait([watched], 0, 0)
    assert state.word == states.FAILED
    assert capsys.readouterr().err.count("note: squeue does not answer; asking again") == 1


def receive(watched, status):
    record = synthetic.record(synthetic.job("deepspeed"))
    folder = watched.runs / record.id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text("{}")
    (watched.submission.folder / "receipt-0.json").write_text(json.dumps({record.id: status}))
    return folder / "result.json"


class Cluster:
    """Notes what is submitted, in place of SLURM: (number, indices, GPUs, the arrays that it waits for); all of it runs on, and some is refused."""

    def __init__(self, monkeypatch):
        self.arrays, self.names, self.refuses, self.cancelled, self.left_out, self.running = [], {}, None, [], set(), set()
        for name in ("submit", "queue", "cancel"):
            monkeypatch.setattr(client, name, getattr(self, name))

    def submit(self, script, name, indices, gpus, resources, after=""):
        if gpus == self.refuses:
            raise KitError("refused")
        number = str(100 + len(self.arrays))
        self.arrays.append((number, indices, gpus, after))
        self.names[number] = name
        return number

    def queue(self, names):
        asked = set(names)
        of_arrays = ((self.names[number], number, index) for number, indices, *_ in self.arrays for index in indices if self.names[number] in asked)
        there = (one for one in of_arrays if one[1:] not in self.left_out)
        return [Job(name, number, index, "RUNNING" if number in self.running else "PENDING", "", "Priority") for name, number, index in there]

    def cancel(self, jobs):
        self.cancelled += [job.id for job in jobs]


def repeated(*wanted):
    """Tasks from (case, GPUs, repeat)."""
    return [tasks.Task(f"{case} {repeat}", ["bench", case], gpus, repeat, [case]) for case, gpus, repeat in wanted]


def asked_of(tmp_path, **typed):
    return chosen(ARTICLE="inference-tools", WEIGHTS="random", SCHEDULER="slurm", PARTITION="gpu", RUNS=str(tmp_path / "runs"), **typed)


def submitted(array, asked):
    with submissions.one_at_a_time(asked.runs):
        return follow.submit(array, asked)


def test_a_repeat_begins_after_the_repeats_before_it_on_as_many_gpus(monkeypatch, tmp_path, capsys):
    cluster = Cluster(monkeypatch)
    array = repeated(("together", 2, 0), ("a", 1, 1), ("a", 1, 2), ("a", 1, 3), ("b", 1, 1), ("b", 1, 2), ("c", 2, 1), ("c", 2, 2))
    watched = submitted(array, asked_of(tmp_path))
    assert cluster.arrays == [
        ("100", [1, 4], 1, ""),
        ("101", [2, 5], 1, "100"),
        ("102", [3], 1, "100:101"),
        ("103", [0], 2, ""),
        ("104", [6], 2, ""),
        ("105", [7], 2, "104"),
    ]
    assert [task.task for task in watched] == array
    assert "submitted 2 tasks as job 101, 1 GPU each; logs in " in capsys.readouterr().err


def test_a_repeat_that_is_submitted_again_waits_for_those_that_still_wait_or_run(monkeypatch, tmp_path, capsys):
    cluster, asked = Cluster(monkeypatch), asked_of(tmp_path)
    cluster.running = {"100"}
    array = repeated(("a", 1, 1), ("a", 1, 2), ("c", 2, 1), ("c", 2, 2))
    submitted(array, asked)
    cluster.left_out = {("101", 1), ("102", 2)}  # the second repeat of one case has failed, and the first of the other
    again = submitted(array, asked)
    assert cluster.arrays[4:] == [("104", [0], 1, "100"), ("105", [1], 2, "")]
    assert "2 tasks: 1 running, 1 queued from the same command before" in capsys.readouterr().err
    assert sorted(task.task.title for task in again) == ["a 1", "a 2", "c 1", "c 2"]


def test_tasks_of_more_than_one_submission_wait_for_each_other_too(monkeypatch, tmp_path):
    monkeypatch.setattr(submissions, "MOST_TASKS", 1)
    cluster = Cluster(monkeypatch)
    watched = submitted(repeated(("a", 1, 1), ("a", 1, 2)), asked_of(tmp_path))
    assert cluster.arrays == [("100", [0], 1, ""), ("101", [0], 1, "100")] and len({task.submission.name for task in watched}) == 2


def test_an_array_that_is_refused_takes_the_others_of_its_submission_with_it(monkeypatch, tmp_path):
    cluster = Cluster(monkeypatch)
    cluster.refuses = 2
    with pytest.raises(KitError, match="^refused$"):
        submitted(repeated(("a", 1, 1), ("b", 1, 1), ("c", 2, 1)), asked_of(tmp_path))
    assert cluster.cancelled == ["100_0", "100_1"] and not list((tmp_path / "slurm").glob("llm-repro-*"))


def test_forced_tasks_are_submitted_anew_though_the_same_wait(monkeypatch, tmp_path):
    cluster = Cluster(monkeypatch)
    for force in ("0", "0", "1"):
        submitted(repeated(("a", 1, 1)), asked_of(tmp_path, FORCE=force))
    assert [number for number, *_ in cluster.arrays] == ["100", "101"]


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ((["ok"], ["ok"]), 0),
        ((["ok"], ["ok", "oom"]), 1),
        ((["failed"], ["ok"]), 1),
        ((["ok"], None), "1 of 2 tasks failed"),
        ((None, ["failed"]), "2 of 2 tasks failed"),
    ],
)
def test_the_exit_code_of_the_command_is_that_of_its_worst_row_and_a_task_without_a_receipt_is_an_error(monkeypatch, tmp_path, ended, code):
    cluster, asked = Cluster(monkeypatch), asked_of(tmp_path)
    monkeypatch.setattr(follow, "tasks_of", lambda planned, asked: repeated(("a", 1, 1), ("b", 1, 1)))

    def queue(names):
        for (folder,) in [list((tmp_path / "slurm").glob("llm-repro-*"))] if cluster.arrays else []:
            for number, statuses in enumerate(ended):
                receipt = {f"run-{number}-{one}": status for one, status in enumerate(statuses or [])}
                for run in receipt:
                    (tmp_path / "runs" / run).mkdir(parents=True, exist_ok=True)
                    (tmp_path / "runs" / run / "result.json").touch()
                if statuses:
                    (folder / f"receipt-{number}.json").write_text(json.dumps(receipt))
        return [dataclasses.replace(job, state="CANCELLED") for job in Cluster.queue(cluster, names)]

    monkeypatch.setattr(client, "queue", queue)
    if isinstance(code, str):
        with pytest.raises(KitError, match=f"^{code}, as shown above; the same command again runs them and no other$"):
            follow.perform([], asked, 0)
    else:
        assert follow.perform([], asked, 0) == code


def test_a_receipt_that_this_machine_sees_late_counts(watched, monkeypatch, capsys):
    looks = []

    def queue(names):
        looks.append(names)
        if len(looks) == 3:  # SLURM knows earlier than the shared file system that the task has ended
            receive(watched, "ok")
        return [job(watched, "COMPLETED")]

    monkeypatch.setattr(client, "queue", queue)
    (state,) = follow.wait([watched], 0)
    assert (state.word, len(looks)) == (states.DONE, 3) and "failed" not in capsys.readouterr().err


@pytest.mark.parametrize(("ended", "waited"), [("COMPLETED", True), ("FAILED", True), ("CANCELLED", False), ("TIMEOUT", False), ("NODE_FAIL", False)])
def test_a_task_without_a_receipt_has_failed_at_once_where_slurm_ended_it_and_else_after_a_while(watched, monkeypatch, ended, waited):
    looks = []
    monkeypatch.setattr(client, "queue", lambda names: looks.append(names) or [job(watched, ended)])
    began = time.monotonic()
    (state,) = follow.wait([watched], 0.01, 0.2)
    assert state.word == states.FAILED and f"SLURM says {ended} on n1" in state.more
    assert time.monotonic() - began >= 0.2 if waited else len(looks) == 1


def test_the_states_of_a_task_follow_the_queue_and_its_receipt(watched):
    assert states.of(watched, [job(watched, "PENDING")]).word == states.QUEUED
    assert states.of(watched, [job(watched, "RUNNING")]) == states.State(states.RUNS, "on n1", job(watched, "RUNNING"))
    nothing_said = dataclasses.replace(job(watched, "PENDING"), reason="None")
    assert [states.of(watched, [one]).more for one in (job(watched, "PENDING"), nothing_said)] == ["Priority", ""]
    assert states.of(watched, []).word == states.FAILED
    of_others = [Job(name, "8", index, "RUNNING", "n2", "None") for name, index in ((watched.submission.name, 1), ("another", 0))]
    assert states.of(watched, [job(watched, "PENDING"), *of_others]).word == states.QUEUED
    receive(watched, "ok")
    assert states.of(watched, []) == states.State(states.DONE, "1 ok")
    assert states.of(watched, [job(watched, "COMPLETING")]).word == states.DONE, "its node is still being cleared"
    receive(watched, "timeout")
    assert states.of(watched, []).word == states.FAILED


def test_a_failed_task_that_was_submitted_again_is_shown_there_alone(watched, monkeypatch, capsys):
    monkeypatch.setattr(client, "queue", lambda names: [])
    typed = ["status", "--runs", str(watched.runs)]
    invoke(typed)
    assert f"{watched.submission.name}, " in capsys.readouterr().out
    with submissions.one_at_a_time(watched.runs):
        again = submissions.prepare(watched.submission.tasks, site.Site(partition="gpu", setup=["echo it's loaded"]), watched.runs)
    monkeypatch.setattr(client, "queue", lambda names: [Job(name, "8", 0, "PENDING", "", "Priority") for name in names if name == again.name])
    invoke(typed)
    told = capsys.readouterr().out
    assert watched.submission.name not in told and told.splitlines()[1] == f"  {again.tasks[0].title}: {states.QUEUED} (Priority)"


def test_every_task_of_a_submission_is_shown_with_its_state(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(client, "queue", lambda names: [Job(name, "8", index, "PENDING", "", "Priority") for name in names for index in (0, 1)])
    found = split(CASES="deepspeed", STACK="hopper", GPUS="1")
    with submissions.one_at_a_time(tmp_path):
        submissions.prepare(found, site.Site(partition="gpu", setup=[]), tmp_path)
    invoke(["status", "--runs", str(tmp_path)])
    shown = capsys.readouterr().out.splitlines()[1:]
    assert len(found) > 1 and shown == [f"  {task.title}: {states.QUEUED} (Priority)" for task in found]


def test_a_result_that_was_removed_makes_its_task_run_again(watched):
    path = receive(watched, "ok")
    path.unlink()
    assert states.of(watched, []).word == states.FAILED


def test_a_task_without_a_receipt_is_told_with_what_slurm_and_its_log_say(watched):
    assert "SLURM says TIMEOUT on n1" in states.of(watched, [job(watched, "TIMEOUT")]).more
    assert "where the nodes do not share that folder" in states.of(watched, [job(watched, "FAILED")]).more
    watched.submission.log(0).write_text("[1 of 1] …\nerror: no Docker answers\ninterrupted\n")
    more = states.of(watched, []).more
    assert "SLURM no longer knows the task" in more and "error: no Docker answers" in more and str(watched.submission.log(0)) in more


def test_a_receipt_that_is_damaged_and_a_log_that_is_none_or_huge_are_told_and_not_read_whole(watched, monkeypatch):
    (watched.submission.folder / "receipt-0.json").write_text("[" * 100_000)
    assert states.of(watched, []).more.startswith("SLURM no longer knows the task, and it left no log")
    log = watched.submission.log(0)
    log.mkdir()
    assert "it left no log" in states.of(watched, []).more
    log.rmdir()
    monkeypatch.setattr(tasks, "END_OF_A_LOG_BYTES", 100)
    log.write_text("error: the first\n" + "x" * 100 + "\nerror: the last\n")
    assert "; error: the last; its log is" in states.of(watched, []).more
    log.write_text("error: the first\n" + "x" * 100 + "\n")
    assert "no longer knows the task; its log is" in states.of(watched, []).more


def test_an_earlier_task_counts_only_where_it_asked_the_same_of_the_same_resources(watched):
    (found,) = submissions.load_all(watched.runs)
    assert found == watched.submission
    asked = site.Site(partition="gpu", setup=["echo it's loaded"])
    assert list(submissions.same_request(watched.task, asked, found)) == [0]
    assert not list(submissions.same_request(watched.task, site.Site(partition="h100"), found))
    (other,) = split(every=False, CASES="deepspeed", STACK="hopper", VARIANT="controlled", GPUS="1")
    assert not list(submissions.same_request(other, asked, found))


def test_submissions_are_in_the_order_of_their_submission_whichever_ran_last(watched):
    first = watched.submission
    with submissions.one_at_a_time(watched.runs):
        second = submissions.prepare([watched.task], site.Site(partition="h100"), watched.runs)
    for number, submission in enumerate((first, second), 1):
        os.utime(submission.folder / "tasks.json", (number, number))
        os.utime(submission.folder, (100 - number, 100 - number))
    assert [found.name for found in submissions.load_all(watched.runs)] == [first.name, second.name]


def test_a_row_with_other_pins_is_another_task():
    old, new = (split(every=False, CASES="deepspeed", STACK=stack, VARIANT="controlled")[0] for stack in ("hopper", "current"))
    assert old.rows != new.rows and all(len(row.rpartition(".")[2]) == 12 for row in (*old.rows, *new.rows))


def test_the_script_quotes_what_it_gets(watched):
    text = watched.submission.script.read_text()
    assert "echo it's loaded" in text
    (line,) = [line for line in text.splitlines() if line.startswith("0) ")]
    assert shlex.split(line.removeprefix("0) set -- ").removesuffix(" ;;")) == watched.task.arguments


def test_the_script_becomes_the_command_of_its_task_after_the_setup_whatever_its_folder_is_called(tmp_path, monkeypatch):
    folder = tmp_path / "our 'data' $HOME ü"
    folder.mkdir()
    python = folder / "python 3"
    python.write_text('#!/bin/sh\necho "$$ $PWD $SET_UP" > "$0.said"\nprintf "%s\\n" "$@" >> "$0.said"\n')
    python.chmod(0o755)
    monkeypatch.setattr(submissions.sys, "executable", str(python))
    array = [tasks.Task(name, ["bench", "a b", name], 0, 1, []) for name in ("first", "it's")]
    with submissions.one_at_a_time(folder / "runs"):
        made = submissions.prepare(array, site.Site(setup=["export SET_UP='as set'"]), folder / "runs")

    def run(number):
        process = subprocess.Popen(["bash", str(made.script)], env=os.environ | {"SLURM_ARRAY_TASK_ID": number}, stderr=subprocess.PIPE, text=True)
        told = process.communicate()[1]
        return process.returncode, process.pid, told

    code, number, _ = run("1")
    said = (folder / "python 3.said").read_text().splitlines()
    assert code == 0 and said[0] == f"{number} {ROOT} as set", "the signals of SLURM reach the runner itself"
    assert said[1:] == ["-m", "scripts", "bench", "a b", "it's", "--receipt", str(made.folder / "receipt-1.json")]
    assert run("2")[::2] == (2, "error: there is no task 2\n")


def test_whoever_may_write_results_may_submit_and_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with submissions.one_at_a_time(tmp_path / "shared" / "runs"):
        assert submissions.place(tmp_path / "shared" / "runs").stat().st_mode & 0o777 == 0o777
    with pytest.raises(KitError, match="/proc/slurm cannot be written .*type RUNS="), submissions.one_at_a_time(Path("/proc/runs")):
        pass


def test_the_counts_are_one_line():
    found = [states.State(word) for word in (states.QUEUED, states.DONE, states.QUEUED, states.RUNS)]
    assert states.summary(found) == "4 tasks: 1 done, 1 running, 2 queued"


def test_a_plan_names_the_tasks():
    lines = list(follow.lines(split(CASES="deepspeed,layer-parallel", VARIANT="published", GPUS="2")))
    assert lines[0] == "1 task of SLURM, each on a node of its own:" and lines[1].endswith(", 2 GPUs")


def test_a_machine_from_which_slurm_does_not_answer_is_told_apart_from_a_refusal() -> None:
    nowhere = "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: fatal: Could not establish a configuration source\n"
    assert str(client.refused(nowhere, 1)).startswith("SLURM does not answer: sbatch: fatal: Could not establish a configuration source; type this on ")
    assert "SLURM refuses the job: invalid partition specified: x; look at PARTITION" in str(
        client.refused("sbatch: error: invalid partition specified: x\n", 1)
    )


@pytest.mark.parametrize("text", ["", "{", "[NaN]", "[" * 5000, '{"tasks": [{}], "site": {}}'])
def test_a_damaged_submission_is_named_and_hides_no_other(watched, capsys, text):
    damaged = watched.submission.folder.with_name(watched.submission.folder.name + "x")
    damaged.mkdir()
    (damaged / "tasks.json").write_text(text)
    pipe = watched.submission.folder.with_name(watched.submission.folder.name + "y")
    pipe.mkdir()
    os.mkfifo(pipe / "tasks.json")
    assert [found.name for found in submissions.load_all(watched.runs)] == [watched.submission.name]
    assert f"note: {damaged / 'tasks.json'} is damaged and left out: " in capsys.readouterr().err
