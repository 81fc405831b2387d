"""`make bench-…` for real: an image of the kit, a job in a container, a result on return. Needs the image of layer-parallel, current."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from scripts import pins
from scripts.containers import container
from scripts.images import build
from tests.images.conftest import not_tested

#: For one command. The first one makes weights while other tests restore images beside it: six minutes on a machine with a slow disk.
PATIENCE_S = 900
pytestmark = pytest.mark.timeout(2 * PATIENCE_S + 100)

ROOT = Path(__file__).resolve().parents[2]
TINY = ("STACK=current", "SCALE=tiny", "WEIGHTS=random")


@pytest.fixture(scope="module", autouse=True)
def built(client):
    if not build.exists(client, pins.load().image("layer-parallel", "current").tag):
        not_tested("the image of layer-parallel is not there: type make build-layer-parallel STACK=current")


def folders(models, rest):
    return {"MODELS": str(models), "RUNS": str(rest / "runs"), "KIT_LOCKS": str(rest / "locks")}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("kit") / "models"  # made by the kit, so that the container may read it


@pytest.fixture
def places(models, tmp_path, monkeypatch):
    """Folders of their own for results and locks; the models are shared."""
    monkeypatch.setenv("KIT_LOCKS", str(tmp_path / "locks"))
    return folders(models, tmp_path)


@pytest.fixture(scope="module")
def prepared(built, models, tmp_path_factory):
    """Weights and the right answer are there: a job gets to its first call at once, one with simulated GPUs as far as torch."""
    for variant in ("published", "controlled"):
        code, output = make("DEVICE=cpu", f"VARIANT={variant}", **folders(models, tmp_path_factory.mktemp(variant)))
        assert code == 0, output


def _as_a_careful_user():
    """Ctrl-C is heard: a shell's background job is born deaf to it, and so would be its children. New files are nobody else's."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.umask(0o077)


def start(*arguments, target="bench-layer-parallel", **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.Popen(
        ["make", target, *TINY, *arguments],
        cwd=ROOT,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_as_a_careful_user,
    )


def make(*arguments, **environment):
    process = start(*arguments, **environment)
    output, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output


def results(places):
    return [json.loads(path.read_text()) for path in sorted(Path(places["RUNS"]).glob("*/result.json"))]


@pytest.mark.usefixtures("prepared")
def test_the_kit_itself_takes_at_most_five_seconds_before_the_first_call(places):
    """The quickest of three: other tests run beside this one."""
    asked = []
    for _ in range(3):
        asked.append(time.time())
        code, output = make("DEVICE=cpu", "FORCE=1", **places)
        assert code == 0, output
    phases = [record["guest"]["phases"] for record in results(places)]
    others = [sum(ended - began for began, ended in (of["import"], of["load"])) for of in phases]
    assert min(of["measure"][0] - began - other for of, began, other in zip(phases, asked, others, strict=True)) < 5


def test_a_job_runs_in_the_image_and_its_result_says_so(client, places):
    code, output = make("DEVICE=cpu", **places)
    assert code == 0, output
    (record,) = results(places)
    assert record["status"] == "ok" and record["guest"]["check"]["passed"]
    assert record["guest"]["environment"]["packages"]["transformers"] == "5.17.0"
    assert record["host"]["image"]["tag"] == pins.load().image("layer-parallel", "current").tag
    assert record["host"]["image"]["id"].startswith("sha256:")
    assert not client.containers.list(all=True, filters={"label": f"{container.RUN_LABEL}={record['id']}"})
    assert not list(Path(places["RUNS"]).glob("*/work"))

    again, output = make("DEVICE=cpu", **places)
    assert again == 0 and len(results(places)) == 1, "a result that is there is not measured again"
    assert make("DEVICE=cpu", "FORCE=1", **places)[0] == 0
    assert len(results(places)) == 2


def test_an_instrument_runs_in_the_image_and_its_answer_says_so(client, places):
    code, output = make("DEVICE=cpu", "CASES=layer-parallel", "GPUS=1", target="instrument-layers", **places)
    assert code == 0, output
    (path,) = Path(places["RUNS"]).with_name("instruments").iterdir()
    told = json.loads(path.read_text())
    assert told["found"]["without_mask"]["logits"] == 0 and told["host"]["engine"] == "docker"
    assert told["host"]["image"]["tag"] == pins.load().image("layer-parallel", "current").tag and str(path) in output
    assert not client.containers.list(all=True, filters={"label": f"{container.RUN_LABEL}={told['job']['id']}"})


def on_gpus(fake_nvml, places, *arguments):
    return start("DEVICE=cuda", *arguments, LD_LIBRARY_PATH=str(fake_nvml), FAKE_NVML_GPUS="8", **places)


@pytest.mark.usefixtures("prepared", "cdi_gpus")
def test_the_chosen_gpus_are_what_the_container_sees(fake_nvml, places):
    """The GPUs are simulated, so torch finds none and the job fails; the device nodes are those that Docker gave it."""
    for arguments, nodes in ((["GPU_IDS=1,3"], ["/dev/nvidia1", "/dev/nvidia3"]), (["GPUS=2", "VARIANT=controlled"], ["/dev/nvidia0", "/dev/nvidia1"])):
        process = on_gpus(fake_nvml, places | {"NCCL_NVLS_ENABLE": "0"}, *arguments)
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode != 0, output
        failed = [one for one in results(places) if one["status"] == "failed" and one["guest"]["environment"]["device_nodes"] == nodes]
        assert failed, (output, [(one["status"], one["reason"]) for one in results(places)])
        assert "torch sees 0 GPUs, the job needs 2" in failed[0]["reason"]
        assert failed[0]["guest"]["environment"]["between_gpus"] == {"NCCL_NVLS_ENABLE": "0"}, "the machine's setting reaches the container"


@pytest.mark.usefixtures("prepared", "cdi_gpus")
def test_two_runs_at_once_get_different_gpus(fake_nvml, places):
    processes = [on_gpus(fake_nvml, places, "GPUS=2", f"VARIANT={variant}") for variant in ("published", "controlled")]
    outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    seen = [one["guest"]["environment"]["device_nodes"] for one in results(places) if one["status"] == "failed"]
    assert len(seen) == 2, outputs
    assert sorted(seen[0] + seen[1]) == [f"/dev/nvidia{index}" for index in range(4)]


def containers_of(client, places):
    ours = client.containers.list(all=True, filters={"label": container.OWNER_LABEL})
    return [one for one in ours if one.labels[container.OWNER_LABEL].startswith(places["KIT_LOCKS"])]


def until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within a minute")


def test_a_runner_killed_outright_leaves_nothing_once_the_next_one_comes(client, places):
    process = start("DEVICE=cpu", **places)
    until(lambda: containers_of(client, places))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert containers_of(client, places), "the killed runner could not clean up"
    code, output = make("DEVICE=cpu", **places)
    assert code == 0 and "killed runner left" in output, output
    assert not containers_of(client, places)
    assert [one["status"] for one in results(places)] == ["ok"]


def test_a_killed_runner_s_container_goes_also_where_nothing_is_left_to_measure(client, places):
    assert make("DEVICE=cpu", **places)[0] == 0
    process = start("DEVICE=cpu", "FORCE=1", **places)
    until(lambda: containers_of(client, places))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    code, output = make("DEVICE=cpu", **places)
    assert code == 0 and "measured before" in output and "killed runner left" in output, output
    assert not containers_of(client, places)
    assert [one["status"] for one in results(places)] == ["ok"]


def test_ctrl_c_leaves_nothing(client, places):
    process = start("DEVICE=cpu", **places)
    until(lambda: containers_of(client, places))
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    assert process.returncode != 0
    assert not containers_of(client, places)
    assert results(places) == []


@pytest.mark.usefixtures("cdi_gpus")
def test_the_doctor_finds_docker_with_gpus(fake_nvml, places):
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    machine = {"LD_LIBRARY_PATH": str(fake_nvml), "FAKE_NVML_GPUS": "8", **places}
    done = subprocess.run(["make", "--no-print-directory", "doctor"], cwd=ROOT, env=kept | machine, capture_output=True, text=True, timeout=PATIENCE_S)
    lines = dict(line.split(maxsplit=2)[1:] for line in done.stdout.splitlines() if line[:2] in ("ok", "no"))
    assert list(lines) == ["GPUs", "stacks", "Docker", "memory", "disk"], done.stdout + done.stderr
    assert "with buildx, which gives GPUs by CDI" in lines["Docker"] and "next: make " in done.stdout
