"""make manifest-<backend>: a Kubernetes Job that measures a backend's cases, as YAML from the pins.

The pod has two containers. The images of the articles hold Pythons as old as 3.8, and the runner needs 3.11. So the init container, an image
of plain Python, copies its Python, the kit and the kit's tools onto a volume of the pod. The main container is the backend's pinned image. It
runs the runner with that Python, and the runner starts each job in the image's own Python as ENGINE=host does.

Field names: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

import dataclasses
import hashlib
import json
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from scripts import results
from scripts.articles import Article
from scripts.containers import restrictions
from scripts.errors import UsageError
from scripts.images import build, offline
from scripts.machine import checksums
from scripts.paths import ROOT
from scripts.pins import Image, Pins
from scripts.run import options, plan, runner
from scripts.run.options import Options
from scripts.run.runner import Planned
from scripts.units import GIB

#: The stack whose base image has the runner's Python.
RUNNER_STACK = "current"

#: The volume claim whose folders `archives`, `models` and `results` the manifest mounts.
CLAIM = "llm-repro"

#: Where the containers see these folders, the runner and its Python.
ARCHIVES, MODELS, RESULTS, RUNNER = "/archives", "/models", "/results", "/runner"
KIT = f"{RUNNER}/{offline.FOLDER}"

#: The Python of every image of the kit.
PYTHON_OF_IMAGE = "/opt/venv/bin/python3"

#: Each row needs at most these jobs of TIMEOUT_S each: weights, reference, measurement, judge.
JOBS_OF_A_ROW = 4

#: An upper bound on the rows of a sweep until memory runs out: 12 doublings reach a batch of 4,096, and fewer halvings follow.
ROWS_OF_A_SWEEP = 24

#: Seconds for the pull of the image and the init container.
SET_UP_S = 1800

#: The longest deadline that Kubernetes allows a pod.
MOST_S = 2**31 - 1

#: Seconds between the signal that ends a pod and its kill, in which the runner ends its job.
GRACE_S = 60

SET_UP = """\
set -eu
cd {archives}
for file in {kit_tar} {sums}; do
    if [ ! -f $file ]; then
        echo "error: the claim has no archives/$file; type {archive}, and copy the folder archives into the claim" >&2
        exit 3
    fi
done
sha256sum --check --ignore-missing --quiet {sums}
mkdir {runner}/python
cp -r /usr/local/bin /usr/local/lib {runner}/python/
tar -x -f {kit_tar} -C {runner}
cd {kit}
read -r commit < .git/HEAD
case $commit in "ref: "*) read -r commit < ".git/${{commit#ref: }}" ;; esac
if [ "$commit" != "$KIT_COMMIT" ]; then
    echo "error: {kit_tar} is commit $commit, this manifest is of $KIT_COMMIT; type {archive}, or print the manifest anew" >&2
    exit 3
fi
{runner}/python/bin/python3 -m scripts.commands.tools run
"""


class _Readable(yaml.SafeDumper):
    """YAML without aliases; a text of several lines is a block of lines."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _string)


def manifest(planned: Sequence[Planned], asked: Options, loaded: Pins, reference: str, commit: str) -> str:
    """The documents as YAML: a NetworkPolicy, then the Job.

    `planned` are cases of one backend; `reference` is its image as the cluster pulls it; `commit` is the kit's. Raises UsageError for a stack without images.
    """
    image = loaded.image(planned[0].case.backend, planned[0].stack)
    if image.engine == "host":
        raise UsageError(f"STACK={image.stack} has no images, and a pod needs an image; try STACK=current")
    job = _job(image, _pod(planned, asked, loaded, image, reference, commit))
    head = (
        f"# Written by `make manifest-{image.backend}` from docker/pins.toml; docs/clusters.md explains it.\n"
        f"# Before it runs: {archive_command(loaded)}, then copy the folder archives into the claim {CLAIM}.\n"
    )
    return head + yaml.dump_all([_network_policy(), job], Dumper=_Readable, sort_keys=False, width=160)


def archive_command(loaded: Pins) -> str:
    """The command that writes the archives for the init container."""
    return f"make archive ONLY=tools,kit PYTHONS={loaded.stacks[RUNNER_STACK]['python']['version']}"


def deadline_s(planned: Sequence[Planned], asked: Options) -> int:
    """Seconds after which Kubernetes ends the pod, from when a node takes it. They suffice, because no job of the kit may take longer than TIMEOUT_S."""
    sizes = [plan.sizes_and_sized(case, asked)[0] for case in planned]
    rows = sum(ROWS_OF_A_SWEEP if isinstance(some, Mapping) else len(some) for some in sizes)
    return min(MOST_S, SET_UP_S + rows * asked.repeats * JOBS_OF_A_ROW * asked.timeout_s)


def _network_policy() -> dict[str, Any]:
    """No connection into or out of a pod of the kit, for both containers. A Job cannot say this itself."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "llm-repro-no-network"},
        "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "llm-repro"}}, "policyTypes": ["Ingress", "Egress"]},
    }


def _job(image: Image, pod: dict[str, Any]) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "llm-repro",
        "org.llm-repro.backend": image.backend,
        "org.llm-repro.stack": image.stack,
        build.PINS_LABEL: image.pins_id,
    }
    # A Job is immutable, so another pod needs another name.
    digits = hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:8]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"llm-repro-{image.backend}-{image.stack}-{digits}", "labels": labels},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def _pod(planned: Sequence[Planned], asked: Options, loaded: Pins, image: Image, reference: str, commit: str) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline_s(planned, asked),  # the Job's own would count the wait for a free node too, and remove the pod with its logs
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            **{name: restrictions.NOBODY for name in ("runAsUser", "runAsGroup", "fsGroup")},
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_set_up_container(loaded, commit)],
        "containers": [_measuring_container(planned, asked, image, reference, commit)],
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "runner", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {"sizeLimit": f"{restrictions.TMP_BYTES // GIB}Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{restrictions.for_compose()['shm_size'] // GIB}Gi"}},
        ],
    }


def _set_up_container(loaded: Pins, commit: str) -> dict[str, Any]:
    return {
        "name": "set-up",
        "image": loaded.images(RUNNER_STACK)[0].base,
        "command": ["/bin/sh", "-c", _set_up(loaded)],
        "env": [*_environment(commit), {"name": "ARCHIVES", "value": ARCHIVES}],
        "securityContext": _restricted(),
        "volumeMounts": [
            {"name": "claim", "subPath": "archives", "mountPath": ARCHIVES, "readOnly": True},
            {"name": "runner", "mountPath": RUNNER},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _measuring_container(planned: Sequence[Planned], asked: Options, image: Image, reference: str, commit: str) -> dict[str, Any]:
    gpus = runner.most_gpus(planned, asked)
    command = [f"{KIT}/.venv/bin/python", "-m", "scripts", "bench", image.backend, *_arguments(planned[0].article, image, asked)]
    return {
        "name": "measure",
        "image": reference,
        "command": [word.replace("$", "$$") for word in command],  # Kubernetes would replace $(NAME) with a variable
        "workingDir": KIT,
        "env": _environment(commit),
        **({"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}),
        "securityContext": _restricted(),
        "volumeMounts": [
            {"name": "claim", "subPath": "models", "mountPath": MODELS},
            {"name": "claim", "subPath": "results", "mountPath": RESULTS},
            {"name": "runner", "mountPath": RUNNER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _environment(commit: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in {**restrictions.ENVIRONMENT, "KIT_COMMIT": commit}.items()]


def _restricted() -> dict[str, Any]:
    """The security context of both containers: the restrictions that Compose has."""
    restricted = restrictions.for_compose()
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": restricted["read_only"],
        "capabilities": {"drop": restricted["cap_drop"]},
    }


def _set_up(loaded: Pins) -> str:
    """The program of the init container."""
    return SET_UP.format(archives=ARCHIVES, kit_tar=offline.KIT, sums=checksums.NAME, archive=archive_command(loaded), runner=RUNNER, kit=shlex.quote(KIT))


def _arguments(article: Article, image: Image, asked: Options) -> list[str]:
    """The arguments of `bench` in the pod; results lie under /results as they do here under reports."""
    runs = results.runs_for(asked.scale, asked.device, asked.engine).relative_to(ROOT / "reports")
    there = dataclasses.replace(asked, article=article.slug, stack=image.stack, engine="host", python_host=PYTHON_OF_IMAGE)
    folders = ["--models", MODELS, "--runs", posixpath.join(RESULTS, runs.as_posix())]
    return [*options.arguments(there, left_out=("models", "folder")), *folders]
