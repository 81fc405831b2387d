"""`make doctor`: what a machine lacks for a run on GPUs, a line each, and what to type next."""

from pathlib import Path

import pytest

from scripts import articles, pins
from scripts.machine.gpus import Gpu
from scripts.run import preflight, readiness
from scripts.run.readiness import Finding
from tests.fakes.machine import Machine

LOOK = """
from pathlib import Path
from scripts.run import readiness
findings, next_command = readiness.look(Path({folder!r}), Path({folder!r}))
answer = [finding.line for finding in findings] + [next_command]
"""


@pytest.fixture
def doctor(fake_nvml: Path, tmp_path: Path):
    """A function: the lines on a machine with so many make-believe GPUs, on which no Docker answers."""
    machine = Machine(fake_nvml, tmp_path)

    def lines(gpus: int, **settings: str) -> list[str]:
        return machine.ask(LOOK.format(folder=str(tmp_path)), gpus=gpus, DOCKER_HOST=f"unix://{tmp_path}/no.sock", **settings)

    return lines


def gpu(capability: str) -> Gpu:
    return Gpu(0, "GPU-0", "SYNTHETIC GPU", 80 << 30, 0, capability)


def stack_for(capability: str, cuda_driver: str = "13.0", slug: str = "inference-tools") -> str:
    return readiness.stack_of(articles.find(slug), [gpu(capability)], cuda_driver, pins.load())


def test_a_machine_without_gpus_and_docker_is_told_both_at_once_and_what_still_works(doctor):
    of_gpus, of_docker, memory, disk, next_command = doctor(0)
    assert of_gpus.startswith("no  GPUs") and "this machine shows no NVIDIA GPU" in of_gpus
    assert of_docker.startswith("no  Docker") and "no Docker answers at unix://" in of_docker
    assert " GiB are free, loading needs about 15" in memory and " GiB are free, a model and its image need about 29" in disk
    assert next_command == "make demo, which needs neither a GPU nor Docker"


def test_gpus_are_named_with_their_driver_and_with_who_uses_them(doctor):
    of_gpus, of_stacks, *_ = doctor(2, FAKE_NVML_PROCESSES="1:77:4096")
    assert of_gpus.startswith("ok  GPUs      0 ") and "CUDA up to 13.0" in of_gpus and of_gpus.endswith("; GPU 1 is in use by pid 77")
    assert of_stacks.startswith("ok  stacks    ") and of_stacks.count("STACK=") == 3
    busy, *_ = doctor(1, FAKE_NVML_PROCESSES="0:77:4096")
    assert busy.startswith("no  GPUs") and busy.endswith("GPU 0 is in use by pid 77; stop what uses them, or type ALLOW_BUSY=1")


def test_a_driver_that_does_not_answer_is_a_finding_and_no_end(doctor):
    of_gpus, of_docker, *_ = doctor(2, FAKE_NVML_INIT="999")
    assert of_gpus.startswith("no  GPUs") and "the NVIDIA driver does not answer" in of_gpus and of_docker.startswith("no  Docker")


@pytest.mark.parametrize(("capability", "stack"), [("8.6", "2023-02"), ("8.9", "2023-02"), ("9.0", "hopper"), ("12.0", "current"), ("3.0", "")])
def test_the_stack_is_the_nearest_to_the_article_that_has_code_for_the_gpu(capability, stack):
    assert stack_for(capability) == stack


def test_a_port_is_that_of_the_article_and_an_old_driver_rules_a_stack_out():
    assert stack_for("9.0", slug="deepspeed-inference") == "hopper-2023-05"
    assert (stack_for("12.0", "12.4"), stack_for("8.6", "11.8")) == ("", "2023-02")


def test_where_nothing_is_missing_the_next_command_names_gpus_and_stack(monkeypatch, tmp_path):
    present = [gpu("9.0"), gpu("9.0"), gpu("9.0")]
    monkeypatch.setattr(readiness, "_gpus", lambda: (present, Finding("GPUs", "three")))
    monkeypatch.setattr(readiness, "_engine", lambda present: Finding("Docker", "there"))
    monkeypatch.setattr(preflight, "this_machine", lambda *_: preflight.Machine([], "", 64 << 30, 64 << 30, 64 << 30))
    findings, next_command = readiness.look(tmp_path, tmp_path)
    assert not any(finding.remedy for finding in findings) and next_command == "make bench-deepspeed GPUS=2 STACK=hopper WEIGHTS=random"
    monkeypatch.setattr(preflight, "this_machine", lambda *_: preflight.Machine([], "", 64 << 30, 20 << 30, 64 << 30))
    findings, next_command = readiness.look(tmp_path, tmp_path)
    assert [finding.about for finding in findings if finding.remedy] == ["disk"] and next_command.startswith("make demo")


@pytest.mark.parametrize(
    ("info", "way"),
    [
        ({"Runtimes": {"nvidia": {}}}, "the NVIDIA Container Toolkit"),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, "CDI"),
        ({"Runtimes": {"runc": {}}}, ""),
    ],
)
def test_docker_gives_gpus_by_cdi_or_by_the_toolkit_or_not_at_all(monkeypatch, info, way):
    monkeypatch.setattr(readiness, "TOOLKIT", ())
    assert readiness._way_of_gpus(info, [gpu("9.0")]) == way
