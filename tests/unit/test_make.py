"""What a person meets who types a wrong thing, or has a machine that cannot: one line, and an exit code that is not 0."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a process for each

ROOT = Path(__file__).resolve().parents[2]

#: A trial in an interpreter of this machine.
ON_HOST = ["ENGINE=host", "DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random"]


def make(*arguments, **environment):
    """`make` as a person runs it who has no results yet, on a machine that shows no GPU unless the environment says otherwise."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DOCKER_HOST")}
    with tempfile.TemporaryDirectory() as runs:
        return subprocess.run(["make", *arguments], cwd=ROOT, env=kept | {"RUNS": runs} | environment, capture_output=True, text=True, timeout=120)


def error_of(done):
    """The one line that tells; make's own line follows it."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stdout + done.stderr
    return lines[0]


def test_make_alone_prints_every_target_with_what_it_does():
    done = make()
    assert done.returncode == 0
    targets = re.findall(r"^([a-z][a-z%-]*):", (ROOT / "Makefile").read_text(), re.M)
    assert {"demo", "bench-%", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^  {target} +[A-Z]\w", done.stdout, re.M), target


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["bench-depspeed"], ["'depspeed'", "deepspeed", "layer-parallel"]),
        (["bnech-deepspeed", "GPUS=2"], ["no target 'bnech-deepspeed'", "did you mean bench-deepspeed?", "make help"]),
        (["reprot"], ["no target 'reprot'", "did you mean report?", "make help"]),
        (["zzz"], ["no target 'zzz'; Try: make help"]),
        (["bench-"], ["bench- needs a name after its hyphen; try make bench-transformers"]),
        (["instrument-"], ["try make instrument-layers CASES=int8"]),
        (["bench-deepspeed", "DEVICE=gpu"], ["DEVICE is 'gpu', allowed are cuda, cpu; try DEVICE=cuda"]),
        (["bench-deepspeed", "ENGINE=singularity"], ["try ENGINE=apptainer"]),
        (["manifest-depspeed", "REGISTRY=host/name"], ["there is no backend 'depspeed'", "try make manifest-deepspeed"]),
        (["tests"], ["tests is a folder", "make test"]),
        (["docs"], ["docs is a folder"]),
        (["report", "RUNS=bench"], ["RUNS", "bench'", "holds no run", "RUNS=reports/runs"]),
        (["bench-deepspeed", "GPUS=two"], ["GPUS", "'two'", "GPUS=2"]),
        (["bench-deepspeed", "STACK=2022"], ["'2022'", "2023-02", "current"]),
        (["bench-deepspeed", "ARTICLE=nope"], ["'nope'", "inference-tools"]),
        (["bench-deepspeed", "VARIANT=best"], ["'best'", "published", "controlled"]),
        (["bench-transformers", "ARTICLE=batch-generate", "STACK=current", "CASES=singel"], ["'singel'", "single", "batch", "CASES="]),
        (["article-inference-tool"], ["there is no article 'inference-tool'", "try make article-inference-tools"]),
        (["models", "ARTICLE=inference-tool"], ["ARTICLE is 'inference-tool'", "try ARTICLE=inference-tools"]),
        (["instrument-layer", "CASES=transformers"], ["there is no instrument 'layer'", "collectives", "try make instrument-layers"]),
        (["instrument-layers"], ["CASES is ''", "allowed is one of transformers, layer-parallel"]),
        (["instrument-layers", "CASES=transformers,int8"], ["CASES is 'transformers,int8'", "allowed is one of"]),
        (["instrument-layers", "CASES=batch"], ["CASES names 'batch'", "inference-tools has transformers"]),
        (
            ["instrument-layers", "CASES=int8", "PLAN=1"],
            ["PLAN is 1 with instrument", "try make instrument-layers CASES=int8 ", "or make bench-all CASES=int8 "],
        ),
        (["instrument-layers", "ARTICLE=batch-generate"], ["CASES is ''", "try CASES=pipeline"]),
        (["instrument-layers", "ARTICLE=batch-generate", "PLAN=1"], ["try make instrument-layers ARTICLE=batch-generate CASES=pipeline "]),
        (
            ["profile-transformers", "ARTICLE=batch-generate", "CASES=single", "VARIANT=controlled", "PROFILER=nsys", "REPEATS=2", "PLAN=1"],
            [
                "try make profile-transformers ARTICLE=batch-generate VARIANT=controlled CASES=single PROFILER=nsys RUNS=",
                "or make bench-transformers ARTICLE=batch-generate VARIANT=controlled CASES=single RUNS=",
                " PLAN=1",
            ],
        ),
        (["profile-deepspeed", "CASES=deepspeed", "SCHEDULER=slurm", "QOS=x"], ["try salloc, and make profile-deepspeed CASES=deepspeed RUNS="]),
        (["profile-nope", "PLAN=1"], ["there is no backend 'nope'", "try make profile-"]),
        (["profile-int8", "ARTICLE=inference-tools", "CASES=deepspeed"], ["try make profile-deepspeed ARTICLE=inference-tools CASES=deepspeed"]),
        (["bench-vllm", "ARTICLE=batch-generate", "CASES=pipelin"], ["try make bench-transformers ARTICLE=batch-generate CASES=pipeline"]),
        (["instrument-layers", "CASES=int8", "FORCE=1"], ["FORCE is 1 with instrument", "leave FORCE out"]),
        (["instrument-layers", "CASES=int8", "TIMED_RUNS=3"], ["TIMED_RUNS is 3 with instrument", "leave TIMED_RUNS out"]),
        (["instrument-layers", "CASES=int8", "REPEATS=5"], ["REPEATS is 5 with instrument", "leave REPEATS out"]),
        (["profile-deepspeed", "PROFILER=perf"], ["PROFILER", "'perf'", "torch, nsys"]),
        (["profile-deepspeed", "CASES=nope", "ARTICLE=deepspeed-inference"], ["'nope'", "gptj-deepspeed"]),
        (["build-nope"], ["'nope'", "layer-parallel"]),
        (["bench-deepspeed", "MODEL_PATH=/nowhere"], ["MODEL_PATH", "'/nowhere'", "config.json"]),
        (["bench-deepspeed", "WHEELS=/nowhere"], ["WHEELS", "'/nowhere'", "holds no files"]),
        (["bench-deepspeed", "ENGINE=host", "PYTHON_HOST=/nowhere"], ["PYTHON_HOST", "'/nowhere'", "does not start"]),
        (["profile-transformers", "ARTICLE=batch-generate", "ITEMS=5"], ["ITEMS is 5 with profile", "leave ITEMS out"]),
        (["profile-deepspeed", "CLAIMS=1.1"], ["CLAIMS is '1.1' with profile", "try CASES"]),
        (["profile-deepspeed", "REPEATS=5"], ["REPEATS is 5 with profile", "leave REPEATS out"]),
        (["article-inference-tools", "ARTICLE=batch-generate"], ["ARTICLE is 'batch-generate'", "try make article-batch-generate"]),
        (["archive", "ARCHIVES=README.md", "ONLY=kit"], ["ARCHIVES is", "README.md is a file, allowed is a folder"]),
        (["archive", "ARCHIVES=README.md/x", "ONLY=kit"], ["ARCHIVES is", "README.md is a file, allowed is a folder"]),
        (["archive", "ONLY=tools", "PYTHONS=3.10"], ["PYTHONS is '3.10', allowed are versions of Python from 3.11 on, separated by commas; try PYTHONS=3.12"]),
        (["archive", "ONLY=tools", "PYTHONS=3.12,python3.11"], ["PYTHONS is '3.12,python3.11', allowed are versions of Python from 3.11 on"]),
        (["restore", "ARCHIVES=/nowhere"], ["/nowhere holds no archive", "type make archive, or ARCHIVES="]),
        (["archive", "ONLY=wheels", "BACKEND=,"], ["BACKEND is ','", "names separated by commas"]),
        (["bench-deepspeed", "CASES=,", "PLAN=1"], ["CASES is ','", "names separated by commas"]),
        (["models", "ARTICLE=demo"], ["real weights need a pin", "make bench-… takes WEIGHTS=random"]),
        (["report", "RUNS=reports/runs", "OUT=reports/runs/x"], ["OUT is", "lies among the runs", "leave OUT out"]),
        (["bench-deepspeed/x"], ["there is no target 'bench-deepspeed/x'"]),
        (["calibrate", "DEVICE=cpu", "ARTICLE=batch-generate"], ["ARTICLE is 'batch-generate' with calibrate", "leave ARTICLE out"]),
        (["manifest-layer-parallel", "STACK=current"], ["REGISTRY is ''", "host/name"]),
        (["manifest-layer-parallel", "STACK=demo", "REGISTRY=host/name"], ["STACK=demo has no images", "STACK=current"]),
        (["bench-layer-parallel", "STACK=demo", "DEVICE=cpu"], ["STACK=demo", "ENGINE=host"]),
        (["bench-deepspeed", "CASES=int8"], ["no case of deepspeed fits CASES=int8", "try make bench-int8 CASES=int8"]),
        (["lock", "BACKEND=compild"], ["'compild'", "try BACKEND=compiled"]),
        (["bench-layer-parallel", "STACK=demo", "PLAN=1"], ["STACK=demo", "ENGINE=host"]),
        (["bench-layer-parallel", "PLAN=1", "RUNS=README.md"], ["RUNS is", "README.md is a file"]),
        (["bench-layer-parallel", "PLAN=1", "RUNS=README.md/deeper"], ["RUNS is", "README.md is a file"]),
        (["bench-layer-parallel", "PLAN=1", "SCHEDULER=slurm", "TIME=4h"], ["TIME is '4h'", "TIME=04:00:00"]),
        (["bench-deepspeed", "BACKEND=int8"], ["bench does not read BACKEND", "GPUS", "leave BACKEND out"]),
        (["status", "RUNS=/nowhere"], ["RUNS is '/nowhere'", "no folder", "RUNS=reports/runs"]),
        (["demo", "GPUS=2"], ["demo takes no variables; leave GPUS out"]),
        (["verify-bundle", "BUNDLE=/nowhere"], ["'/nowhere'", "no file", "type make bundle,"]),
        (["verify-models", "MODELS=/nowhere"], ["'/nowhere'", "no model", "type make models,"]),
        (["bench-layer-parallel", "STACK=current", *ON_HOST, "PYTHON_HOST=/nowhere"], ["PYTHON_HOST", "'/nowhere'", "does not start"]),
    ],
)
def test_a_wrong_value_ends_in_one_line(arguments, parts):
    done = make(*arguments, LD_LIBRARY_PATH="")
    assert "Error 2" in done.stderr, done.stderr
    assert all(part in error_of(done) for part in parts), error_of(done)


def test_a_wrong_value_of_the_environment_says_so_and_a_typed_one_does_not():
    assert error_of(make("bench-deepspeed", ACCOUNT="abc")).endswith("leave ACCOUNT out (from the environment: unset ACCOUNT)")
    assert error_of(make("bench-deepspeed", "ACCOUNT=abc")).endswith("leave ACCOUNT out")
    assert error_of(make("bench-deepspeed", "bench-int8", "ACCOUNT=abc", ACCOUNT="x")).endswith("leave ACCOUNT out")


@pytest.mark.parametrize(("more", "told"), [([], "no NVIDIA GPU"), (["DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random"], "no Docker answers")])
def test_what_stands_in_the_way_of_every_case_is_told_once(more, told):
    done = make("article-inference-tools", *more, LD_LIBRARY_PATH="", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode != 0 and told in error_of(done) and done.stderr.count(told) == 1 and "Error 3" in done.stderr


def test_a_machine_without_a_gpu_has_the_code_of_what_is_impossible_here():
    done = make("bench-deepspeed", "DEVICE=cuda", LD_LIBRARY_PATH="")
    assert "Error 3" in done.stderr and "no NVIDIA GPU" in error_of(done) and "make demo" in error_of(done)


def test_more_gpus_than_there_are(fake_nvml):
    done = make("bench-deepspeed", "GPUS=9", LD_LIBRARY_PATH=str(fake_nvml), FAKE_NVML_GPUS="8")
    assert done.returncode != 0 and "GPUS=9" in error_of(done) and "8" in error_of(done)


def test_docker_that_is_not_running(fake_nvml):
    done = make("bench-layer-parallel", "DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode != 0 and "Docker" in error_of(done)


@pytest.mark.parametrize(("code", "exit_code"), [("UsageError", 2), ("PreflightError", 3), ("KitError", 1)])
def test_each_kind_of_error_has_its_exit_code(code, exit_code):
    program = f"from scripts import errors\ndef command(): raise errors.{code}('what, and what to type')\nerrors.run_command(command)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (exit_code, "error: what, and what to type\n")


def test_a_folder_for_results_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    done = make("bench-layer-parallel", "STACK=demo", "ENGINE=host", "DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random", RUNS=str(tmp_path / "file" / "runs"))
    assert done.returncode != 0 and "cannot be written" in error_of(done)


def test_a_wrong_commit_is_told_before_weights_are_made(tmp_path):
    done = make("bench-layer-parallel", "STACK=demo", *ON_HOST, f"RUNS={tmp_path / 'runs'}", f"MODELS={tmp_path / 'models'}", KIT_COMMIT="main")
    assert done.returncode != 0 and "KIT_COMMIT is 'main', allowed is a commit" in error_of(done)
    assert not list((tmp_path / "models").rglob("*.safetensors"))


def test_a_model_that_cannot_be_fetched_ends_in_one_line_with_the_way_out(tmp_path):
    done = make("models", "ARTICLE=inference-tools", MODELS=str(tmp_path), HF_ENDPOINT="http://127.0.0.1:1", HF_TOKEN="hf_secret")
    assert done.returncode != 0
    line = error_of(done)
    assert "bigscience/bloomz-7b1-mt cannot be fetched from http://127.0.0.1:1 (" in line and "HF_ENDPOINT=" in line and "WEIGHTS" not in line
    assert "hf_secret" not in done.stdout + done.stderr


def test_a_model_that_cannot_be_fetched_does_not_keep_the_others_back(tmp_path):
    done = make("models", MODELS=str(tmp_path), HF_ENDPOINT="http://127.0.0.1:1")
    assert done.returncode != 0
    assert all(f"{name} cannot be fetched" in done.stderr for name in ("meta-llama/Meta-Llama-3-8B-Instruct", "bigscience/bloomz-7b1-mt"))


#: What runs in a recipe that puts a name between double quotes or none, what runs between single ones, and more of both.
EITHER = ["$(>RAN)", "x';>RAN;'"]
MORE = ["'$(>RAN)'", "`>RAN`", "$(touch${IFS}RAN)", "$(shell>RAN)", '"$(>RAN)']


@pytest.mark.parametrize(
    ("verb", "typed"),
    [
        *(("bench", typed) for typed in [*EITHER, *MORE]),
        *((verb, typed) for verb in ("article", "profile", "build", "verify", "rebuild") for typed in EITHER),
        *(pytest.param(verb, typed, marks=pytest.mark.full) for verb in ("article", "profile", "build", "verify", "rebuild") for typed in MORE),
    ],
)
def test_a_name_that_a_shell_would_run_is_a_name(verb, typed):
    done = make(f"{verb}-{typed}")
    assert done.returncode != 0 and "RAN" in error_of(done)
    assert not (ROOT / "RAN").exists()


def test_a_name_that_is_too_long_for_a_file_ends_in_one_line():
    done = make("compare", f"A={'x' * 300}", "B=HEAD")
    assert done.returncode != 0 and "is too long for a file" in error_of(done)


@pytest.mark.parametrize("verb", ["bench", "article", "build", "profile", "instrument", "verify", "rebuild", "sbom"])
def test_a_verb_without_a_name_says_what_to_type(verb):
    done = make(verb)
    assert done.returncode != 0 and f"make {verb}-" in error_of(done)


@pytest.mark.parametrize(("typed", "code"), [({}, 3), ({"PYTHON_HOST": "/nowhere"}, 2), ({"PYTHON_HOST": sys.executable}, 2)])
def test_a_typed_interpreter_is_a_wrong_value_and_a_missing_torch_a_fault_of_the_machine(typed, code, tmp_path):
    measured = {"STACK": "current", "RUNS": str(tmp_path), **dict(part.split("=") for part in ON_HOST)}
    done = subprocess.run([sys.executable, "-m", "scripts", "bench", "layer-parallel"], cwd=ROOT, env=os.environ | measured | typed, capture_output=True)
    assert done.returncode == code, done.stderr


def test_a_python_without_the_tools_is_told_in_one_line_how_to_get_them():
    done = subprocess.run([sys.executable, "-S", "-m", "scripts", "report"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3 and "make .venv/.run" in error_of(done) and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("target", "more", "way_out"),
    [
        ("bench-layer-parallel", [], "or type STACK=demo, which brings its own"),
        ("profile-layer-parallel", [], "or type STACK=demo, which brings its own"),
        ("instrument-layers", ["CASES=layer-parallel"], "or type STACK=demo, which brings its own"),
        ("instrument-layers", ["CASES=layer-parallel", "BATCH_SIZES=2,3"], "or type STACK=demo, which brings its own"),
        ("article-long-prompts", [], "or type STACK=demo, which brings its own"),
        ("bench-vllm", [], "or leave ENGINE out for the pinned image in Docker"),
    ],
)
def test_an_interpreter_without_torch_is_told_once_with_a_way_out_that_the_same_command_takes(target, more, way_out):
    done = make(target, "STACK=current", *ON_HOST, *more)
    told = error_of(done)
    assert "Error 3" in done.stderr and "has no torch" in told and "PYTHON_HOST=" in told and told.endswith(way_out), done.stderr


@pytest.mark.parametrize("target", ["instrument-layers", "profile-layer-parallel", "bench-layer-parallel"])
def test_without_docker_the_same_command_runs_in_the_demos_interpreter(target):
    done = make(target, "CASES=layer-parallel", "STACK=current", *ON_HOST[1:], DOCKER_HOST="unix:///nowhere/docker.sock")
    assert error_of(done).endswith("do without Docker: type ENGINE=host STACK=demo, which brings its own interpreter")


def test_without_a_gpu_an_instrument_a_profile_and_a_calibration_propose_themselves_on_the_cpu():
    for target, more in (("instrument-layers", ["CASES=layer-parallel"]), ("profile-layer-parallel", ["CASES=layer-parallel"]), ("calibrate", [])):
        done = make(target, *more, "STACK=current", "WEIGHTS=random", LD_LIBRARY_PATH="")
        assert "or type DEVICE=cpu SCALE=tiny WEIGHTS=random ENGINE=host STACK=demo, for tiny models on the CPU" in error_of(done)
    assert error_of(make("instrument-layers", "CASES=vllm", "STACK=current", "WEIGHTS=random", LD_LIBRARY_PATH="")).endswith("lists the GPU")


@pytest.mark.parametrize(("variable", "value"), [("MODELS", "/proc/nowhere"), ("KIT_LOCKS", "/proc/nowhere")])
def test_a_folder_that_cannot_be_made_is_named(variable, value):
    done = make("bench-layer-parallel", "ENGINE=host", "STACK=demo", "DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random", **{variable: value})
    assert done.returncode != 0 and value in error_of(done) and f"{variable}=/another/folder" in error_of(done)


@pytest.mark.parametrize(("typed", "near"), [("GPU=2", "GPUS"), ("STAK=demo", "STACK")])
def test_a_misspelled_variable_stops_make_before_anything_runs(typed, near):
    done = make("bench-deepspeed", typed)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"{typed.partition('=')[0]} is not a variable of the kit; did you mean {near}?" in line


def test_a_value_behind_a_blank_stops_make_before_anything_runs():
    done = make("bench-deepspeed", "GPUS", "1")
    assert done.returncode == 2 and done.stdout == ""
    assert "error: GPUS is a variable and no target; type GPUS=value, without blanks" in done.stderr


def test_variables_that_the_kit_and_make_know_pass():
    assert make("--dry-run", "bench-deepspeed", "GPUS=2", "HF_TOKEN=x", "PYTHON=python3", "SHELL=bash").returncode == 0


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["images", "PLAN=1", "extra"], "there is no target 'extra'"),
        (["report", "REPEATS=", "5"], "REPEATS is empty, allowed is a value; type REPEATS=value"),
        (["x';touch RAN;'"], 'there is no target "x\';touch"'),
        (["bench-'\ntouch RAN\n'"], "there is no target 'touch'"),
        (["help", "bensh-x"], "there is no target 'bensh-x'; did you mean bench-x?"),
        (["bench", "deepspeed"], "there is no target 'deepspeed'; did you mean bench-deepspeed?"),
    ],
)
def test_a_word_that_is_no_target_stops_make_before_another_target_runs(typed, told):
    done = make(*typed)
    assert done.returncode == 2 and done.stdout == "" and told in done.stderr and not (ROOT / "RAN").exists()


def test_all_targets_of_the_makefile_may_stand_beside_each_other():
    done = make("--dry-run", "help", "bench-deepspeed", ".venv/.dev", "verify-models", "pull", "test-fast", "clean")
    assert done.returncode == 0, done.stderr


def test_a_check_names_itself_where_it_refuses_a_variable():
    done = make("check", "RUNS=mine/runs", "GPUS=2")
    assert done.returncode == 2 and "error: check takes no variables; leave GPUS out\n" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("typed", [["images", "GPUS="], ["bench-a", "bench-b", "STACK=$(id)"], ["archive", "ARCHIVES= "]])
def test_a_variable_without_a_value_stops_make(typed):
    name = typed[-1].partition("=")[0]
    done = make(*typed)
    assert done.returncode == 2 and f"error: {name} is empty, allowed is a value; type {name}=value, or leave {name} out" in done.stderr and done.stdout == ""
