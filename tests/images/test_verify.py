"""Real tiny images, right and tampered with: `make verify-…` names what differs, `make rebuild-…` gives the same image twice."""

import docker
import pytest

from scripts import pins
from scripts.images import build, inventory, rebuild, verify
from tests.images.conftest import differing, rendered


def pins_of(image):
    return pins.load(image.folder.parents[2])


@pytest.fixture
def ours(kit):
    image = rendered(kit)
    build.build(image)
    return image


@pytest.fixture
def tampered(client: docker.DockerClient, ours):
    """Put the image's tag on one in which root ran a command."""

    def run(command: str) -> list[str]:
        container = client.containers.create(ours.tag, ["sh", "-c", f"cd /opt/venv/lib/python3*/site-packages && {command}"], user="0")
        try:
            container.start()
            assert container.wait(timeout=60)["StatusCode"] == 0
            repository, _, tag = ours.tag.partition(":")
            changed = container.commit(repository, tag, conf={"User": "bench"})
        finally:
            container.remove(force=True)
        lines = verify.verify(ours)
        client.images.remove(changed.id, force=True)
        return lines

    return run


def test_an_image_as_it_was_built_is_what_its_pins_say(ours):
    assert verify.verify(ours) == []


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("echo '# more' >> idna/core.py", "idna: idna/core.py: another hash"),
        ("rm idna/core.py", "idna: idna/core.py: missing"),
        ("echo > more.pth", "more.pth: belongs to no package"),
        ("sed -i 's/^Version: 3.6/Version: 3.7/' idna-3.6.dist-info/METADATA", "idna: locked 3.6, found 3.7"),
        ('sed -i \'s/"sha256": "c0/"sha256": "00/\' /opt/kit/archives/*.json', "idna: installed from a file with sha256 00"),
        ("printf '#!/bin/sh\\n' > /usr/local/bin/gcc-12 && chmod 755 /usr/local/bin/gcc-12", "/usr/local/bin/gcc-12: a compiler"),
        ("touch /etc/pip.conf", "/etc/pip.conf: left by the build"),
        ("sed -i '0,/^Package: netbase/s//Package: netbase-more/' /var/lib/dpkg/status", "Debian package netbase-more="),
    ],
)
def test_whatever_was_changed_afterwards_is_named(tampered, command, part):
    lines = tampered(command)
    assert any(part in line for line in lines), lines


def test_the_same_files_give_the_same_image_to_the_byte(ours, client, capsys):
    assert rebuild.rebuild(ours) == []
    *_, first, second = (line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("sha256:"))  # the last pair
    assert first == second
    assert not [tag for one in client.images.list("llm-repro/kit-test") for tag in one.tags if "rebuilt" in tag]


def test_an_image_built_without_a_cache_holds_what_the_first_build_of_it_holds(ours, client):
    again = f"{ours.tag}-again"
    build.run_buildx(ours, again, "--no-cache")
    assert differing(client, ours.tag, again) == []


def test_what_differs_between_two_images_is_listed(ours, client):
    container = client.containers.create(ours.tag, ["sh", "-c", "echo x > /opt/kit/more"], user="0")
    container.start()
    container.wait(timeout=60)
    other = container.commit("llm-repro/kit-test", "other")
    container.remove(force=True)
    lines = rebuild.compare(client, ours.tag, other.tags[0])
    assert "one has more layers than the other" in lines


def test_an_images_layers_add_up_to_its_size(ours, client):
    assert sum(inventory.layers(client, ours.tag).values()) == client.images.get(ours.tag).attrs["Size"]


def test_make_images_tells_what_is_built_and_what_is_stale(ours, client):
    first = ours.tag
    rows = {row.tag: row.state for row in inventory.listed(client, pins_of(ours))}
    assert rows[first] == "built"
    (ours.folder / "requirements.txt").write_text((ours.folder / "requirements.txt").read_text() + "# other\n")
    second = rendered(ours.folder.parents[2]).tag
    rows = {row.tag: row.state for row in inventory.listed(client, pins_of(ours))}
    assert (rows[first], rows[second]) == ("stale", "not built")
