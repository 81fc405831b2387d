"""scripts/images/registry.py with an engine that notes what it is asked for: which digests are pulled, which images get their tag, what is noted."""

import json
import types

import pytest
from docker.errors import DockerException, ImageNotFound

from scripts import pins
from scripts.errors import KitError
from scripts.images import registry, verify

FIRST, SECOND = pins.load().images("hopper")[:2]
REGISTRY, DIGESTS = "localhost:5000/kit", {FIRST.tag: f"sha256:{'a' * 64}", SECOND.tag: f"sha256:{'b' * 64}"}


class Engine:
    """Holds images by name. `refused` are the names, as they are pulled, of images that differ from their pins."""

    def __init__(self, *held: str) -> None:
        self.images = self.api = self
        self.held, self.asked, self.refused = set(held), [], set()

    def get(self, name):
        if name not in self.held:
            raise ImageNotFound(name)
        return types.SimpleNamespace(tag=lambda repository, tag: self.held.add(f"{repository}:{tag}"))

    def pull(self, repository, digest, stream, decode):
        self.asked.append(f"{repository}@{digest}")
        self.held.add(f"{repository}@{digest}")
        return iter([{"status": "pulled"}])

    def push(self, repository, tag, stream, decode):
        assert f"{repository}:{tag}" in self.held
        self.asked.append(f"{repository}:{tag}")
        return iter([{"status": "pushed"}, {"aux": {"Digest": DIGESTS[f"{repository.removeprefix(REGISTRY + '/')}:{tag}"]}}, {"status": "done"}])

    def remove(self, name, force=False, noprune=False):
        self.held.remove(name)


@pytest.fixture
def engine(monkeypatch):
    def start(*held: str) -> Engine:
        started = Engine(*held)
        monkeypatch.setattr(registry, "connect", lambda: started)
        monkeypatch.setattr(verify, "check_foreign", lambda client, image, name: ["idna: locked 3.6, found none"] if name in started.refused else [])
        return started

    return start


def pulled_name(image):
    return f"{REGISTRY}/{image.tag.rpartition(':')[0]}@{DIGESTS[image.tag]}"


@pytest.fixture
def noted(tmp_path):
    path = tmp_path / "digests.json"
    path.write_text(json.dumps(DIGESTS))
    return path


def test_an_image_is_pulled_by_its_digest_and_gets_the_kit_s_tag(engine, noted, capsys):
    docker = engine()
    registry.pull([FIRST, SECOND], REGISTRY, noted)
    assert docker.asked == [pulled_name(FIRST), pulled_name(SECOND)]
    assert docker.held == {FIRST.tag, SECOND.tag, pulled_name(FIRST), pulled_name(SECOND)}
    assert f"{FIRST.tag}: pulled, and holds what its lock says\n" in capsys.readouterr().out


def test_an_image_that_is_there_is_not_pulled(engine, noted):
    docker = engine(FIRST.tag)
    registry.pull([FIRST, SECOND], REGISTRY, noted)
    assert docker.asked == [pulled_name(SECOND)]


def test_an_image_that_differs_is_removed_and_named_and_keeps_no_other_back(engine, noted, capsys):
    docker = engine()
    docker.refused.add(pulled_name(FIRST))
    words = rf"they were removed:\n  {FIRST.tag}: idna: locked 3.6, found none\nType make push .* make build-{FIRST.backend} STACK=hopper\.$"
    with pytest.raises(KitError, match=words):
        registry.pull([FIRST, SECOND], REGISTRY, noted)
    assert docker.held == {SECOND.tag, pulled_name(SECOND)}
    assert f"{FIRST.tag}: 1 difference, removed\n" in capsys.readouterr().out


def test_an_image_without_a_digest_is_named_after_the_others_are_there(engine, noted):
    noted.write_text(json.dumps({SECOND.tag: DIGESTS[SECOND.tag]}))
    docker = engine()
    with pytest.raises(KitError, match=f"^digests.json has no digest of {FIRST.name}; type make push "):
        registry.pull([FIRST, SECOND], REGISTRY, noted)
    assert docker.asked == [pulled_name(SECOND)] and SECOND.tag in docker.held


def test_pushed_images_are_noted_beside_earlier_ones_and_those_that_are_not_built_are_named(engine, tmp_path):
    path, earlier = tmp_path / "digests.json", {"llm-repro/int8:hopper-0": f"sha256:{'c' * 64}"}
    path.write_text(json.dumps(earlier))
    docker = engine(SECOND.tag)
    with pytest.raises(KitError, match=f"^not pushed, because not built: {FIRST.name}; type make build-all"):
        registry.push([FIRST, SECOND], REGISTRY, path)
    assert registry.known(path) == earlier | {SECOND.tag: DIGESTS[SECOND.tag]}
    assert path.read_text() == json.dumps(earlier | {SECOND.tag: DIGESTS[SECOND.tag]}, indent=1, sort_keys=True) + "\n", "in an order of its own"
    assert docker.asked == [f"{REGISTRY}/{SECOND.tag}"] and docker.held == {SECOND.tag}, "the registry's name for the image is gone again"


def test_the_first_push_makes_the_file(engine, tmp_path):
    engine(FIRST.tag)
    registry.push([FIRST], REGISTRY, tmp_path / "digests.json")
    assert registry.known(tmp_path / "digests.json") == {FIRST.tag: DIGESTS[FIRST.tag]}


def test_a_push_that_the_engine_breaks_off_is_one_line_and_notes_nothing(engine, tmp_path, monkeypatch):
    def broken(repository, tag, stream, decode):
        raise DockerException("connection reset\nby the registry")

    docker = engine(FIRST.tag)
    monkeypatch.setattr(docker, "push", broken, raising=False)
    with pytest.raises(KitError, match=f"^{REGISTRY} refused {FIRST.tag}: connection reset; look at the registry and type make push again$"):
        registry.push([FIRST], REGISTRY, tmp_path / "digests.json")
    assert docker.held == {FIRST.tag} and not (tmp_path / "digests.json").exists()


def test_an_engine_pulls_an_image_of_a_manifest_by_its_digest_where_it_is_known(noted, tmp_path):
    assert registry.reference(FIRST, REGISTRY, noted) == f"{REGISTRY}/{FIRST.tag}@{DIGESTS[FIRST.tag]}"
    assert registry.reference(FIRST, REGISTRY, tmp_path / "none.json") == f"{REGISTRY}/{FIRST.tag}"
