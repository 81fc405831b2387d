"""Images built for real by scripts/images/build.py: a tiny one of the generated kind, right and wrong."""

import concurrent.futures

import pytest

from scripts.errors import KitError
from scripts.images import build
from tests.images.conftest import LOCK, rendered


def test_an_image_is_built_once_and_tells_where_it_comes_from(kit, client, image):
    ours = rendered(kit)
    assert build.build(ours) is True
    assert build.build(ours) is False
    facts = build.image_facts(client, ours)
    stand_in = client.images.get(image).labels.get("stand-in") == "true"
    assert (facts["tag"], facts["pins_id"], facts["stand_in"]) == (ours.tag, ours.pins_id, stand_in)
    found = client.images.get(ours.tag)
    assert found.labels["org.llm-repro.backend"] == "kit-test"
    assert found.labels["org.llm-repro.pins-id"] == ours.pins_id
    assert found.attrs["Config"]["User"] == "bench"
    assert build.ask(client, ours.tag)["packages"]["idna"] == "3.6"
    assert not [tag for tag in found.tags if "unchecked" in tag]


def test_two_builds_of_one_image_at_once_are_one(kit, client):
    ours = rendered(kit)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(build.build, [ours, ours])) == [False, True]
    assert [tag for tag in client.images.get(ours.tag).tags if "kit-test" in tag] == [ours.tag]


def test_certificates_and_settings_of_the_building_machine_leave_no_trace(kit, client):
    ours = rendered(kit)
    build.build(ours)
    looked = client.containers.run(ours.tag, ["sh", "-c", "ls /etc/pip.conf /run/secrets 2>/dev/null || true"], remove=True)
    assert looked == b""


def test_an_image_that_holds_something_else_gets_no_tag(kit, client):
    path = kit / "docker/pins.toml"
    path.write_text(path.read_text().replace("arch_list = []", 'arch_list = ["sm_99"]'))
    ours = rendered(kit)
    with pytest.raises(KitError, match="architectures of torch: pinned sm_99, found none"):
        build.build(ours)
    assert not client.images.list("llm-repro/kit-test")


def test_a_file_with_another_hash_fails_the_build_with_its_last_lines(kit, client):
    (kit / "docker/kit-test/tiny/requirements.txt").write_text(LOCK.replace("c0556", "00000"))
    with pytest.raises(KitError, match="DO NOT MATCH THE HASHES"):
        build.build(rendered(kit))
    assert not client.images.list("llm-repro/kit-test")


def test_a_stale_dockerfile_is_not_built(kit):
    ours = rendered(kit)
    with (ours.folder / "Dockerfile").open("a") as file:
        file.write("# by hand\n")
    with pytest.raises(KitError, match="Dockerfile is not what docker/pins.toml gives: type `make lock render`"):
        build.build(ours)


def test_an_image_that_is_not_there_says_how_to_build_it(kit, client):
    with pytest.raises(KitError, match="type `make build-kit-test STACK=tiny`"):
        build.image_facts(client, rendered(kit))
