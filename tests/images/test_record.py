"""`make build-all` keeps a record of what it built, and goes on where it was cut off."""

import json

import pytest

from scripts import pins
from scripts.commands import line
from scripts.images import build, inventory
from tests.images.conftest import rendered


@pytest.fixture
def build_all(kit, monkeypatch):
    """`make build-all` in a kit with one tiny backend; what the record says then."""
    rendered(kit)
    (kit / "reports").mkdir()
    load = pins.load
    monkeypatch.setattr(pins, "load", lambda root=kit: load(root))
    monkeypatch.setattr(inventory, "RECORD", str(kit / "reports/images.json"))
    monkeypatch.delenv("STACK", raising=False)
    monkeypatch.delenv("ARTICLE", raising=False)

    def run():
        line.invoke(["build", "all"])
        return json.loads((kit / "reports/images.json").read_text())

    return run


def test_the_record_holds_what_was_built_with_its_layers_and_time(build_all, kit, client, capsys):
    one = build_all()["kit-test/tiny"]
    image = pins.load().image("kit-test", "tiny")
    assert (one["pins_id"], one["id"]) == (image.pins_id, client.images.get(image.tag).id)
    assert one["seconds"] >= 0 and sum(one["layers"].values()) == client.images.get(image.tag).attrs["Size"]


def test_what_is_there_is_not_built_again_and_keeps_its_record(build_all, capsys):
    first = build_all()
    assert build_all() == first
    assert ": is already built" in capsys.readouterr().out


def test_a_build_from_the_cache_gives_the_same_image_and_keeps_the_record_too(build_all, client, capsys):
    first = build_all()
    client.images.remove(pins.load().image("kit-test", "tiny").tag, force=True)
    assert build_all() == first


def test_an_image_that_somebody_else_built_gets_a_record_without_a_time(build_all, kit, capsys):
    build.build(pins.load().image("kit-test", "tiny"))
    assert build_all()["kit-test/tiny"]["seconds"] is None
