"""The manifest of a Kubernetes Job: valid for Kubernetes, restricted as a container of the kit is, and from the pins."""

import importlib.metadata
import json
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from scripts import articles, pins
from scripts.commands.images import checked_registry
from scripts.commands.line import invoke
from scripts.commands.measure import options_of
from scripts.containers import restrictions
from scripts.errors import UsageError
from scripts.images import registry
from scripts.run import kubernetes, plan

#: From the oldest Kubernetes whose schemas the library holds to the newest.
VERSIONS = ("1.25", ".".join(importlib.metadata.version("kubernetes-validate").split(".")[:2]))

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TINY = {"stack": "current", "device": "cpu", "scale": "tiny", "weights": "random"}


IMAGE = "registry.example.org/kit/llm-repro/a-backend:a-tag@sha256:" + 64 * "a"


def documents(backend="layer-parallel", **typed):
    """(NetworkPolicy, Job) of a backend's cases."""
    asked = options_of(typed)
    text = kubernetes.manifest(plan.plan([backend], asked, every=False), asked, pins.load(), IMAGE, COMMIT)
    return tuple(yaml.safe_load_all(text))


def pod(*arguments, **typed):
    return documents(*arguments, **typed)[1]["spec"]["template"]["spec"]


@pytest.fixture(scope="module", params=[("deepspeed-zero", {"stack": "hopper-2023-05", "article": "deepspeed-inference"}), ("layer-parallel", TINY)])
def both(request):
    return documents(request.param[0], **request.param[1])


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_both_documents(both, version):
    for document in both:
        assert kubernetes_validate.validate(document, version, strict=True) == version


def test_the_schemas_refuse_a_field_that_kubernetes_does_not_know(both):
    both[1]["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="readOnlyRoot"):
        kubernetes_validate.validate(both[1], VERSIONS[-1], strict=True)
    del both[1]["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"]


def test_names_and_labels_have_the_letters_that_kubernetes_allows(both):
    job = both[1]
    pod_suffix = 6  # Kubernetes adds it to the name of the Job's pod
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"]) and len(job["metadata"]["name"]) + pod_suffix <= 63
    for value in job["metadata"]["labels"].values():
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", value) and len(value) <= 63


def test_every_container_is_restricted_as_a_container_of_the_kit():
    spec = pod(**TINY)
    for container in spec["initContainers"] + spec["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        given = {variable["name"]: variable["value"] for variable in container["env"]}
        assert restrictions.ENVIRONMENT.items() <= given.items()
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == restrictions.NOBODY
    assert spec["automountServiceAccountToken"] is False and spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_models_results_tmp_and_shared_memory_can_be_written_while_it_measures():
    mounts = {mount["mountPath"]: mount for mount in pod(**TINY)["containers"][0]["volumeMounts"]}
    assert {place for place, mount in mounts.items() if not mount.get("readOnly")} == {"/models", "/results", "/tmp", "/dev/shm"}
    volumes = {volume["name"]: volume for volume in pod(**TINY)["volumes"]}
    assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}


@pytest.mark.parametrize("folder", ["/results/$(KIT_COMMIT)", "/results/$$5", "/results/a 'b' \"c\": - {{d}}\nMODELS=e"])
def test_a_typed_word_reaches_the_runner_as_it_was_typed(folder):
    command = pod(**TINY | {"weights": "real", "scale": "full", "device": "cuda", "model_path": Path(folder)})["containers"][0]["command"]
    seen = [re.sub(r"\$\$|\$\(\w+\)", lambda found: "$" if found[0] == "$$" else "of Kubernetes", word) for word in command]
    assert seen[seen.index("--model-path") + 1] == folder


def test_the_policy_closes_the_network_for_the_pod():
    policy, job = documents(**TINY)
    selected, labels = policy["spec"]["podSelector"]["matchLabels"], job["spec"]["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"} and not policy["spec"].keys() & {"ingress", "egress"}


def test_the_image_has_its_digest_where_it_was_pushed(tmp_path):
    image, digests = pins.load().image("layer-parallel", "current"), tmp_path / "digests.json"
    assert registry.reference(image, "registry.example.org/kit", digests) == f"registry.example.org/kit/{image.tag}"
    digests.write_text(json.dumps({image.tag: "sha256:" + 64 * "a"}))
    assert registry.reference(image, "registry.example.org/kit", digests) == f"registry.example.org/kit/{image.tag}@sha256:{64 * 'a'}"
    assert pod(**TINY)["containers"][0]["image"] == IMAGE


def test_the_labels_name_the_pins():
    labels = documents(**TINY)[1]["metadata"]["labels"]
    image = pins.load().image("layer-parallel", "current")
    assert (labels["org.llm-repro.pins-id"], labels["org.llm-repro.stack"]) == (image.pins_id, "current")


def test_the_pod_asks_for_the_gpus_of_the_largest_case_and_for_none_on_a_cpu():
    article = articles.find("inference-tools")
    most = max(case.gpus for case in article.cases_of("deepspeed"))
    assert pod("deepspeed")["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": most}}
    in_order = documents("deepspeed", article="deepspeed-inference", cases=("pipeline-deepspeed-1", "pipeline-deepspeed-4"), device="cuda")
    assert in_order[1]["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert pod("deepspeed", gpus=4)["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert "resources" not in pod(**TINY)["containers"][0]


def test_the_kits_own_command_line_takes_the_command_of_the_pod(monkeypatch):
    """`PLAN=1` of the same arguments shows the rows that were asked for."""
    command = pod(**TINY, article="demo", cases=("bloom-layer-parallel",), repeats=5)["containers"][0]["command"]
    shown = []
    monkeypatch.setattr("builtins.print", lambda *words, **how: shown.extend(words))
    assert invoke([*command[command.index("bench") :], "--plan", "1"]) == 0
    assert "bloom-layer-parallel" in " ".join(map(str, shown)) and "5" in " ".join(map(str, shown))


def test_results_of_trials_stay_apart():
    assert pod(**TINY)["containers"][0]["command"][-1] == "/results/trials/runs"
    assert pod(stack="current")["containers"][0]["command"][-1] == "/results/runs"


def test_the_job_ends_once_and_leaves_each_job_of_the_kit_its_time():
    spec = documents(**TINY, article="demo", cases=("bloom-layer-parallel",), repeats=5, timeout_s=600)[1]["spec"]
    assert spec["backoffLimit"] == 0 and spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == 1800 + 5 * 4 * 600


def test_the_time_that_the_job_waits_for_a_free_node_does_not_count():
    assert "activeDeadlineSeconds" not in documents(**TINY)[1]["spec"], "the time limit of a Job begins when the Job is made"


def test_another_question_is_a_job_of_another_name():
    names = [documents(**TINY, article="demo", repeats=repeats)[1]["metadata"]["name"] for repeats in (1, 1, 5)]
    assert names[0] == names[1] != names[2]


def test_the_set_up_is_a_program_for_a_plain_shell():
    program = pod(**TINY)["initContainers"][0]["command"]
    assert program[:2] == ["/bin/sh", "-c"]
    assert subprocess.run(["sh", "-n", "-c", program[2]]).returncode == 0


def test_a_stack_without_images_is_refused():
    with pytest.raises(UsageError, match="STACK=demo has no images"):
        documents(**TINY | {"stack": "demo"}, article="demo")


def test_a_manifest_needs_a_registry():
    with pytest.raises(UsageError, match="REGISTRY is ''"):
        invoke(["manifest", "layer-parallel", "--stack", "current"])


def test_a_deadline_that_kubernetes_cannot_count_is_the_longest_that_it_can():
    long = options_of({**TINY, "timeout_s": 7 * 86400, "repeats": 1000})
    assert kubernetes.deadline_s(plan.plan(["layer-parallel"], long, every=False), long) == kubernetes.MOST_S == 2**31 - 1


@pytest.mark.parametrize(
    "typed", ["a..b/kit", "host/x..y", "host/kit-", "host/kit_", "host/_kit", "a_b/kit", "host//kit", "a" * 300 + "/kit", "host/Kit", "host/kit:tag", "a b"]
)
def test_a_registry_that_no_engine_could_pull_from_is_refused(typed):
    with pytest.raises(UsageError, match=r"REGISTRY is '.{1,61}', allowed is host/name"):
        checked_registry(typed)


@pytest.mark.parametrize("typed", ["localhost:5000/kit", "ghcr.io/some-one/my_kit/v1.2", "registry-1.example.org:443", "10.0.0.1:5000/a--b/c__d"])
def test_a_registry_that_engines_pull_from_is_taken(typed):
    assert checked_registry(typed) == typed
