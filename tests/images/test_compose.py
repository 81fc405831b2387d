"""compose.yaml: Docker Compose accepts it, and a service of it may do what a job may, and no more."""

import json
import os
import shutil
import subprocess

import pytest

from scripts import paths, pins
from scripts.containers import container
from scripts.containers.restrictions import Folders
from tests.images.conftest import not_tested

LOOK = r"""
import json, os, re
status = dict(re.findall(r"^(\w+):\s+(.*)$", open("/proc/self/status").read(), re.M))
size = lambda path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize
wanted = ("HOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM")
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "capabilities": status["CapBnd"], "no_new_privileges": status["NoNewPrivs"],
    "interfaces": os.listdir("/sys/class/net"), "cwd": os.getcwd(), "environment": {name: os.environ.get(name) for name in wanted},
    "read_only": [p for p in ("/", "/kit/bench", "/models", "/tmp") if os.statvfs(p).f_flag & os.ST_RDONLY],
    "tmp_bytes": size("/tmp"), "first_process": open("/proc/1/comm").read().strip(),
}))
"""


def compose(*arguments, **environment):
    return subprocess.run(["docker", "compose", *arguments], cwd=paths.ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module", autouse=True)
def plugin():
    if not shutil.which("docker"):
        not_tested("there is no docker program: install docker.io, or Docker's own docker-ce-cli")
    if compose("version").returncode != 0:
        not_tested("`docker compose` is missing: install the package docker-compose-plugin (on Debian docker-compose)")


def test_compose_accepts_the_file_and_knows_every_image():
    done = compose("config", "--services")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {f"{image.backend}-{image.stack}" for image in pins.load().images()}


def test_a_service_has_the_restrictions_of_a_run(client, image, tmp_path):
    service = "layer-parallel-current"
    override = tmp_path / "override.yaml"  # another image, and no GPU, which a machine may lack
    override.write_text(f"services:\n  {service}:\n    image: {image}\n    deploy: !reset null\n")
    (tmp_path / "models").mkdir()
    done = compose("-f", "compose.yaml", "-f", str(override), "run", "--rm", "-T", service, "python3", "-c", LOOK, MODELS=str(tmp_path / "models"))
    assert done.returncode == 0, done.stderr
    lines = []
    (tmp_path / "work").mkdir()
    folders = Folders(tmp_path / "work", paths.ROOT / "bench", tmp_path / "models")
    container.run(client, image, ["python3", "-c", LOOK], run_id="compose", folders=folders, timeout_s=60, on_line=lines.append)
    by_hand, by_runner = json.loads(done.stdout.splitlines()[-1]), json.loads(lines[-1])
    if os.getuid() != 0:  # a user's job runs as that user
        by_runner |= {"uid": by_hand["uid"], "gid": by_hand["gid"]}
    assert by_hand == by_runner
    assert by_hand["read_only"] == ["/", "/kit/bench", "/models"] and by_hand["no_new_privileges"] == "1"
