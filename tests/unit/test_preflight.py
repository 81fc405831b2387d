"""What a machine cannot do is said before anything moves: recorded facts of real machines, no GPU needed."""

import dataclasses
import errno
import os
import sys
import tempfile
import types

import pytest

from scripts import articles, pins
from scripts.errors import KitError, PreflightError, UsageError
from scripts.machine.gpus import Gpu
from scripts.run import jobs, preflight, runner
from tests.samples import a_job

GIB = 1 << 30
PARAMETERS = 7_069_016_064
KNOWN = pins.load()
OLD, CURRENT = KNOWN.image("deepspeed", "2023-02"), KNOWN.image("deepspeed", "current")


def a_gpu(name, capability, gib):
    return Gpu(index=0, uuid="GPU-0", name=name, memory_total_bytes=gib * GIB, compute_capability=capability)


H200 = preflight.Machine([a_gpu("NVIDIA H200", "9.0", 140)] * 2, "13.0", 200 * GIB, 100 * GIB, 100 * GIB)
TWO_3090 = preflight.Machine([a_gpu("NVIDIA GeForce RTX 3090", "8.6", 24)] * 2, "11.7", 60 * GIB, 100 * GIB, 100 * GIB)


def found(image, machine, job=None, **changes):
    arguments = {"parameters": PARAMETERS, "new_bytes": 2 * PARAMETERS, **changes}
    return preflight.problems(job or a_job(), image, machine=machine, **arguments)


@pytest.mark.parametrize(
    ("backend", "stack", "cuda_driver", "way_out"),
    [
        ("deepspeed", "2023-02", "13.0", "STACK=hopper or 2024-06 or hopper-2023-05 or current"),  # the port of the stack first
        ("deepspeed", "2023-05", "13.0", "STACK=hopper-2023-05 or 2024-06 or hopper or current"),
        ("deepspeed", "2023-02", "12.2", "STACK=hopper or 2024-06 or hopper-2023-05"),  # the driver does not run `current`
        ("tensor-parallel", "2023-05", "13.0", "STACK=2024-06 or hopper or current"),  # which has no port of this stack
    ],
)
def test_the_articles_stack_is_refused_on_an_h200_naming_sm_90_the_arch_list_and_the_way_out(backend, stack, cuda_driver, way_out):
    (line,) = found(KNOWN.image(backend, stack), dataclasses.replace(H200, cuda_driver=cuda_driver))
    for part in ("NVIDIA H200", "sm_90", "1.13.1" if stack == "2023-02" else "2.0.1", "sm_86"):
        assert part in line
    assert line.endswith(f"; type {way_out}")


@pytest.mark.parametrize(
    ("backend", "way_out"),
    [
        ("deepspeed", "STACK=2023-02 or 2023-05 or 2024-06"),  # the kernels of the others begin at sm_80
        ("layer-parallel", "STACK=2023-02 or 2023-05 or 2024-06 or hopper or hopper-2023-05"),
        ("vllm", "GPU_IDS= of another GPU"),
    ],
)
def test_todays_stack_is_refused_on_an_older_gpu_with_the_stacks_that_run_there(backend, way_out):
    machine = dataclasses.replace(H200, gpus=[a_gpu("Tesla V100", "7.0", 32)] * 2)
    (line,) = found(KNOWN.image(backend, "current"), machine)
    assert line.startswith("Tesla V100 is sm_70, but torch 2.11.0 of the stack current holds code for") and line.endswith(f"only; type {way_out}")


def test_the_current_stack_runs_on_an_h200_and_the_articles_on_its_own_machine():
    assert found(CURRENT, H200) == []
    assert found(OLD, TWO_3090) == []


@pytest.mark.parametrize(
    ("name", "capability", "stack", "listed", "command"),
    [
        ("Tesla T4", "7.5", "hopper", "sm_80, sm_86, sm_90", "STACK=2023-02 or 2023-05 or 2024-06"),
        ("Tesla T4", "7.5", "current", "sm_80, sm_86, sm_90, sm_100, sm_120", "STACK=2023-02 or 2023-05 or 2024-06"),
        ("Tesla P100", "6.0", "2023-02", "sm_70, sm_75, sm_80, sm_86", "another backend"),
    ],
)
def test_a_gpu_that_torch_drives_and_the_compiled_kernels_do_not_is_refused_with_the_way_out(name, capability, stack, listed, command):
    machine = dataclasses.replace(H200, gpus=[a_gpu(name, capability, 16)] * 2)
    (line,) = found(KNOWN.image("deepspeed", stack), machine)
    assert (
        line == f"{name} is sm_{capability.replace('.', '')}, but the kernels of deepspeed on the stack {stack} are compiled for {listed} only; type {command}"
    )
    assert found(KNOWN.image("layer-parallel", stack), machine) == []


@pytest.mark.parametrize(
    ("machine", "cuda", "image", "way_out"),
    [
        (TWO_3090, "11.7", CURRENT, "update the driver, or type STACK=2023-02 or 2023-05"),
        (H200, "12.2", CURRENT, "update the driver, or type STACK=2024-06 or hopper or hopper-2023-05"),  # 2023-02 holds no code for the GPU
        (H200, "12.2", KNOWN.image("vllm", "current"), "update the driver"),
    ],
)
def test_a_stack_needs_a_driver_for_its_cuda_and_the_way_out_is_one_that_gpus_and_driver_run(machine, cuda, image, way_out):
    (line,) = found(image, dataclasses.replace(machine, cuda_driver=cuda))
    assert line == f"the driver runs CUDA up to {cuda}, the stack current needs CUDA 13.0; {way_out}"


def test_one_3090_cannot_hold_the_float32_model_and_is_told_how_much_it_takes():
    one = dataclasses.replace(TWO_3090, gpus=TWO_3090.gpus[:1])
    (line,) = found(OLD, one, a_job(device_count=1, load={"dtype": "float32"}))
    assert "24 GiB" in line and "29 GiB" in line and "GPUS=2" in line


@pytest.mark.parametrize(
    ("backend", "load", "told"),
    [
        ("transformers", {"dtype": "float16"}, "16 GiB on one; type GPU_IDS= of a larger GPU or SCALE=tiny"),
        ("bminf", {"dtype": "float16", "memory_limit_bytes": 12 * GIB}, "14 GiB on one; type GPU_IDS= of a larger GPU or SCALE=tiny"),
        ("layer-parallel", {"dtype": "float32"}, "16 GiB on each of 2; type GPUS=3 or SCALE=tiny"),
    ],
)
def test_a_backend_that_computes_on_one_gpu_is_promised_nothing_of_more_gpus(backend, load, told):
    machine = dataclasses.replace(TWO_3090, gpus=[a_gpu("NVIDIA GeForce RTX 3060", "8.6", 12)] * 2)
    (line,) = found(KNOWN.image(backend, "2023-02"), machine, a_job(backend=backend, device_count=2, load=load))
    assert line.endswith(f"needs about {told}")
    first_is_larger = dataclasses.replace(machine, gpus=[a_gpu("NVIDIA GeForce RTX 3090", "8.6", 24), machine.gpus[1]])
    assert bool(found(KNOWN.image(backend, "2023-02"), first_is_larger, a_job(backend=backend, device_count=2, load=load))) == (backend == "layer-parallel")


def test_a_new_backend_says_in_its_own_module_that_the_first_gpu_takes_the_whole_model(monkeypatch):
    module = types.ModuleType("bench.backends.mine")
    vars(module).update(unsupported=lambda job: "", load=lambda job: None)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    job = a_job(backend="mine", device_count=2, load={"dtype": "float16"})
    shared = preflight.gpu_need_bytes(job, 8 * GIB)
    module.ON_ONE_GPU = True
    assert (shared, preflight.gpu_need_bytes(job, 8 * GIB)) == (int(10.5 * GIB), int(18.5 * GIB))
    assert preflight.gpu_need_bytes(dataclasses.replace(job, backend="compiled"), 8 * GIB) == int(18.5 * GIB)


def test_a_memory_limit_is_what_a_case_with_one_needs():
    job = a_job(device_count=1, load={"dtype": "float32", "memory_limit_bytes": 8 * GIB})
    assert found(OLD, dataclasses.replace(TWO_3090, gpus=TWO_3090.gpus[:1]), job) == []


GPT_J = 6_050_882_784


@pytest.mark.parametrize(
    ("backend", "stack", "dtype", "count", "parameters", "least", "most"),
    [
        ("deepspeed", "current", "float32", 4, GPT_J, 80, 104.6),  # the last: GB that a stored run reached
        ("deepspeed", "current", "float32", 1, GPT_J, 20, 25.9),
        ("deepspeed", "current", "float16", 4, GPT_J, 12, 12.2),
        ("deepspeed-zero", "current", "float16", 4, GPT_J, 12, 12.2),
        ("bminf", "hopper", "float32", 1, PARAMETERS, 24, 29.4),
        ("tensor-parallel", "hopper", "float32", 2, PARAMETERS, 24, 33.6),
        ("layer-parallel", "current", "float32", 2, PARAMETERS, 14, 19.1),
        ("transformers", "hopper-2023-05", "float32", 1, GPT_J, 20, 25.3),
        ("transformers", "current", "float32", 1, GPT_J, 12, 14.3),
    ],
)
def test_float32_weights_are_whole_in_the_host_memory_of_each_process_that_does_not_load_straight_onto_its_gpu(
    backend, stack, dtype, count, parameters, least, most
):
    job = a_job(backend=backend, stack=stack, device_count=count, load={"dtype": dtype})
    assert least < preflight.loading_bytes(job, KNOWN.image(backend, stack), parameters) / 1e9 < most


def test_a_form_that_loads_no_model_needs_no_more_memory_in_float32():
    job = a_job(backend="deepspeed", form="fusion", device_count=4, load={"dtype": "float32"})
    assert preflight.loading_bytes(job, CURRENT, GPT_J) == 2 * GPT_J


def test_four_ranks_of_a_float32_model_are_refused_on_a_host_that_holds_it_once():
    machine = dataclasses.replace(H200, gpus=H200.gpus * 2, memory_available_bytes=60 * GIB)
    job = a_job(backend="deepspeed", device_count=4, load={"dtype": "float32"})
    (line,) = found(CURRENT, machine, job, parameters=GPT_J, new_bytes=2 * GPT_J)
    assert line == "60 GiB of host memory are available, loading needs about 90 GiB; close other programs or type SCALE=tiny"
    assert found(CURRENT, machine, dataclasses.replace(job, load={"dtype": "float16"}), parameters=GPT_J, new_bytes=2 * GPT_J) == []


def test_weights_that_are_on_the_disk_need_no_room_there():
    full = dataclasses.replace(H200, models_free_bytes=GIB)
    assert any("1 GiB of disk are free, about 13 GiB are needed" in line for line in found(CURRENT, full))
    assert found(CURRENT, full, new_bytes=0) == []


def test_a_run_with_weights_of_its_own_asks_for_no_room_on_the_disk_and_others_do(monkeypatch, tmp_path):
    article = articles.find("inference-tools")
    planned = runner.Planned(article, article.case("transformers"), "controlled", "current")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(preflight, "this_machine", lambda *_: preflight.Machine([], "", 200 * GIB, GIB, 100 * GIB))

    def checked(weights, typed, **facts):
        target = jobs.Target("current", "cpu", 1, weights, "full")
        facts = {"name": "host", "gpus": [], "image": CURRENT, "models": tmp_path, "asked": types.SimpleNamespace(model_path=typed), **facts}
        engine = types.SimpleNamespace(**facts)
        runner.refuse_impossible(planned, jobs.measuring_job(article, planned.case, "controlled", target), engine, tmp_path)

    for weights in ("hub", "random"):
        with pytest.raises(PreflightError, match="of disk are free, about 13 GiB are needed"):
            checked(weights, None)
    checked("hub", tmp_path)
    (tmp_path / "random" / "bloomz-7b1-full-s0-r2").mkdir(parents=True)
    checked("random", None)
    checked("random", None, name="docker", is_built=lambda: True)
    with pytest.raises(PreflightError, match="of disk are free, about 14 GiB are needed"):
        checked("random", None, name="docker", is_built=lambda: False)


def test_all_problems_come_at_once():
    poor = dataclasses.replace(H200, memory_available_bytes=GIB, models_free_bytes=GIB, runs_free_bytes=0)
    lines = found(OLD, poor)
    assert len(lines) == 4
    with pytest.raises(PreflightError) as error:
        preflight.check(lines)
    assert all(line in str(error.value) for line in lines)


@pytest.mark.parametrize(
    ("capability", "archs", "expected"),
    [
        ("8.6", ("sm_80",), True),
        ("8.0", ("sm_86",), False),
        ("8.9", ("sm_86",), True),
        ("9.0", ("sm_86",), False),
        ("9.0", ("compute_80",), True),
        ("12.0", ("sm_100",), False),
        ("12.0", ("sm_120",), True),
        ("9.0", ("sm_90a",), True),
    ],
)
def test_which_code_a_gpu_runs(capability, archs, expected):
    assert preflight.runs_on(capability, archs) is expected


def test_nothing_stands_in_the_way_of_nothing():
    preflight.check([])


@pytest.mark.parametrize("name", ["file", "file/runs"])
def test_a_folder_for_results_that_is_none_is_a_wrong_value(name, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file.* cannot be written .*, allowed is a folder that can be written; type RUNS=/another/folder"):
        runner.refuse_unwritable(tmp_path / name)


def test_a_folder_for_results_that_takes_no_file_is_no_wrong_value(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(KitError, match="No space left on device.*; type RUNS=/another/folder") as error:
        runner.refuse_unwritable(tmp_path)
    assert error.value.exit_code == 1


@pytest.mark.parametrize(
    ("driver", "cuda", "runs"), [("12.2", "12.8", True), ("13.0", "12.8", True), ("11.7", "12.1", False), ("", "12.1", True), ("11.7", "", True)]
)
def test_a_driver_runs_every_cuda_of_its_own_main_version_and_of_earlier_ones(driver, cuda, runs):
    assert preflight.driver_runs(driver, cuda) is runs
