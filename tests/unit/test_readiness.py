"""`make doctor`: what a machine lacks for a run on GPUs, a line each, and what to type next."""

import types
from pathlib import Path

import pytest
from docker.errors import DockerException

from scripts import articles, results
from scripts.commands.line import invoke
from scripts.containers import container
from scripts.errors import PreflightError
from scripts.images import build
from scripts.machine import gpus
from scripts.machine.gpus import Gpu
from scripts.run import preflight, readiness
from tests.fakes.machine import Machine

LOOK = """
from pathlib import Path
from scripts.run import readiness
findings, next_command = readiness.look(Path({folder!r}), Path({folder!r}))
answer = [finding.line for finding in findings] + [next_command]
"""


@pytest.fixture
def doctor(fake_nvml: Path, tmp_path: Path):
    """A function: the lines on a machine with so many simulated GPUs, on which no Docker answers."""
    machine = Machine(fake_nvml, tmp_path, "scripts.run.readiness")

    def lines(count: int, **settings: str) -> list[str]:
        return machine.ask(LOOK.format(folder=str(tmp_path)), gpus=count, DOCKER_HOST=f"unix://{tmp_path}/no.sock", **settings)

    return lines


def gpu(capability: str = "9.0", index: int = 0, gib: int = 80) -> Gpu:
    return Gpu(index, f"GPU-{index}", "SYNTHETIC GPU", gib << 30, capability)


@pytest.fixture
def ready(monkeypatch, tmp_path):
    """A function: what is found on a machine that has all, but for what is given otherwise; {about: remedy} of what is missing, and the next command."""

    def found(
        present=(gpu(), gpu(index=1), gpu(index=2)),
        busy=(),
        info=None,
        error=None,
        podman="",
        buildx=None,
        memory_gib=64,
        disk_gib=64,
        runs_mib=1024,
        cuda="13.0",
    ):
        def fail(problem):
            if problem:
                raise problem

        versions = {"Version": "29.0", "Components": [{"Name": "Podman Engine", "Version": podman}] if podman else []}
        client = types.SimpleNamespace(info=lambda: fail(error) or info or {"Runtimes": {"nvidia": {}}}, version=lambda: versions)
        monkeypatch.setattr(readiness, "TOOLKIT", ())
        monkeypatch.setattr(gpus, "list_gpus", lambda: list(present))
        monkeypatch.setattr(gpus, "given", lambda: list(present))
        monkeypatch.setattr(gpus, "driver", lambda: {"driver": "580", "cuda_driver": cuda})
        monkeypatch.setattr(gpus, "foreign_use", lambda one: "is in use by pid 7" if one.index in busy else None)
        monkeypatch.setattr(container, "connect", lambda: client)
        monkeypatch.setattr(build, "require_buildx", lambda: fail(buildx))
        machine = preflight.Machine([], "", memory_gib << 30, disk_gib << 30, runs_mib << 20)
        monkeypatch.setattr(preflight, "this_machine", lambda *_: machine)
        findings, command = readiness.look(tmp_path, tmp_path)
        return {finding.about: finding.remedy for finding in findings if finding.remedy}, command

    return found


def test_a_machine_without_gpus_and_docker_is_told_both_at_once_and_what_still_works(doctor):
    of_gpus, of_docker, memory, disk, next_command = doctor(0)
    assert of_gpus.startswith("no  GPUs") and "this machine shows no NVIDIA GPU; install its driver, so that `nvidia-smi` lists the GPU" in of_gpus
    assert of_docker.startswith("no  Docker") and "no Docker answers at unix://" in of_docker
    assert " GiB are free, loading needs about 15" in memory and " GiB are free, a model and its image need about 29 if they are not there yet" in disk
    assert next_command == "make demo, which needs neither a GPU nor Docker"


def test_gpus_are_named_with_their_driver_and_with_who_uses_them(doctor):
    of_gpus, of_stacks, *_ = doctor(2, FAKE_NVML_PROCESSES="1:77:4096")
    assert of_gpus.startswith("ok  GPUs      0 ") and "CUDA up to 13.0" in of_gpus and of_gpus.endswith("; GPU 1 is in use by pid 77")
    assert of_stacks.startswith("ok  stacks    ") and of_stacks.count("STACK=") == sum(bool(article.claims) for article in articles.load_all().values())
    busy, *_ = doctor(1, FAKE_NVML_PROCESSES="0:77:4096")
    assert busy.startswith("no  GPUs") and busy.endswith("GPU 0 is in use by pid 77; stop what uses them, or type ALLOW_BUSY=1")


def test_a_driver_that_does_not_answer_is_a_finding_and_no_end(doctor):
    of_gpus, of_docker, *_ = doctor(2, FAKE_NVML_INIT="999")
    assert of_gpus.startswith("no  GPUs") and "the NVIDIA driver does not answer" in of_gpus and of_docker.startswith("no  Docker")


def test_gpus_that_an_allocation_withholds_are_not_those_of_a_missing_driver(doctor):
    of_gpus, *_ = doctor(2, CUDA_VISIBLE_DEVICES="")
    assert of_gpus.startswith("no  GPUs") and "gives this process no GPU; ask the scheduler" in of_gpus and "install" not in of_gpus


@pytest.mark.parametrize(("capability", "stack"), [("8.6", "2023-02"), ("8.9", "2023-02"), ("9.0", "hopper"), ("12.0", "current"), ("3.0", "")])
def test_the_stack_is_the_nearest_to_the_article_that_has_code_for_the_gpu(capability, stack):
    assert readiness.stacks_of(capability, "13.0")["inference-tools"] == stack


def test_a_port_is_that_of_the_article_and_an_old_driver_rules_a_stack_out():
    assert readiness.stacks_of("9.0", "13.0")["deepspeed-inference"] == "hopper-2023-05"
    assert [readiness.stacks_of(capability, cuda)["inference-tools"] for capability, cuda in (("12.0", "12.4"), ("8.6", "11.8"))] == ["", "2023-02"]


def test_where_nothing_is_missing_the_next_command_asks_for_free_gpus_that_hold_the_model(ready):
    assert ready() == ({}, "make bench-deepspeed GPUS=2 STACK=hopper WEIGHTS=random")
    assert ready(busy=(0, 1)) == ({}, "make bench-deepspeed GPUS=1 STACK=hopper WEIGHTS=random")
    assert ready([gpu("8.6", index, 10) for index in range(3)])[1] == "make bench-deepspeed GPUS=2 STACK=2023-02 WEIGHTS=random"
    assert ready([gpu("8.6", index, 8) for index in range(3)])[1] == "make bench-deepspeed GPUS=3 STACK=2023-02 WEIGHTS=random"
    assert ready([gpu("8.6", 0, 10)])[0] == {"GPUs": "the model of inference-tools does not fit them; type SCALE=tiny"}


def test_a_gpu_that_no_stack_has_code_for_is_left_out_beside_others_and_told_alone(ready):
    assert ready([gpu("3.0"), gpu("9.0", 1)]) == ({}, "make bench-deepspeed GPUS=1 STACK=hopper WEIGHTS=random")
    missing, _ = ready([gpu("3.0")])
    assert list(missing) == ["GPUs"] and missing["GPUs"].startswith("no stack has code")
    assert list(ready([gpu("9.0")], cuda="10.2")[0]) == ["GPUs"], "an old driver"


@pytest.mark.parametrize(
    ("given", "about", "words"),
    [
        ({"memory_gib": 10}, "memory", "close other programs"),
        ({"disk_gib": 20}, "disk", "20 GiB of disk are free, about 29 GiB are needed"),
        ({"runs_mib": 1}, "disk", "1 MiB are free where the results go"),
        ({"info": {"Runtimes": {"runc": {}}}}, "Docker", "install the NVIDIA Container Toolkit"),
        ({"podman": "5.8.6"}, "Docker", "the engine that answers is Podman and not Docker; type ENGINE=podman"),
        ({"buildx": PreflightError("`docker buildx` is missing: install it")}, "Docker", "`docker buildx` is missing"),
        ({"error": DockerException("x\ny")}, "Docker", "Docker fails (x); see its log"),
        ({"busy": (0, 1, 2)}, "GPUs", "stop what uses them"),
    ],
)
def test_whatever_is_missing_has_its_remedy_and_the_demo_is_what_still_works(ready, given, about, words):
    missing, command = ready(**given)
    assert list(missing) == [about] and words in missing[about] and command.startswith("make demo")


@pytest.mark.parametrize(("typed", "runs"), [([], results.RUNS), (["--runs", "/elsewhere/runs"], Path("/elsewhere/runs"))])
def test_the_command_looks_at_the_folder_of_results_that_is_typed(typed, runs, monkeypatch):
    asked = []
    monkeypatch.setattr(readiness, "look", lambda models, runs, mistakes: asked.append(runs) or ([], "make demo"))
    assert invoke(["doctor", *typed]) == 0 and asked == [runs]


def test_the_command_ends_with_3_where_something_is_missing(ready, capsys):
    ready()
    assert invoke(["doctor"]) == 0 and capsys.readouterr().out.splitlines()[-1].startswith("next: make bench-deepspeed")
    ready(memory_gib=1)
    assert invoke(["doctor"]) == 3 and "\nno  memory    1 GiB are free, loading needs about 15; close other programs\n" in capsys.readouterr().out


@pytest.mark.parametrize(("capability", "backend"), [("6.0", "layer-parallel"), ("7.0", "deepspeed"), ("9.0", "deepspeed"), ("12.0", "deepspeed")])
def test_the_advised_backend_has_kernels_that_run_on_the_gpu(ready, capability, backend):
    _, command = ready(present=(gpu(capability), gpu(capability, index=1)))
    assert command.startswith(f"make bench-{backend} GPUS=2 STACK=")


def test_a_mistake_in_an_article_s_file_is_a_finding_with_its_words(ready, mistaken, capsys):
    ready()
    mistaken()
    assert invoke(["doctor"]) == 3
    *_, told, command = capsys.readouterr().out.splitlines()
    assert told.startswith("no  articles  mine.toml: not TOML: ") and command == "next: make doctor, once this file is corrected"


def test_of_two_files_with_mistakes_both_are_findings_and_their_names_move_no_cursor(ready, mistaken, capsys):
    ready()
    mistaken()
    mistaken("mi\x1bne")
    assert invoke(["doctor"]) == 3
    *_, first, second, command = capsys.readouterr().out.splitlines()
    assert first.startswith("no  articles  mi?ne.toml: ") and second.startswith("no  articles  mine.toml: ")
    assert command == "next: make doctor, once these files are corrected"


def test_a_mistake_in_what_a_claim_compares_is_a_finding_too(ready, mistaken, capsys):
    ready()
    text = (articles.ARTICLES / "inference-tools.toml").read_text()
    mistaken("inference-tools", text.replace("ratio = 1.22", "from_batch = 1"))
    assert invoke(["doctor"]) == 3
    assert "\nno  articles  bench/articles/inference-tools.toml: claim 1.3: " in capsys.readouterr().out


def test_a_mistake_in_the_article_of_the_advised_command_ends_no_look(ready, mistaken, capsys):
    ready()
    mistaken("inference-tools")
    assert invoke(["doctor"]) == 3 and "\nno  articles  inference-tools.toml: not TOML: " in capsys.readouterr().out


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
    assert readiness._way_of_gpus(info, [gpu()]) == way


def test_a_file_in_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    told = {finding.about: finding.remedy for finding in readiness._room(tmp_path / "models", tmp_path / "file" / "runs")}
    assert told["RUNS"] == f"{tmp_path / 'file'} is a file in place of a folder; type RUNS=/another/folder" and "MODELS" not in told
