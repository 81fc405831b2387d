"""From a hub on this machine to the report, with the kit's own commands and a tiny model under the name of the first article's."""

import json

import pytest

from tests import reports
from tests.fakes import hub as fake_hub
from tests.fakes import tiny_kit
from tests.fakes.tiny_kit import COMMIT, NAME, TinyKit
from tests.guest.conftest import Guest


@pytest.fixture(scope="module")
def model(python, tmp_path_factory):
    """{file: content} of a tiny model, its weights in both formats."""
    folder = tmp_path_factory.mktemp("tiny-model")
    Guest(python, tmp_path_factory.mktemp("guest")).code(tiny_kit.writing_model(str(folder)))
    return tiny_kit.files_in(folder)


@pytest.fixture
def served(model):
    with fake_hub.running() as hub:
        hub.add(NAME, COMMIT, tiny_kit.without(model, ".bin"))
        yield hub


@pytest.fixture
def kit(served, model, tmp_path):
    return TinyKit(tmp_path, served.endpoint, tiny_kit.parameters_of(model))


def test_a_second_make_models_fetches_nothing_and_takes_less_than_three_seconds(kit, served, model):
    kit.cpu_s("models", "ARTICLE=inference-tools")
    served_bytes, requests = dict(served.served_bytes), list(served.requests)
    fetched = {name: size for name, size in served_bytes.items() if name}
    assert fetched == {name: len(content) for name, content in tiny_kit.without(model, ".bin").items()}
    assert kit.cpu_s("models", "ARTICLE=inference-tools") < 3
    assert (served.served_bytes, served.requests) == (served_bytes, requests)


@pytest.mark.full  # half a minute
def test_from_the_hub_to_the_report(kit, served, python):
    typed = ("STACK=current", "VARIANT=controlled", "DEVICE=cpu", "ENGINE=host", f"PYTHON_HOST={python}", "CASES=transformers,layer-parallel")
    assert kit.make("models", "ARTICLE=inference-tools").returncode == 0
    requests = list(served.requests)
    done = kit.make("bench-all", *typed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert served.requests == requests, "the bench fetched what make models had fetched"
    records = [json.loads(path.read_text()) for path in kit.runs.glob("*/result.json")]
    assert {record["job"]["case"] for record in records} == {"transformers", "layer-parallel"}
    for record in records:
        assert record["status"] == "ok" and record["guest"]["check"]["passed"], record["reason"]
        assert record["job"]["model"]["revision"] == COMMIT and "converted_by" not in record["job"]["model"]
        assert len(record["guest"]["figures"]["wrote"]["system"]) == 30
    done = kit.make("report", f"OUT={kit.runs.parent}")
    assert done.returncode == 0, done.stdout + done.stderr
    page = reports.text_of(kit.runs.parent)
    shown = page.partition("<summary>What each system wrote</summary>")[2]
    assert f"- `{NAME}` at `{COMMIT[:12]}`" in shown
    assert shown.count("| 30 of 30 | <b>") == 3, "the reference and two systems"


def test_pickles_without_a_container_end_in_one_line(kit, served, model):
    served.add(NAME, COMMIT, tiny_kit.without(model, ".safetensors"))
    done = kit.make("models", "ARTICLE=inference-tools", DOCKER_HOST="unix:///nowhere/docker.sock")
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode != 0 and "its weights are pickles, which are read in a container only" in error and "MODEL_PATH=" in error
    assert served.served_bytes["pytorch_model.bin"] == len(model["pytorch_model.bin"])
    assert not list(kit.models.glob("hub/*/safetensors-*"))
