"""The pod of `make manifest-…` by Docker in place of a cluster: the same images, programs, user, mounts and restrictions, and no network.

Needs the image of layer-parallel on the stack 2023-02, whose Python 3.8 cannot run the kit's runner.
"""

import json
import os
import subprocess

import pytest
import yaml
from docker.types import Mount

from scripts import pins
from scripts.images import build
from scripts.paths import ROOT
from scripts.run import kubernetes
from tests.images.conftest import not_tested

STACK = "2023-02"
REGISTRY = "registry.example.org/kit"
TYPED = (f"STACK={STACK}", "DEVICE=cpu", "SCALE=tiny", "WEIGHTS=random", "VARIANT=published")


def make(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(["make", "--no-print-directory", *arguments], cwd=ROOT, env=kept | environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def image(client):
    """The tag of the built image; the base image that the runner's Python comes from is there too."""
    loaded = pins.load()
    tags = loaded.image("layer-parallel", STACK).tag, loaded.images(kubernetes.RUNNER_STACK)[0].base
    for tag in tags:
        if not build.exists(client, tag):
            not_tested(f"the image {tag} is not there: type make build-layer-parallel STACK={STACK} and STACK={kubernetes.RUNNER_STACK}")
    return tags[0]


@pytest.fixture(scope="module")
def claim(image, tmp_path_factory):
    """A folder in place of the claim, with what `make archive` writes for the init container."""
    folder = tmp_path_factory.mktemp("claim")
    version = pins.load().stacks[kubernetes.RUNNER_STACK]["python"]["version"]
    done = make("archive", "ONLY=tools,kit", f"PYTHONS={version}", f"ARCHIVES={folder / 'archives'}")
    assert done.returncode == 0, done.stderr
    for name in ("models", "results"):
        (folder / name).mkdir()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 10001, 10001)  # as Kubernetes does for fsGroup
    folder.chmod(0o755)
    return folder


class Pod:
    """The pod of a manifest: `run` runs its containers one after another, as the kubelet does, until one of them fails."""

    def __init__(self, client, claim, folder):
        done = make("manifest-layer-parallel", *TYPED, f"REGISTRY={REGISTRY}")
        assert done.returncode == 0, done.stderr
        self.job = list(yaml.safe_load_all(done.stdout))[1]
        self.spec = self.job["spec"]["template"]["spec"]
        self.client = client
        self.folders = {"claim": claim, "runner": folder / "runner", "tmp": folder / "tmp"}
        for name in ("runner", "tmp"):
            self.folders[name].mkdir()
            self.folders[name].chmod(0o777)  # as the kubelet makes an emptyDir

    def run(self):
        """(exit code of the last container that ran, the output of all)."""
        output = ""
        for container in self.spec["initContainers"] + self.spec["containers"]:
            code, said = self._run(container)
            output += said
            if code:
                return code, output
        return 0, output

    def _of_stand_in(self):
        """The public image's Python looks for its library beside itself. The Python of CI's stand-in (.ci/base-image.sh) has no such path."""
        base = self.client.images.get(self.spec["initContainers"][0]["image"])
        return {"LD_LIBRARY_PATH": f"{kubernetes.RUNNER}/python/lib"} if "stand-in" in (base.labels or {}) else {}

    def _run(self, container):
        limits, user = container["securityContext"], self.spec["securityContext"]
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        mounts = [
            Mount(mount["mountPath"], str(self.folders[mount["name"]] / mount.get("subPath", "")), "bind", read_only=mount.get("readOnly", False))
            for mount in container["volumeMounts"]
            if volumes[mount["name"]].get("emptyDir", {}).get("medium") != "Memory"
        ]
        started = self.client.containers.create(
            container["image"].removeprefix(f"{REGISTRY}/"),
            container["command"],
            working_dir=container.get("workingDir"),
            environment={variable["name"]: variable["value"] for variable in container["env"]} | self._of_stand_in(),
            user=f"{user['runAsUser']}:{user['runAsGroup']}",
            read_only=limits["readOnlyRootFilesystem"],
            cap_drop=limits["capabilities"]["drop"],
            security_opt=["no-new-privileges:true"],
            network_mode="none",  # as the NetworkPolicy says
            mounts=mounts,
            shm_size="1g",
        )
        try:
            started.start()
            code = started.wait(timeout=900)["StatusCode"]
            return code, started.logs().decode(errors="replace")
        finally:
            started.remove(force=True)


def test_a_case_ends_with_a_stored_result_of_the_images_own_packages(client, claim, tmp_path):
    code, output = Pod(client, claim, tmp_path).run()
    assert code == 0, output
    (path,) = claim.glob("results/trials/runs/*/result.json")
    record = json.loads(path.read_text())
    assert record["status"] == "ok" and record["guest"]["check"]["passed"], record["reason"]
    assert record["host"]["differences"] == [] and record["host"]["pins_id"] == pins.load().image("layer-parallel", STACK).pins_id
    assert record["guest"]["environment"]["python"].startswith("3.8.")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert (record["host"]["commit"], record["host"]["engine"]) == (head, "host")


def test_a_claim_without_the_kit_ends_in_one_line_before_anything_is_measured(client, image, tmp_path):
    for name in ("archives", "models", "results"):
        (tmp_path / "claim" / name).mkdir(parents=True)
    code, output = Pod(client, tmp_path / "claim", tmp_path).run()
    assert code == 3 and output.startswith("error: the claim has no archives/kit.tar; type make archive ONLY=tools,kit") and output.count("\n") == 1


def test_a_damaged_archive_is_named(client, image, tmp_path):
    for name in ("archives", "models", "results"):
        (tmp_path / "claim" / name).mkdir(parents=True)
    (tmp_path / "claim/archives/kit.tar").write_text("damaged")
    (tmp_path / "claim/archives/SHA256SUMS").write_text(f"{'0' * 64}  kit.tar\n")
    code, output = Pod(client, tmp_path / "claim", tmp_path).run()
    assert code != 0 and "kit.tar: FAILED" in output


def test_another_commit_of_the_kit_is_refused(client, claim, tmp_path):
    pod = Pod(client, claim, tmp_path)
    for variable in pod.spec["initContainers"][0]["env"]:
        if variable["name"] == "KIT_COMMIT":
            variable["value"] = "0" * 40
    code, output = pod.run()
    assert code == 3 and f"this manifest is of {'0' * 40}" in output
