"""The kit takes the GPUs that it was given, and no other: by number, by UUID, as MIG instances, by SLURM's variables."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.containers import gpu_requests
from scripts.errors import PreflightError
from scripts.machine import allocation
from scripts.machine.gpus import Gpu
from tests.fakes.cdi import uuid
from tests.fakes.machine import ROOT, Machine

SELECT = "with gpus.select({}) as chosen: answer = [gpu.uuid for gpu in chosen]"
INSTANCE = "MIG-00000000-0000-0000-0000-000000000002"


@dataclasses.dataclass(frozen=True)
class Device:
    index: int
    uuid: str


PRESENT = [Device(index, uuid(index)) for index in range(4)]


@pytest.fixture(autouse=True)
def no_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_") or name == allocation.CUDA]:
        monkeypatch.delenv(name)


@pytest.fixture
def machine(fake_nvml: Path, tmp_path: Path) -> Machine:
    return Machine(fake_nvml, tmp_path)


def given(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[int]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return [device.index for device in allocation.of(PRESENT)]


def test_without_an_allocation_every_gpu_may_be_taken(monkeypatch):
    assert given(monkeypatch) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("named", "indices"),
    [
        ("2,0", [2, 0]),
        (f"{uuid(3)},{uuid(1)}", [3, 1]),
        (" 1 , 2 ", [1, 2]),
        ("1,1", [1]),
        ("2,-1,3", [2]),
        ("-1", []),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(monkeypatch, named, indices):
    assert given(monkeypatch, CUDA_VISIBLE_DEVICES=named) == indices


def test_a_uuid_may_be_shortened_where_only_one_gpu_fits(monkeypatch):
    monkeypatch.setenv(allocation.CUDA, "GPU-aa")
    fitting, other = Device(0, "GPU-aab1"), Device(1, "GPU-bb02")
    assert allocation.of([fitting, other]) == [fitting]
    with pytest.raises(PreflightError, match="names more than one GPU"):
        allocation.of([fitting, Device(2, "GPU-aac3")])


@pytest.mark.parametrize("named", ["7", "GPU-not-here", "all"])
def test_a_gpu_that_is_not_there_is_named_with_those_that_are(monkeypatch, named):
    with pytest.raises(PreflightError, match=rf"CUDA_VISIBLE_DEVICES is '{named}', .* names no GPU .*{uuid(0)}.*unset it"):
        given(monkeypatch, CUDA_VISIBLE_DEVICES=named)


def test_a_job_of_slurm_has_the_numbers_of_the_node(monkeypatch):
    assert given(monkeypatch, SLURM_JOB_GPUS="1,3") == given(monkeypatch, SLURM_JOB_GPUS="1,3", SLURM_JOB_ID="12") == [1, 3]
    assert given(monkeypatch, SLURM_JOB_GPUS="1-3", SLURM_STEP_GPUS="2") == [2]


@pytest.mark.parametrize("named", ["gpu:0", "0,1--3", "0,+1", "1_0"])
def test_another_text_of_slurm_than_a_list_of_numbers_limits_nothing(monkeypatch, named):
    assert given(monkeypatch, SLURM_JOB_GPUS=named) == [0, 1, 2, 3]


def test_cuda_visible_devices_within_a_job_cannot_leave_it(monkeypatch):
    assert given(monkeypatch, SLURM_JOB_GPUS="1,3", CUDA_VISIBLE_DEVICES="0,3") == [3]


def test_a_job_of_slurm_that_asked_for_no_gpu_has_none_unless_its_user_names_some(monkeypatch):
    assert given(monkeypatch, SLURM_JOB_ID="12") == []
    assert given(monkeypatch, CUDA_VISIBLE_DEVICES="1") == [1]


def test_where_slurm_hides_the_other_gpus_their_numbers_begin_at_0(monkeypatch):
    """ConstrainDevices: the job has GPU 6 and 7 of the node, and sees two GPUs, 0 and 1."""
    for name, value in {"SLURM_JOB_GPUS": "6,7", allocation.CUDA: "0,1"}.items():
        monkeypatch.setenv(name, value)
    assert allocation.of(PRESENT[:2]) == PRESENT[:2]


@pytest.mark.parametrize(
    ("variables", "uuids"),
    [
        ({"CUDA_VISIBLE_DEVICES": "5,2"}, [uuid(5), uuid(2)]),
        ({"CUDA_VISIBLE_DEVICES": f"{uuid(6)},{uuid(7)}"}, [uuid(6), uuid(7)]),
        ({"SLURM_JOB_GPUS": "3,4"}, [uuid(3), uuid(4)]),
    ],
)
def test_a_count_takes_gpus_of_the_allocation_alone(machine, variables, uuids):
    assert machine.ask(SELECT.format("count=2"), **variables) == uuids
    answer = machine.ask(SELECT.format("count=3"), **variables)
    (name,) = variables
    assert answer["exit_code"] == 3 and f"GPUS=3: {name}=" in answer["error"] and "type GPUS=2 or less" in answer["error"]


def test_typed_ids_outside_the_allocation_are_refused(machine):
    assert machine.ask(SELECT.format("ids=[3]"), CUDA_VISIBLE_DEVICES="2,3") == [uuid(3)]
    answer = machine.ask(SELECT.format("ids=[0]"), CUDA_VISIBLE_DEVICES="2,3")
    assert "GPU_IDS=0: there is no GPU 0, CUDA_VISIBLE_DEVICES=2,3 gives GPU 2 (Fake GPU), 3 (Fake GPU); try GPU_IDS=2" in answer["error"]


def test_an_allocation_without_gpus_gets_none(machine):
    answer = machine.ask(SELECT.format("count=1"), CUDA_VISIBLE_DEVICES="")
    assert answer["exit_code"] == 3 and "gives this process no GPU" in answer["error"] and "DEVICE=cpu" in answer["error"]
    assert "job 12 of SLURM without SLURM_JOB_GPUS gives this process no GPU" in machine.ask(SELECT.format("count=1"), SLURM_JOB_ID="12")["error"]


def test_a_mig_instance_is_taken_by_its_uuid_with_its_own_memory(machine):
    lines = "with gpus.select(count=1) as (gpu,): answer = [gpu.uuid, gpu.index, gpu.name, gpu.memory_total_bytes >> 30, gpu.compute_capability]"
    assert machine.ask(lines, FAKE_NVML_MIG="1", CUDA_VISIBLE_DEVICES=INSTANCE) == [INSTANCE, 1, "Fake GPU MIG 1g.10gb", 10, "9.0"]
    assert "names no GPU" in machine.ask(lines, CUDA_VISIBLE_DEVICES=INSTANCE)["error"]


def test_a_mig_instance_counts_whatever_number_slurm_gives_it_and_a_number_names_a_whole_gpu(monkeypatch):
    instance = Device(1, INSTANCE)
    for name, value in {"SLURM_JOB_ID": "12", "SLURM_JOB_GPUS": "3", allocation.CUDA: INSTANCE}.items():
        monkeypatch.setenv(name, value)
    assert allocation.of([*PRESENT, instance]) == [instance], "SLURM counts the instances of a node, not its GPUs"
    monkeypatch.setenv(allocation.CUDA, f"3,1,{INSTANCE}")
    assert allocation.of([*PRESENT, instance]) == [PRESENT[3], instance]
    monkeypatch.delenv("SLURM_JOB_GPUS")
    monkeypatch.delenv("SLURM_JOB_ID")
    assert allocation.of([*PRESENT, instance]) == [PRESENT[3], PRESENT[1], instance]


def test_the_limits_are_told_in_one_line(machine):
    words = "CUDA_VISIBLE_DEVICES=2,3 gives 2 of this machine's 8 GPUs (2 (Fake GPU), 3 (Fake GPU)); the kit takes no other"
    assert machine.ask("answer = gpus.limits()", CUDA_VISIBLE_DEVICES="2,3") == words
    assert machine.ask("answer = gpus.limits()") == ""
    assert machine.ask("answer = gpus.limits()", gpus=2, CUDA_VISIBLE_DEVICES="0,1") == ""


def test_docker_gets_explicit_gpus_and_no_number_that_only_this_process_sees(monkeypatch):
    gpu = Gpu(0, uuid(5), "Fake GPU", 80 << 30, "9.0")
    assert gpu_requests.cdi_names({"0", "5"}, [gpu]) == ["nvidia.com/gpu=0"]
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert gpu_requests.cdi_names({"0", "5"}, [gpu]) == []
    assert gpu_requests.cdi_names({"0", uuid(5)}, [gpu]) == [f"nvidia.com/gpu={uuid(5)}"]


def test_docker_never_gets_the_whole_gpu_for_a_mig_instance():
    instance = Gpu(1, INSTANCE, "Fake GPU MIG 1g.10gb", 10 << 30, "9.0")
    assert gpu_requests.cdi_names({"0", "1"}, [instance]) == []


@pytest.mark.slow
def test_a_measurement_says_what_it_was_given_and_refuses_a_job_over_several_nodes(machine, tmp_path):
    def bench(**settings: str) -> str:
        command = [sys.executable, "-m", "scripts", "bench", "layer-parallel", "--gpus", "3", "--weights", "random", "--runs", str(tmp_path / "runs")]
        environment = machine.environment | {"FAKE_NVML_GPUS": "8"} | settings
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stderr

    told = bench(CUDA_VISIBLE_DEVICES="2,3")
    assert "note: CUDA_VISIBLE_DEVICES=2,3 gives 2 of this machine's 8 GPUs" in told and "error: GPUS=3" in told
    assert "error: this job of SLURM has 2 nodes" in bench(SLURM_JOB_NUM_NODES="2")
