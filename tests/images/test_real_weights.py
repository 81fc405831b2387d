"""Real weights in pickles, from a hub on this machine to the report, with the kit's own commands: fetched, converted and measured in containers.

Needs the image of layer-parallel, current; where the image of 2023-02 is there too, the article's own libraries load the same files.
"""

import json
import os
import pickle

import pytest

from scripts import pins
from scripts.containers import container
from scripts.containers.restrictions import Folders
from scripts.images import build
from scripts.paths import ROOT
from tests import reports
from tests.fakes import hub as fake_hub
from tests.fakes import tiny_kit
from tests.fakes.tiny_kit import COMMIT, NAME, TinyKit
from tests.images.conftest import not_tested

CONVERTER = f"torch {pins.load().image('layer-parallel', 'current').pins['torch'].version}"


@pytest.fixture(scope="module")
def image(client):
    tag = pins.load().image("layer-parallel", "current").tag
    if not build.exists(client, tag):
        not_tested("the image of layer-parallel is not there: type make build-layer-parallel STACK=current")
    return tag


def in_container(client, image, code, work):
    """The exit code of a line of Python in a job's container, whose folder is `work`."""
    return container.run(client, image, ["python3", "-c", code], run_id=work.name, folders=Folders(work, ROOT / "bench"), timeout_s=300).exit_code


@pytest.fixture(scope="module")
def model(client, image, tmp_path_factory):
    """{file: content} of a tiny model, its weights in both formats."""
    work = tmp_path_factory.mktemp("tiny-model")
    assert in_container(client, image, tiny_kit.writing_model("/run/job"), work) == 0
    return tiny_kit.files_in(work)


@pytest.fixture(scope="module")
def served(model):
    with fake_hub.running() as hub:
        hub.add(NAME, COMMIT, tiny_kit.without(model, ".safetensors"))
        yield hub


@pytest.fixture(scope="module")
def kit(served, model, tmp_path_factory):
    """A kit that has fetched and converted the model."""
    fresh = TinyKit(tmp_path_factory.mktemp("real"), served.endpoint, tiny_kit.parameters_of(model))
    done = fresh.make("models", "ARTICLE=inference-tools")
    assert done.returncode == 0, done.stdout + done.stderr
    return fresh


def converted(kit):
    return kit.models / "hub" / NAME.replace("/", "--") / f"safetensors-{COMMIT}"


def test_the_pickles_became_safetensors_with_the_same_tensors(client, image, kit, model, tmp_path):
    made = tiny_kit.files_in(converted(kit))
    assert set(made) == {".manifest.json", "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    for name, content in {"made.safetensors": made["model.safetensors"], "right.safetensors": model["model.safetensors"]}.items():
        (tmp_path / name).write_bytes(content)
    code = (
        "import sys, torch; from safetensors.torch import load_file; a, b = (load_file('/run/job/' + n + '.safetensors') for n in ('made', 'right')); "
        "sys.exit(not (a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)))"
    )
    assert in_container(client, image, code, tmp_path) == 0


def test_a_second_make_models_converts_nothing_fetches_nothing_and_takes_less_than_three_seconds(kit, served):
    requests, files = list(served.requests), tiny_kit.files_in(converted(kit))
    assert kit.cpu_s("models", "ARTICLE=inference-tools") < 3
    assert served.requests == requests and tiny_kit.files_in(converted(kit)) == files


@pytest.mark.parametrize("stack", ["current", "2023-02"])
def test_a_stack_measures_the_converted_weights_without_a_network_and_the_report_shows_the_text(client, kit, served, stack):
    if not build.exists(client, pins.load().image("layer-parallel", stack).tag):
        not_tested(f"the image of layer-parallel is not there: type make build-layer-parallel STACK={stack}")
    requests = list(served.requests)
    done = kit.make("bench-layer-parallel", f"STACK={stack}", "VARIANT=controlled", "DEVICE=cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert served.requests == requests
    (record,) = [one for path in kit.runs.glob("*/result.json") if (one := json.loads(path.read_text()))["job"]["stack"] == stack]
    said = record["job"]["model"]
    assert (record["status"], record["host"]["engine"]) == ("ok", "docker"), (record["status"], record["reason"])
    assert record["guest"]["check"]["passed"], json.dumps(record["guest"]["check"])
    assert (said["revision"], said["converted_by"], len(said["weights_sha256"])) == (COMMIT, CONVERTER, 64)
    assert said["path"].endswith(converted(kit).name) and len(record["guest"]["figures"]["wrote"]["system"]) == 30
    done = kit.make("report", f"OUT={kit.runs.parent}")
    assert done.returncode == 0, done.stdout + done.stderr
    page = reports.text_of(kit.runs.parent)
    assert "<summary>What each system wrote</summary>" in page and f"safetensors made of its pickles by {CONVERTER}" in page


def test_a_hostile_pickle_is_refused_in_one_line_and_leaves_nothing(served, model, tmp_path):
    class Runs:
        def __reduce__(self):
            return os.system, ("touch /run/job/converted/model.safetensors",)

    hostile = pickle.dumps({"weight": Runs()}, protocol=2) + bytes(len(model["pytorch_model.bin"]))
    with fake_hub.running() as hub:
        hub.add(NAME, COMMIT, {**tiny_kit.without(model, ".safetensors"), "pytorch_model.bin": hostile})
        kit = TinyKit(tmp_path, hub.endpoint, tiny_kit.parameters_of(model))
        done = kit.make("models", "ARTICLE=inference-tools")
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode != 0 and "pytorch_model.bin is refused" in error and "posix.system" in error and "WEIGHTS=random" in error
    assert not converted(kit).exists() and not list(kit.models.glob(".work-*"))
