"""PLAN=1: the rows, what is there of them, and how long the rest takes; nothing is started."""

import dataclasses

import pytest

from scripts import articles, pins
from scripts.articles import Article, Case
from scripts.commands.line import invoke
from scripts.errors import KitError, UsageError
from scripts.machine import gpus
from scripts.models import hub
from scripts.pins import Image
from scripts.results import store
from scripts.run import host_facts, outlook, plan, rounds, runner
from tests import synthetic
from tests.typed import chosen

CPU = {"STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"}


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was started")

    monkeypatch.setattr(runner, "perform", refuse)


def planned(backends, asked):
    return plan.plan(backends, asked, every=False)


def stored(one, asked, number, *, gpu=None, beside=None, cores=None, seconds=20.0, status="ok", shared_with=0, **changes):
    """A run of a planned row in the folder of results, which took so many seconds."""
    seen = host_facts.devices([one for one in (gpu, beside) if one])
    seen["machine"] |= {"cpu_count": cores} if cores else {}
    job, prefix = runner.question(one, asked, seen)
    if changes:
        job = dataclasses.replace(job, **changes)
    record = synthetic.record(job, means_ms=(5.0,) * len(job.runs))
    record.guest.batch_size = job.prompt.get("batch_size", 1)
    alike = [{**told, "index": number, "uuid": f"GPU-{number}"} for told in seen["gpus"] for number in range(job.device_count)]
    had = seen["gpus"] if beside else alike
    pins_id = pins.load().image(one.case.backend, one.stack).pins_id
    of_job = {"gpus": had, "gpu_memory": [], "image": None, "pins_id": pins_id, "engine": asked.engine}
    host = {**record.host, **seen, **of_job, "wall_s": seconds, "container_s": 1.0, "judge_s": 2.0, "shared_with": shared_with}
    failed = {} if status == "ok" else {"status": status, "reason": "synthetic", "guest": None}
    folder = asked.runs / f"{prefix}-{number:02d}"
    store(folder, dataclasses.replace(record, id=folder.name, host=host, **failed))


def rows(backends, asked):
    return list(outlook.rows_of(planned(backends, asked), asked))


def test_a_row_without_a_run_has_no_expected_time(tmp_path):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="5")
    (row,) = rows(["transformers"], asked)
    assert (row.done, row.to_go, row.run_s) == (0, 5, None)
    assert (
        outlook.summary([row])
        == "5 runs: 0 are there, 5 to go, the time of 5 is unknown: no run of the same row, with as many timed calls on as many devices, is stored"
    )


def test_runs_that_are_there_count_and_tell_how_long_the_others_take(tmp_path):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="5")
    (one,) = planned(["transformers"], asked)
    for number, seconds in enumerate((10.0, 20.0, 90.0), 1):
        stored(one, asked, number, seconds=seconds)
    (row,) = rows(["transformers"], asked)
    assert (row.done, row.to_go, row.run_s) == (3, 2, 23.0)
    assert outlook.summary([row]) == "5 runs: 3 are there, 2 to go, about 46 s"
    unknown = dataclasses.replace(row, run_s=None)
    assert outlook.summary([row, unknown]).startswith("10 runs: 6 are there, 4 to go, about 46 s, the time of 2 more is unknown: ")
    (anew,) = rows(["transformers"], dataclasses.replace(asked, force=True))
    assert (anew.done, anew.to_go, anew.run_s) == (0, 5, 23.0)


def test_runs_of_a_kit_that_told_no_times_do_not_hide_later_ones_that_do(tmp_path, monkeypatch):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="9")
    (one,) = planned(["transformers"], asked)
    monkeypatch.setattr(outlook, "RUNS_OF_ESTIMATE", 2)
    for number, seconds in enumerate((None, None, 20.0, 22.0, 90.0), 1):
        stored(one, asked, number, seconds=seconds)
    (row,) = rows(["transformers"], asked)
    assert (row.done, row.run_s) == (5, 24.0)


def test_a_run_on_another_kind_of_machine_is_to_go_here_and_tells_how_long_it_takes(tmp_path):
    asked = chosen(**CPU, RUNS=str(tmp_path))
    (one,) = planned(["transformers"], asked)
    stored(one, asked, 1, cores=4096, seconds=20.0)
    stored(one, asked, 2, cores=4096, timed_runs=100)
    (row,) = rows(["transformers"], asked)
    assert (row.done, row.to_go, row.run_s, row.elsewhere_done) == (0, 1, 23.0, 1), "one of the two asked for the same calls"
    assert "  0 of 1 runs are there (1 of other kinds of machines do not count here)  23 s a run" in list(outlook.lines([one], asked))[1]
    assert rows(["transformers"], dataclasses.replace(asked, force=True))[0].elsewhere_done == 0
    stored(one, asked, 3)
    assert [(row.done, row.elsewhere_done) for row in rows(["transformers"], asked)] == [(1, 0)]
    assert [(row.done, row.elsewhere_done) for row in rows(["transformers"], dataclasses.replace(asked, repeats=5))] == [(1, 1)]


def test_a_run_beside_others_is_not_there_for_a_command_without_jobs_whichever_machine_it_was_made_on(tmp_path):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="5")
    (one,) = planned(["transformers"], asked)
    for number, of_machine in enumerate(({}, {"cores": 4096}), 1):
        stored(one, asked, number, shared_with=1, **of_machine)
    (alone,), (beside,) = rows(["transformers"], asked), rows(["transformers"], dataclasses.replace(asked, jobs=2))
    assert ((alone.done, alone.elsewhere_done), (beside.done, beside.elsewhere_done)) == ((0, 0), (1, 1))


def test_on_a_machine_with_several_kinds_of_gpus_the_plan_is_of_those_that_are_typed_else_of_the_first(tmp_path, monkeypatch):
    first, second = (gpus.Gpu(index, f"GPU-{index}", name, 1 << 36, "9.0") for index, name in enumerate(("OLD GPU", "NEW GPU")))
    monkeypatch.setattr(gpus, "list_gpus", lambda: [first, second])
    typed = {"STACK": "current", "WEIGHTS": "random", "RUNS": str(tmp_path), "CASES": "int8", "REPEATS": "5"}
    asked = chosen(**typed)
    (one,) = planned(["int8"], asked)
    stored(one, asked, 1, gpu=first)
    for number in (1, 2):
        stored(one, asked, number, gpu=second)
    assert [rows(["int8"], chosen(**typed, **ids))[0].done for ids in ({}, {"GPU_IDS": "0"}, {"GPU_IDS": "1"})] == [1, 1, 2]


def test_on_a_machine_with_several_kinds_of_gpus_a_row_of_several_has_them_in_the_order_in_which_a_run_takes_them(tmp_path, monkeypatch):
    first, second = (gpus.Gpu(index, f"GPU-{index}", name, 1 << 36, "9.0") for index, name in enumerate(("OLD GPU", "NEW GPU")))
    monkeypatch.setattr(gpus, "list_gpus", lambda: [first, second])
    typed = {"STACK": "current", "WEIGHTS": "random", "RUNS": str(tmp_path), "CASES": "deepspeed", "REPEATS": "5"}
    asked, turned = chosen(**typed), chosen(**typed, GPU_IDS="1,0")
    (one,) = planned(["deepspeed"], asked)
    stored(one, asked, 1, gpu=first, beside=second)
    for number in (1, 2):
        stored(one, turned, number, gpu=second, beside=first)
    assert [rows(["deepspeed"], typed)[0].done for typed in (asked, turned)] == [1, 2]


@pytest.mark.parametrize("change", [{"timed_runs": 100}, {"warmup_runs": 100}, {"runs": [{"new_tokens": 9, "arguments": {}}]}, {"options": {"rows": 9}}])
def test_a_run_of_other_calls_says_nothing_of_the_time(tmp_path, change):
    asked = chosen(**CPU, RUNS=str(tmp_path))
    (one,) = planned(["transformers"], asked)
    stored(one, asked, 1, **change)
    assert rows(["transformers"], asked)[0].run_s is None


def test_a_batch_size_without_a_run_takes_as_long_as_the_nearest_one_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "list_gpus", list)
    monkeypatch.setattr(outlook.results, "runs_for", lambda *_: tmp_path)
    asked = chosen(ARTICLE="deepspeed-inference", STACK="current", WEIGHTS="random", CASES="ds-inference", RUNS=str(tmp_path), GPUS="1", BATCH_SIZES="8,64")
    (one,) = planned(["deepspeed"], asked)
    assert [row.run_s for row in rows(["deepspeed"], asked)] == [None, None]
    gpu = gpus.Gpu(0, "GPU-0", "OTHER GPU", 1 << 36, "9.0")
    for batch_size, seconds in ((1, 20.0), (32, 30.0), (128, 50.0)):
        stored(dataclasses.replace(one, batch_size=batch_size), asked, 1, gpu=gpu, seconds=seconds)
    found = rows(["deepspeed"], asked)
    assert [(row.run_s, row.as_batch) for row in found] == [(33.0, 32), (33.0, 32)], "8 is nearer to 32 than to 1 by their ratio, 64 as near to 32 as to 128"
    assert outlook.summary(found) == "2 runs: 0 are there, 2 to go, about 1 min, by runs on OTHER GPU, for some rows by their nearest batch size"
    assert list(outlook.lines([dataclasses.replace(one, batch_size=8)], asked))[1].endswith("33 s a run, as in batch 32 on OTHER GPU")
    stored(dataclasses.replace(one, batch_size=8), asked, 1, gpu=gpu, seconds=10.0)
    assert [(row.run_s, row.as_batch) for row in rows(["deepspeed"], asked)] == [(13.0, None), (33.0, 32)]


def test_the_time_of_other_gpus_is_the_median_of_their_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "list_gpus", list)
    asked = chosen(STACK="current", WEIGHTS="random", RUNS=str(tmp_path), GPUS="3")
    (one,) = planned(["deepspeed"], asked)
    for number, seconds in enumerate((10.0, 20.0, 90.0), 1):
        stored(one, asked, number, gpu=gpus.Gpu(0, "GPU-0", "OTHER GPU", 1 << 36, "9.0"), seconds=seconds)
    assert [row.run_s for row in rows(["deepspeed"], asked)] == [23.0]


@pytest.mark.parametrize("engine", ["docker", "host"])
def test_runs_in_the_kit_s_own_folders_tell_how_long_a_row_takes_and_are_not_there_in_another_folder(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(outlook.results, "runs_for", lambda scale, device, engine: tmp_path / engine)
    asked, own = (chosen(**CPU, RUNS=str(tmp_path / folder)) for folder in ("other", engine))
    (one,) = planned(["transformers"], asked)
    stored(one, own, 1)
    assert [(row.done, row.run_s) for row in rows(["transformers"], asked)] == [(0, 23.0)]


@pytest.mark.parametrize(("statuses", "done"), [(("oom", "ok"), 2), (("ok", "oom"), 5)])
def test_the_latest_run_of_a_row_says_whether_it_is_repeated(tmp_path, statuses, done):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="5")
    (one,) = planned(["transformers"], asked)
    for number, status in enumerate(statuses, 1):
        stored(one, asked, number, status=status)
    assert [row.done for row in rows(["transformers"], asked)] == [done]


def test_what_is_unsupported_is_not_to_go(tmp_path):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="5")
    (one,) = planned(["transformers"], asked)
    stored(one, asked, 1, status="unsupported")
    assert [(row.done, row.to_go) for row in rows(["transformers"], asked)] == [(5, 0)]


def test_what_ran_out_of_memory_is_not_to_go_and_ends_the_sizes_above_it(tmp_path):
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="5", BATCH_SIZES="1,8,64")
    (one,) = planned(["transformers"], asked)
    stored(dataclasses.replace(one, batch_size=8), asked, 1, status="oom")
    found = rows(["transformers"], asked)
    assert [(row.planned.batch_size, row.done, row.to_go) for row in found] == [(1, 0, 5), (8, 5, 0)]


def test_a_sweep_until_memory_runs_out_shows_the_next_size_and_that_more_follow(tmp_path, monkeypatch):
    gpu = gpus.Gpu(0, "GPU-0", "SYNTHETIC GPU", 1 << 36, "9.0")
    monkeypatch.setattr(gpus, "list_gpus", lambda: [gpu])
    asked = chosen(ARTICLE="batch-generate", STACK="current", WEIGHTS="random", CASES="batch", VARIANT="controlled", RUNS=str(tmp_path))
    (one,) = planned(["transformers"], asked)
    stored(dataclasses.replace(one, batch_size=1), asked, 1, gpu=gpu)
    found = rows(["transformers"], asked)
    assert [(row.planned.batch_size, row.done, row.open_ended) for row in found] == [(1, 1, False), (2, 0, True)]
    assert outlook.summary(found).startswith("2 runs or more, until memory runs out: 1 is there, 1 to go")


def test_rows_that_a_claim_rests_on_come_first_in_the_plan_and_in_the_run(tmp_path, monkeypatch):
    order = []

    def perform(one, options, repeat):
        order.append((one.case.name, repeat))
        return synthetic.record(synthetic.job(one.case.name))

    monkeypatch.setattr(runner, "perform", perform)
    asked = chosen(**CPU, RUNS=str(tmp_path), REPEATS="2", CASES="transformers,int8,layer-parallel")
    every = planned(["transformers", "layer-parallel", "int8"], asked)
    lines = list(outlook.lines(every, asked))
    assert [line.split()[0] for line in lines] == [
        "rows",
        *(f"inference-tools/{name}" for name in ("layer-parallel", "int8")),
        "other",
        "inference-tools/transformers",
        "6",
    ]
    rounds.run_all(every, asked, keep_going=True)
    assert order == [("layer-parallel", 1), ("int8", 1), ("int8", 2), ("layer-parallel", 2), ("transformers", 1), ("transformers", 2)]


def test_a_machine_without_a_gpu_is_told_the_time_of_other_gpus_with_their_names(tmp_path, monkeypatch):
    asked = chosen(STACK="current", WEIGHTS="random", RUNS=str(tmp_path), GPUS="3")
    monkeypatch.setattr(gpus, "list_gpus", list)
    (row,) = rows(["deepspeed"], asked)
    assert (row.devices, row.done, row.run_s) == ("3 GPUs", 0, None), "on three GPUs no committed run"
    (one,) = planned(["deepspeed"], asked)
    other, own = (gpus.Gpu(0, "GPU-0", name, 1 << 36, "9.0") for name in ("OTHER GPU", "OWN GPU"))
    stored(one, asked, 1, gpu=other, seconds=20.0)
    (row,) = rows(["deepspeed"], asked)
    assert (row.done, row.run_s, row.elsewhere) == (0, 23.0, ("OTHER GPU",))
    assert outlook.summary([row]) == "1 run: 0 are there, 1 to go, about 23 s, by runs on OTHER GPU"
    local, done = dataclasses.replace(row, elsewhere=()), dataclasses.replace(row, done=1, elsewhere=("A GPU",))
    assert outlook.summary([row, local, done]) == "3 runs: 1 is there, 2 to go, about 46 s, partly by runs on OTHER GPU", "what is done needs no time"
    assert list(outlook.lines([one], asked))[1].endswith("23 s a run on OTHER GPU")
    monkeypatch.setattr(gpus, "list_gpus", lambda: [own])
    stored(one, asked, 1, gpu=own, seconds=10.0, cores=4096)
    (row,) = rows(["deepspeed"], asked)
    assert (row.done, row.run_s, row.elsewhere) == (0, 13.0, ())


def test_real_weights_without_a_run_take_as_long_as_random_ones_and_the_plan_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "list_gpus", list)
    typed = {"STACK": "current", "RUNS": str(tmp_path / "runs"), "MODELS": str(tmp_path / "models"), "GPUS": "3", "PLAN": "1"}
    asked = chosen(**typed)
    (row,) = rows(["deepspeed"], asked)
    assert (row.run_s, row.as_random) == (None, False)
    (one,) = planned(["deepspeed"], asked)
    stored(one, chosen(**typed, WEIGHTS="random"), 1, gpu=gpus.Gpu(0, "GPU-0", "OTHER GPU", 1 << 36, "9.0"), seconds=20.0)
    (row,) = rows(["deepspeed"], asked)
    assert (row.done, row.run_s, row.elsewhere, row.as_random) == (0, 23.0, ("OTHER GPU",), True)
    assert list(outlook.lines([one], asked))[1].endswith("23 s a run, as with random weights on OTHER GPU")
    assert outlook.summary([row]) == "1 run: 0 are there, 1 to go, about 23 s, by runs on OTHER GPU, without the download of the weights"


def test_the_command_prints_the_plan_and_ends_well(tmp_path, capsys):
    typed = [part for name, value in CPU.items() for part in (f"--{name.lower()}", value)]
    assert invoke(["article", "inference-tools", "--plan", "1", "--runs", str(tmp_path), *typed]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "rows that a claim rests on, which run first:" and shown[-1].startswith("15 runs: 0 are there")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(
        UsageError, match="PLAN is 1 with profile, .*; try make profile-transformers STACK=demo .*, or make bench-transformers STACK=demo .* PLAN=1$"
    ):
        invoke(["profile", "transformers", "--plan", "1", *typed])


@pytest.mark.parametrize("folder", [".", "missing"], ids=["a folder", "no folder of this machine"])
def test_a_plan_reads_no_weights_of_a_typed_folder_and_makes_no_folder(tmp_path, monkeypatch, capsys, folder):
    monkeypatch.setattr(gpus, "list_gpus", list)
    places = ["--runs", str(tmp_path / "runs"), "--models", str(tmp_path / "models"), "--model-path", str(tmp_path / folder)]
    assert invoke(["article", "inference-tools", "--claims", "1.2", "--plan", "1", *places]) == 0
    assert list(tmp_path.iterdir()) == []
    unknown = (
        "note: this plan counts no stored run with the weights of bigscience/bloomz-7b1-mt, whose commit is unknown: no run has read the files of MODEL_PATH"
    )
    assert capsys.readouterr().err.count(unknown) == 1


def test_a_plan_without_a_network_notes_once_that_a_model_s_commit_is_unknown_and_a_run_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpus, "list_gpus", list)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    places = ["--runs", str(tmp_path), "--models", str(tmp_path / "models")]
    assert invoke(["article", "deepspeed-inference", "--claims", "2.1", "--plan", "1", *places]) == 0
    shown = capsys.readouterr()
    assert (
        shown.err.count("note: this plan counts no stored run with the weights of philschmid/gpt-j-6B-fp16-sharded, whose commit is unknown: philschmid") == 1
    )
    assert shown.out.splitlines()[-1].startswith("2 runs: 0 are there, 2 to go")
    asked = chosen(ARTICLE="deepspeed-inference", CASES="gptj-deepspeed", MODELS=str(tmp_path / "models"))
    with pytest.raises(hub.CannotFetch):
        rows(["deepspeed"], asked)


def test_a_claim_rests_on_the_cases_that_its_relations_name():
    case = Case("a", "transformers", 1, {"dtype": "float32"})
    others = [dataclasses.replace(case, name=name) for name in "bc"]
    claims = [{"relations": [{"fastest": "b", "than": ["a"]}]}]
    article = Article("s", "t", "demo", {}, {}, {}, {}, [case, *others], claims=claims)
    assert [article.claims_rest_on(one) for one in article.cases] == [True, True, False]


@pytest.mark.parametrize(
    "verb,name,typed,words",
    [
        (
            "bench",
            "transformers",
            {"CASES": "deepspeed"},
            r"no case of transformers fits CASES=deepspeed; allowed are transformers \(VARIANT published, controlled; STACK ",
        ),
        (
            "bench",
            "compiled",
            {"STACK": "current", "VARIANT": "published"},
            r"no case of compiled fits VARIANT=published STACK=current; allowed are compiled \(VARIANT controlled; STACK",
        ),
        (
            "article",
            "inference-tools",
            {"CASES": "compiled"},
            r"no case of inference-tools fits CASES=compiled; allowed are compiled \(VARIANT controlled; STACK current, demo\)$",
        ),
    ],
)
def test_a_choice_that_leaves_no_case_is_refused_with_what_fits(verb, name, typed, words, tmp_path):
    given = [part for key, value in typed.items() for part in (f"--{key.lower()}", value)]
    with pytest.raises(UsageError, match=words):
        invoke([verb, name, "--plan", "1", "--runs", str(tmp_path), *given])


def test_a_claim_that_cannot_be_judged_is_refused_before_anything_is_planned_or_run(tmp_path, monkeypatch):
    wrong = {"id": "9", "text": "", "relations": [{"case": "int8", "peak_memory_below_bytes": 24}]}
    claiming = dataclasses.replace(articles.find("inference-tools"), claims=[wrong])
    monkeypatch.setattr(articles, "find", lambda slug: claiming)
    options = [part for name, value in CPU.items() for part in (f"--{name.lower()}", value)]
    for more in (["--plan", "1"], []):
        with pytest.raises(KitError, match="claim 9: .* is 24, allowed are bytes"):
            invoke(["bench", "int8", *options, *more, "--runs", str(tmp_path)])


def test_pins_that_are_not_locked_are_refused_before_anything_is_planned_or_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "locked", lambda image: {})
    options = [part for name, value in CPU.items() for part in (f"--{name.lower()}", value)]
    for more in (["--plan", "1"], []):
        with pytest.raises(KitError, match=r"docker/demo/common/requirements.txt has torch \(absent\), docker/pins.toml .*; type make lock BACKEND=int8"):
            invoke(["bench", "int8", *options, *more, "--runs", str(tmp_path)])
