"""Images through a real registry: pushed, removed, pulled by digest, verified."""

import shutil
import socket
import subprocess
import time

import pytest

from scripts import pins
from scripts.errors import KitError
from scripts.images import build, registry, verify
from tests.images.conftest import not_tested, rendered

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: error}}
"""


@pytest.fixture
def ours(kit, monkeypatch):
    """A tiny built image, whose kit the scripts take for their own."""
    image = rendered(kit)
    build.build(image)
    load = pins.load
    monkeypatch.setattr(pins, "load", lambda root=kit: load(root))
    return image


@pytest.fixture
def a_registry(tmp_path):
    """Debian's docker-registry on this machine."""
    program = shutil.which("docker-registry")
    if not program:
        not_tested("a registry needs the program of Debian's package docker-registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "registry.yml").write_text(CONFIG.format(folder=tmp_path / "kept", port=port))
    process = subprocess.Popen([program, "serve", str(tmp_path / "registry.yml")], stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"localhost:{port}/kit"
    process.kill()
    process.wait()


def test_a_pulled_image_is_the_one_that_was_pushed(ours, a_registry, client, tmp_path):
    digests = tmp_path / "digests.json"
    before = client.images.get(ours.tag).id
    registry.push([ours], a_registry, digests)
    assert registry.known(digests)[ours.tag].startswith("sha256:")
    client.images.remove(ours.tag, force=True)
    registry.pull([ours], a_registry, digests)
    assert client.images.get(ours.tag).id == before
    assert build.image_facts(client, ours)["digest"] == registry.known(digests)[ours.tag]
    client.images.remove(before, force=True)


def test_an_image_that_differs_from_its_lock_is_removed_again(ours, a_registry, client, tmp_path, monkeypatch):
    digests = tmp_path / "digests.json"
    registry.push([ours], a_registry, digests)
    client.images.remove(ours.tag, force=True)
    monkeypatch.setattr(verify, "differences", lambda *_: ["idna: locked 3.6, found 3.7"])
    with pytest.raises(KitError, match="differ from docker/pins.toml or do not say what they hold, and they were removed:\n.*idna: locked 3.6, found 3.7"):
        registry.pull([ours], a_registry, digests)
    assert not build.exists(client, ours.tag)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), IndexError("an image that prints nothing")])
def test_an_image_whose_check_did_not_end_keeps_no_tag(ours, a_registry, client, tmp_path, monkeypatch, end):
    digests = tmp_path / "digests.json"
    registry.push([ours], a_registry, digests)
    client.images.remove(ours.tag, force=True)

    def ends(*_):
        raise end

    monkeypatch.setattr(verify, "check", ends)
    with pytest.raises((KeyboardInterrupt, KitError)) as told:
        registry.pull([ours], a_registry, digests)
    assert not build.exists(client, ours.tag)
    assert isinstance(end, KeyboardInterrupt) or "does not say what it holds: an image that prints nothing" in str(told.value)


def test_an_image_without_a_digest_is_not_pulled_by_its_tag(ours, a_registry, client, tmp_path):
    registry.push([ours], a_registry, tmp_path / "elsewhere.json")
    with pytest.raises(KitError, match=r"digests.json has no digest of kit-test:tiny; type make push REGISTRY="):
        registry.pull([ours], a_registry, tmp_path / "digests.json")


def test_an_image_that_is_not_built_is_named(ours, a_registry, client, tmp_path):
    client.images.remove(ours.tag, force=True)
    with pytest.raises(KitError, match="not pushed, because not built: kit-test:tiny"):
        registry.push([ours], a_registry, tmp_path / "digests.json")
