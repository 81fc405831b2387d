"""Every variable of `make bench-…`: a wrong value gets one line with the value, what is allowed and what to type."""

import pytest

from scripts.commands import line, measure
from scripts.errors import UsageError
from scripts.run.options import Options
from tests.typed import chosen


def test_nothing_typed_means_the_articles_way_on_gpus_in_docker():
    asked = chosen()
    assert (asked.device, asked.engine, asked.weights, asked.scale, asked.stack) == ("cuda", "docker", "hub", "full", "article")
    assert (asked.gpus, asked.gpu_ids, asked.variant, asked.force, asked.timeout_s) == (None, None, "", False, 3600)


def test_make_exports_empty_variables_and_they_count_as_not_typed(monkeypatch):
    for name in ("GPUS", "GPU_IDS", "STACK", "TIMEOUT_S", "VARIANT", "WEIGHTS", "FORCE", "CASES"):
        monkeypatch.setenv(name, "")
    assert chosen() == Options()


def test_a_variable_of_the_environment_is_the_option(monkeypatch):
    monkeypatch.setenv("ALLOW_BUSY", "1")
    monkeypatch.setenv("GPUS", "2")
    assert (chosen().allow_busy, chosen().gpus) == (True, 2)


def test_gpus_are_a_number_or_a_list():
    assert chosen(GPUS="2").gpus == 2
    assert chosen(GPU_IDS="1,3").gpu_ids == (1, 3)
    assert chosen(BATCH_SIZES="64,1").batch_sizes == (64, 1)


def test_a_path_is_shown_without_the_dots_of_its_way_unless_a_link_gives_them_another_meaning(tmp_path, monkeypatch):
    (tmp_path / "clone").mkdir()
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "clone" / "link").symlink_to(tmp_path / "elsewhere" / "folder")
    monkeypatch.chdir(tmp_path / "clone")
    assert chosen(RUNS="../mine/./runs").folder == tmp_path / "mine" / "runs"
    assert chosen(RUNS="link/runs").folder == tmp_path / "clone" / "link" / "runs"
    assert str(chosen(RUNS="link/../mine").folder) == f"{tmp_path}/clone/link/../mine"


def test_cases_are_names_with_commas():
    assert chosen(CASES="single,batch").cases == ("single", "batch")
    assert chosen(CASES="").cases == ()
    assert chosen(CASES="single, batch ,").cases == ("single", "batch")


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ({"GPUS": "two"}, ["GPUS", "'two'", "whole number", "GPUS=2"]),
        ({"GPUS": "0"}, ["GPUS", "'0'", "from 1"]),
        ({"GPUS": "-1"}, ["GPUS", "'-1'"]),
        ({"GPU_IDS": "0;1"}, ["GPU_IDS", "'0;1'", "GPU_IDS=0,3"]),
        ({"GPU_IDS": "1,1"}, ["GPU_IDS", "different"]),
        ({"GPUS": "2", "GPU_IDS": "0"}, ["GPUS is 2", "GPU_IDS names 1"]),
        ({"ITEMS": "many"}, ["ITEMS", "'many'", "whole number"]),
        ({"BATCH_SIZES": "8,0"}, ["BATCH_SIZES", "'8,0'", "from 1", "BATCH_SIZES=1,8,64"]),
        ({"BATCH_SIZES": "8,8"}, ["BATCH_SIZES", "different"]),
        ({"BATCH_SIZES": "99999999"}, ["BATCH_SIZES", "from 1 to 1,000,000, separated by commas"]),
        ({"CLAIMS": "1.2 1.3"}, ["CLAIMS is '1.2 1.3', allowed are names separated by commas", "try CLAIMS=1.2,1.3"]),
        ({"CASES": ","}, ["CASES is ','", "try CASES=one,another"]),
        ({"GPUS": "9" * 61}, [f"GPUS is '{'9' * 60}…', allowed"]),
        ({"CASES": "a," * 600}, ["CASES is", "1,024 characters; try CASES=one,another"]),
        ({"GPU_IDS": "1024"}, ["GPU_IDS", "from 0 to 1,023, separated by commas"]),
        ({"DEVICE": "cpu", "GPU_IDS": "0"}, ["GPU_IDS", "DEVICE=cpu"]),
        ({"PYTHON_HOST": "/usr/bin/python3"}, ["PYTHON_HOST", "'/usr/bin/python3'", "ENGINE=docker", "type ENGINE=host"]),
        ({"WHEELS": "/wheels", "ENGINE": "host"}, ["WHEELS", "'/wheels'", "ENGINE=host", "leave one of them out"]),
        ({"PYTHON_HOST": "/usr/bin/python3", "ENGINE": "apptainer"}, ["PYTHON_HOST", "ENGINE=apptainer", "type ENGINE=host"]),
        ({"WHEELS": "/wheels", "ENGINE": "podman"}, ["WHEELS", "'/wheels'", "ENGINE=podman", "builds no image"]),
        ({"WHEELS": "/wheels", "ENGINE": "apptainer"}, ["WHEELS", "'/wheels'", "ENGINE=apptainer", "builds no image"]),
        ({"GPU_MODE": "nvidia", "ENGINE": "podman"}, ["GPU_MODE", "'nvidia'", "ENGINE=podman", "does not ask Docker"]),
        ({"GPU_MODE": "cdi", "ENGINE": "apptainer"}, ["GPU_MODE", "'cdi'", "ENGINE=apptainer", "leave one of them out"]),
        ({"GPU_MODE": "cdi", "ENGINE": "host"}, ["GPU_MODE", "'cdi'", "ENGINE=host"]),
        ({"KIT_MEMLOCK": "1", "ENGINE": "apptainer"}, ["KIT_MEMLOCK is 1 with ENGINE=apptainer", "locked memory"]),
        ({"KIT_MEMLOCK": "1", "ENGINE": "host"}, ["KIT_MEMLOCK is 1 with ENGINE=host"]),
        ({"DEVICE": "tpu"}, ["DEVICE", "'tpu'", "cuda, cpu"]),
        ({"VARIANT": "mine"}, ["VARIANT", "'mine'", "published, controlled"]),
        ({"WEIGHTS": "mine"}, ["WEIGHTS", "hub, random"]),
        ({"GPU_MODE": "magic"}, ["GPU_MODE", "'magic'", "auto, cdi, nvidia"]),
        ({"SCALE": "big"}, ["SCALE", "full, tiny"]),
        ({"ENGINE": "podmann"}, ["ENGINE", "docker, podman, apptainer, pyxis, host", "ENGINE=podman"]),
        ({"FORCE": "yes"}, ["FORCE", "'yes'"]),
        ({"ALLOW_BUSY": "yes"}, ["ALLOW_BUSY", "'yes'", "0, 1"]),
        ({"CLAIMS": "2.7", "BATCH_SIZES": "1,8"}, ["BATCH_SIZES is '1,8' with CLAIMS=2.7", "leave one of them out"]),
        ({"BATCH_SIZES": "1,01"}, ["BATCH_SIZES", "different"]),
        ({"TIMEOUT_S": "9" * 5000}, ["TIMEOUT_S", "604,800"]),
        ({"GPUS": "1000000"}, ["GPUS", "1,024"]),
        ({"GPUS": "17", "DEVICE": "cpu"}, ["GPUS is 17", "DEVICE=cpu", "from 1 to 16"]),
        ({"TIMEOUT_S": "99999999999999"}, ["TIMEOUT_S", "604,800"]),
        ({"RUNS": "/x" * 2000}, ["RUNS", "1,024 characters"]),
        ({"MODELS": "x" * 300}, ["MODELS", "not a path", "too long"]),
        ({"ARTICLE": "x" * 5000}, ["ARTICLE", "1,024 characters"]),
        ({"CASES": "x" * 5000}, ["CASES", "1,024 characters"]),
        ({"TIMEOUT_S": "soon"}, ["TIMEOUT_S", "'soon'"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(typed, parts):
    with pytest.raises(UsageError) as error:
        chosen(**typed)
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert "\n" not in str(error.value)


def test_a_variable_that_the_target_does_not_read_is_refused():
    line.refuse_unread(["GPUS", "STACK"], "bench", measure.bench)
    with pytest.raises(UsageError, match="bench does not read BACKEND, allowed are ACCOUNT, ALLOW_BUSY, .*; leave BACKEND out"):
        line.refuse_unread(["GPUS", "BACKEND"], "bench", measure.bench)
    line.refuse_unread(["PROFILER"], "profile", measure.profile)
    for verb in (measure.bench, measure.article):
        with pytest.raises(UsageError, match="does not read PROFILER"):
            line.refuse_unread(["PROFILER"], str(verb.name), verb)
    with pytest.raises(UsageError, match="does not read REMOTE, allowed are ALLOW_BUSY, ARTICLE, BATCH_SIZES, CASES, DEVICE,"):
        line.refuse_unread(["REMOTE"], "profile", measure.profile)


OF_SLURM = {"scheduler": "slurm", "partition": "a", "account": "a", "qos": "a", "time": "1", "constraint": "a"}
OF_SEVERAL_CALLS = {"plan": "1", "jobs": "2", "claims": "1.1", "items": "2", "repeats": "2", **OF_SLURM}


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["article", "inference-tools"], {"article": "batch-generate"}),
        (["profile", "int8"], OF_SEVERAL_CALLS),
        (["instrument", "layers"], {**OF_SEVERAL_CALLS, "force": "1", "timed-runs": "2"}),
        (
            ["calibrate"],
            {"article": "batch-generate", "cases": "empty", "claims": "1.1", "items": "2", "weights": "hub", "model-path": "/tmp", "plan": "1", **OF_SLURM},
        ),
    ],
)
def test_the_help_of_a_verb_lists_no_option_that_the_verb_refuses(words, refused, capsys):
    assert line.invoke([words[0], "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--stack " in shown and not [name for name in refused if f"--{name} " in shown]
    for name, value in refused.items():
        with pytest.raises(UsageError, match=f"^{name.upper().replace('-', '_')}( is |=)"):
            line.invoke([*words, "--device", "cpu", f"--{name}", value])


@pytest.mark.parametrize(
    ("message", "arguments", "environment", "told"),
    [
        ("ACCOUNT is 'abc', which only SLURM reads", ["bench", "int8"], {"ACCOUNT": "abc", "MAKEFLAGS": "w"}, " (from the environment: unset ACCOUNT)"),
        ("ACCOUNT is 'abc', which only SLURM reads", ["bench", "int8"], {"ACCOUNT": "abc", "MAKEFLAGS": " -- GPUS=2 ACCOUNT=abc"}, ""),
        ("ACCOUNT is 'abc', which only SLURM reads", ["bench", "int8", "--account=abc"], {"ACCOUNT": "abc"}, ""),
        ("GPU_IDS is '0' with DEVICE=cpu", ["bench", "int8", "--gpu-ids", "0"], {"GPU_IDS": "0"}, ""),
        ("STACK=article means 2023-02 here", ["bench", "vllm"], {"STACK": ""}, ""),
        ("there is no backend 'x'", ["bench", "x"], {"there": "y"}, ""),
    ],
)
def test_an_error_says_where_its_value_comes_from_if_nobody_typed_it(message, arguments, environment, told):
    assert line.origin(message, arguments, environment) == told
