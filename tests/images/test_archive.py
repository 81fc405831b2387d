"""Images that survive deletion: archived, removed, brought back and run; and built again from kept files, without a package index."""

import json
import subprocess
import tarfile

import pytest
import zstandard

from scripts import paths, pins
from scripts.errors import KitError, UsageError
from scripts.images import archive, build, restoring, verify
from scripts.machine import checksums
from tests.images.conftest import differing, rendered


@pytest.fixture
def ours(kit, monkeypatch):
    """A tiny built image, whose kit the scripts take for their own, and an empty archive."""
    image = rendered(kit)
    build.build(image)
    (kit / "docker/wheelhouse.Dockerfile").write_text((paths.ROOT / "docker/wheelhouse.Dockerfile").read_text())
    load = pins.load
    monkeypatch.setattr(pins, "load", lambda root=kit: load(root))
    return image


def test_an_archived_image_comes_back_after_it_was_removed(ours, kit, client, monkeypatch):
    archive.archive(kit / "archives", [ours], ("images",))
    before = client.images.get(ours.tag).id
    with zstandard.open(kit / "archives/tiny.oci.tar.zst") as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.name in ("oci-layout", "index.json")}
    assert json.loads(files["oci-layout"])["imageLayoutVersion"] == "1.0.0" and "index.json" in files
    assert subprocess.run(["sha256sum", "--check", "--quiet", checksums.NAME], cwd=kit / "archives").returncode == 0
    client.images.remove(ours.tag, force=True)
    restoring.restore(kit / "archives")
    assert client.images.get(ours.tag).id == before
    assert "idna" in build.ask(client, ours.tag)["packages"]


def test_an_archive_in_pieces_comes_back(ours, kit, client, monkeypatch):
    before = client.images.get(ours.tag).id
    archive.archive(kit / "archives", [ours], ("images",), piece_bytes=20_000_000)
    files = [path for path in (kit / "archives").iterdir() if path.name.startswith("tiny.oci")]
    assert len(files) > 1 and max(path.stat().st_size for path in files) == 20_000_000
    client.images.remove(ours.tag, force=True)
    restoring.restore(kit / "archives")
    assert client.images.get(ours.tag).id == before


@pytest.mark.parametrize("change", ["write", "remove"])
def test_a_damaged_archive_restores_nothing_and_says_which_file(ours, kit, client, monkeypatch, change):
    archive.archive(kit / "archives", [ours], ("images",))
    client.images.remove(ours.tag, force=True)
    path = kit / "archives/tiny.oci.tar.zst"
    if change == "remove":
        path.unlink()
    else:
        with path.open("r+b") as stream:
            stream.seek(path.stat().st_size // 2)
            stream.write(b"damaged")
    with pytest.raises(KitError, match=r"tiny.oci.tar.zst: (has another checksum|is missing)"):
        restoring.restore(kit / "archives")
    assert not build.exists(client, ours.tag)


def archive_again(kit):
    """What everybody can do who changes an archive."""
    archive.write_sums(kit / "archives")


def saved(kit, *tags):
    """An archive of these images, as `make archive` would have written it."""
    done = subprocess.run(["docker", "save", *tags], capture_output=True, check=True)
    (kit / "archives/tiny.oci.tar.zst").write_bytes(zstandard.compress(done.stdout))


def test_a_bare_image_under_a_pinned_tag_is_refused_and_the_tag_goes_back_to_what_had_it(ours, kit, client, image):
    before = client.images.get(ours.tag).id
    (kit / "archives").mkdir()
    client.images.get(image).tag(ours.tag)
    saved(kit, ours.tag)
    client.images.get(before).tag(ours.tag)
    archive_again(kit)
    with pytest.raises(
        KitError, match=r"these images differ from their pins and locks, and were not kept:\n  llm-repro/kit-test:tiny-.*idna: locked 3.6, found none"
    ):
        restoring.restore(kit / "archives")
    assert client.images.get(ours.tag).id == before


def test_a_bare_image_under_a_tag_that_nothing_had_leaves_no_tag(ours, kit, client, image):
    (kit / "archives").mkdir()
    client.images.remove(ours.tag, force=True)
    client.images.get(image).tag(ours.tag)
    saved(kit, ours.tag)
    client.images.remove(ours.tag)
    archive_again(kit)
    with pytest.raises(KitError, match="were not kept"):
        restoring.restore(kit / "archives")
    assert not build.exists(client, ours.tag) and build.exists(client, image)


def test_an_archive_that_fails_while_it_is_loaded_leaves_no_tag_that_it_gave(ours, kit, client, monkeypatch):
    archive.archive(kit / "archives", [ours], ("images",))
    client.images.remove(ours.tag, force=True)
    load = restoring._load

    def fails(*arguments):
        load(*arguments)
        raise KitError("the engine does not load it: truncated layer")

    monkeypatch.setattr(restoring, "_load", fails)
    with pytest.raises(KitError, match="truncated layer"):
        restoring.restore(kit / "archives")
    assert not build.exists(client, ours.tag)


def test_ctrl_c_while_an_image_is_verified_leaves_no_tag(ours, kit, client, monkeypatch):
    archive.archive(kit / "archives", [ours], ("images",))
    client.images.remove(ours.tag, force=True)

    def ends(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "check", ends)
    with pytest.raises(KeyboardInterrupt):
        restoring.restore(kit / "archives")
    assert not build.exists(client, ours.tag)


def test_a_foreign_tag_beside_the_kit_s_is_refused_before_anything_is_loaded(ours, kit, client, image):
    (kit / "archives").mkdir()
    client.images.get(image).tag("llm-repro-foreign:latest")
    try:
        saved(kit, ours.tag, "llm-repro-foreign:latest")
    finally:
        client.images.remove("llm-repro-foreign:latest")
    client.images.remove(ours.tag, force=True)
    archive_again(kit)
    with pytest.raises(KitError, match="tiny.oci.tar.zst holds the image 'llm-repro-foreign:latest', allowed are this kit's"):
        restoring.restore(kit / "archives")
    assert not build.exists(client, ours.tag) and not build.exists(client, "llm-repro-foreign:latest")


def test_an_image_that_is_not_built_is_named_and_the_others_are_kept(ours, kit, client, monkeypatch):
    client.images.remove(ours.tag, force=True)
    with pytest.raises(KitError, match="not in the archive, because not built: kit-test:tiny"):
        archive.archive(kit / "archives", [ours], ("images",))


def test_kept_files_build_the_same_image_without_an_index(ours, kit, client, monkeypatch):
    archive.archive(kit / "archives", [ours], ("wheels",))
    assert [path.name for path in (kit / "archives/wheels/tiny").iterdir()] == ["idna-3.6-py3-none-any.whl"]
    before = f"{ours.tag}-before"
    client.images.get(ours.tag).tag(before)
    client.images.remove(ours.tag)
    wheels = kit / "archives/wheels/tiny"
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "")
    build.run_buildx(ours, ours.tag, "--no-cache", "--network=none", wheels=wheels)
    assert differing(client, before, ours.tag) == []
    assert [path.name for path in (kit / "archives/wheels").iterdir()] == ["tiny"]


def test_a_folder_without_an_archive_says_what_to_type(tmp_path):
    with pytest.raises(KitError, match="holds no archive; type make archive, or ARCHIVES="):
        restoring.restore(tmp_path)


def test_an_empty_folder_of_wheels_is_refused(ours, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="WHEELS is .* which holds no files"):
        build.run_buildx(ours, ours.tag, wheels=tmp_path / "empty")
