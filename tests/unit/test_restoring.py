"""make restore, before Docker is asked: an archive folder may hold only what make archive writes."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import zstandard
from docker.errors import ImageNotFound

from scripts import pins
from scripts.errors import KitError
from scripts.images import archive, image_files, pieces, restoring
from scripts.machine import checksums

LOADED = pins.load()
STACK = "current"
OURS = [image.tag for image in LOADED.images() if image.stack == STACK]
BASE = next(image.base for image in LOADED.images() if image.stack == STACK)


def image_archive(path: Path, files: dict[str, object]) -> Path:
    """An image archive of nothing but its indexes; a value that is no JSON is the target of a link."""
    with zstandard.open(path, "wb") as compressed, tarfile.open(fileobj=compressed, mode="w|") as packed:
        for name, index in files.items():
            content = json.dumps(index).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return path


def manifest(*tags: str) -> list[dict]:
    return [{"Config": "c", "RepoTags": list(tags), "Layers": []}]


def index(*names: str) -> dict:
    return {"manifests": [{"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}} for name in names]}


def refused(path: Path) -> list[str]:
    return list(restoring.foreign_images([path], restoring.allowed(LOADED, STACK)))


def test_the_images_of_a_stack_and_their_base_are_allowed(tmp_path: Path) -> None:
    names = [f"docker.io/{tag}" for tag in OURS] + [f"docker.io/library/{BASE}"]
    assert refused(image_archive(tmp_path / "a.oci.tar.zst", {"manifest.json": manifest(*OURS, BASE), "index.json": index(*names)})) == []


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": manifest(OURS[0], "nginx:latest")},
        {"manifest.json": manifest(OURS[0]), "index.json": index("docker.io/library/nginx:latest")},
        {"manifest.json": manifest(OURS[0]), "index.json": {"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "nginx:latest"}}]}},
        {"manifest.json": manifest(OURS[0]), "repositories": {"nginx": {"latest": "0"}}},
    ],
    ids=["Docker", "OCI", "OCI without a full name", "old"],
)
def test_a_foreign_image_is_named_whichever_index_names_it(tmp_path: Path, files: dict) -> None:
    (line,) = refused(image_archive(tmp_path / "a.oci.tar.zst", files))
    assert "the image 'nginx:latest', allowed are this kit's" in line


def test_an_image_of_another_stack_is_foreign(tmp_path: Path) -> None:
    other = next(image.tag for image in LOADED.images() if image.stack == "hopper")
    (line,) = refused(image_archive(tmp_path / "a.oci.tar.zst", {"manifest.json": manifest(other)}))
    assert other in line


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "names no image"),
        ({"manifest.json": manifest(OURS[0]), "../outside": 1}, "'../outside' leads outside"),
        ({"manifest.json": {"no": "list"}}, "no image archive"),
        ({"index.json": {"manifests": "x"}}, "no image archive"),
    ],
)
def test_what_is_no_image_archive_is_named(tmp_path: Path, files: dict, words: str) -> None:
    assert any(words in line for line in refused(image_archive(tmp_path / "a.oci.tar.zst", files)))


def members(path: Path, *given: tuple[str, object], **headers: dict) -> Path:
    """An image archive of members in this order; a Path stands for a link to it."""
    with zstandard.open(path, "wb") as compressed, tarfile.open(fileobj=compressed, mode="w|", **headers) as packed:
        for name, content in given:
            entry, data = tarfile.TarInfo(name), content if isinstance(content, bytes) else json.dumps(content, default=str).encode()
            if isinstance(content, Path):
                entry.type, entry.linkname, data = tarfile.SYMTYPE, str(content), b""
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.parametrize("place", ["./manifest.json", ".//manifest.json", "manifest.json", "here/manifest.json"])
@pytest.mark.parametrize("turn", [1, -1])
def test_a_second_index_is_refused_wherever_it_lies(tmp_path: Path, place: str, turn: int) -> None:
    indexes = [("manifest.json", manifest(OURS[0])), ("here", Path(".")), (place, manifest("nginx:latest"))]
    (line,) = refused(members(tmp_path / "a.oci.tar.zst", *indexes[::turn]))
    assert "is a second index, or an index in the wrong folder" in line


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("manifest.json", '[{"RepoTags": ["OURS"], "repotags": ["nginx:latest"]}]', "the key 'repotags' in place of 'RepoTags'"),
        ("manifest.json", '[{"RepoTags": ["nginx:latest"], "RepoTags": ["OURS"]}]', "the key 'RepoTags' comes twice"),
        ("index.json", '{"manifests": [], "Manifests": [{}]}', "the key 'Manifests' in place of 'manifests'"),
        ("index.json", '{"manifests": [{"Annotations": {"io.containerd.image.name": "nginx"}}]}', "the key 'Annotations'"),
        ("manifest.json", "[" * 100_000, "recursion"),
    ],
)
def test_an_index_that_docker_reads_in_another_way_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    index = (name, text.replace("OURS", OURS[0]).encode())
    (line,) = refused(members(tmp_path / "a.oci.tar.zst", ("repositories", {OURS[0].rpartition(":")[0]: {OURS[0].rpartition(":")[2]: "0"}}), index))
    assert words in line


def test_an_index_behind_the_end_of_an_archive_or_under_a_name_for_all_members_is_refused(tmp_path: Path) -> None:
    two = tmp_path / "two"
    for tag in (OURS[0], "nginx:latest"):
        with two.open("ab") as whole:
            whole.write(members(tmp_path / "part", ("manifest.json", manifest(tag))).read_bytes())
    assert "data follow after its end" in refused(two)[0]
    renamed = members(tmp_path / "renamed", ("manifest.json", manifest(OURS[0])), format=tarfile.PAX_FORMAT, pax_headers={"comment": "all"})
    assert "headers for all members" in refused(renamed)[0]


@pytest.mark.parametrize("target", ["/etc", "../outside", "here/../../outside"])
def test_a_link_out_of_an_archive_is_refused(tmp_path: Path, target: str) -> None:
    (line,) = refused(members(tmp_path / "a.oci.tar.zst", ("manifest.json", manifest(OURS[0])), ("blobs", Path(target))))
    assert "'blobs' leads outside" in line
    inside = members(tmp_path / "b.oci.tar.zst", ("manifest.json", manifest(OURS[0])), ("layers/a", Path("../blobs/a")))
    assert refused(inside) == []


def header(name: str, size_bytes: int, kind: bytes = tarfile.REGTYPE, field: slice = slice(0), text: bytes = b"") -> bytes:
    """A header, with other bytes in a field of it."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size_bytes
    written = bytearray(entry.tobuf(tarfile.USTAR_FORMAT))
    written[field] = text
    written[148:156] = b" " * 8
    written[148:156] = b"%06o\0 " % sum(written)
    return bytes(written)


def member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return header(name, len(content), kind) + content + bytes(-len(content) % 512)


def tells(key: str, value: str) -> bytes:
    """A header that tells more of the next member."""
    record = f" {key}={value}\n"
    return member("more", f"{len(record) + 2}{record}".encode(), tarfile.XHDTYPE)


#: Data to whoever takes the member before it for a file of one block; to others a header whose content is the member behind it.
COVER = header("cover", 1024)
HIDDEN = member("manifest.json", json.dumps(manifest("nginx:latest")).encode())


@pytest.mark.parametrize(
    "behind",
    [
        tells("path", "harmless") + member("long", b"manifest.json\0", tarfile.GNUTYPE_LONGNAME) + HIDDEN,
        tells("path", "harmless") + tells("path", "manifest.json") + HIDDEN,
        tells("path", "") + HIDDEN,
        tells("size", "") + header("a", 512) + COVER + HIDDEN,
        header("a", 512, field=slice(124, 136), text=b"\0" + b"1000".zfill(11)) + COVER + HIDDEN,
        header("a/", 512, tarfile.AREGTYPE) + COVER + HIDDEN,
    ],
    ids=["long name", "two names", "no name", "no size", "NUL before the size", "old folder"],
)
def test_the_engine_gets_the_members_that_were_checked_and_no_hidden_index(tmp_path: Path, behind: bytes) -> None:
    path, got, listed = tmp_path / "a.oci.tar.zst", tmp_path / "loaded.tar", tmp_path / "listed"
    path.write_bytes(zstandard.compress(member("manifest.json", json.dumps(manifest(OURS[0])).encode()) + behind + bytes(2048)))
    if told := refused(path):  # Python 3.13 ends an archive at such a header, and sees that something is behind it
        assert told == ["a.oci.tar.zst is no image archive: data follow after its end"]
        return
    engine = Mock()
    engine.api.load_image = lambda chunks: got.write_bytes(b"".join(chunks)) * []  # it complains of nothing
    restoring._load(engine, [path])
    listed.mkdir()
    subprocess.run(["tar", "-xf", got, "-C", listed], check=True, stderr=subprocess.DEVNULL)  # a reader other than Python
    assert json.loads((listed / "manifest.json").read_text()) == manifest(OURS[0])


def test_the_engine_gets_an_archive_with_its_links_folders_and_files_as_they_are(tmp_path: Path) -> None:
    path, long, packed = tmp_path / "a.oci.tar.zst", "blobs/" + "a" * 120, io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archived:
        for name, kind, content, target in (
            ("blobs", tarfile.DIRTYPE, b"", ""),
            (long, tarfile.REGTYPE, bytes(range(256)) * 9000, ""),
            ("empty", tarfile.REGTYPE, b"", ""),
            ("manifest.json", tarfile.REGTYPE, json.dumps(manifest(OURS[0])).encode(), ""),
            ("layer.tar", tarfile.SYMTYPE, b"", long),
            ("again", tarfile.LNKTYPE, b"", long),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(content), target
            archived.addfile(entry, io.BytesIO(content))
    path.write_bytes(zstandard.compress(packed.getvalue()))
    chunks = list(restoring.packed_anew([path]))
    assert all(chunks), "an empty chunk ends a request"

    def told(data: bytes) -> list[tuple[str, bytes, int, str, bytes]]:
        with tarfile.open(fileobj=io.BytesIO(data)) as read:
            return [(one.name, one.type, one.size, one.linkname, read.extractfile(one).read() if one.isreg() else b"") for one in read]

    assert told(b"".join(chunks)) == told(packed.getvalue())


def test_an_archive_that_unpacks_to_far_more_than_an_image_does_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "SMALL_BYTES", 1 << 20)
    (line,) = refused(members(tmp_path / "zeros.oci.tar.zst", ("manifest.json", manifest(OURS[0])), ("zeros", bytes(16 << 20))))
    assert "no image archive: the archive unpacks to more than the limit of 1,048,576 bytes" in line
    random = os.urandom(2 << 20)
    assert refused(members(tmp_path / "layers.oci.tar.zst", ("manifest.json", manifest(OURS[0])), ("layer", random))) == []


def test_a_file_with_holes_whose_zeros_no_limit_counts_is_refused(tmp_path: Path) -> None:
    path, packed = tmp_path / "a.oci.tar.zst", io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archived:
        entry = tarfile.TarInfo("layer")
        entry.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 40)}
        archived.addfile(entry)
    path.write_bytes(zstandard.compress(packed.getvalue()))
    assert "its member 'layer' is sparse" in refused(path)[0]
    with pytest.raises(KitError, match="its member 'layer' is sparse"):
        next(restoring.packed_anew([path]))


def test_an_archive_of_more_members_than_any_image_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring.unpack, "MOST_MEMBERS", 3)
    three = [(name, b"") for name in "abc"]
    assert "it has more than 3 members" in refused(members(tmp_path / "a.oci.tar.zst", *three, ("manifest.json", manifest(OURS[0]))))[0]


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.oci.tar.zst").write_bytes(b"garbage")
    assert "a.oci.tar.zst is no image archive" in refused(tmp_path / "a.oci.tar.zst")[0]


def test_a_foreign_image_in_an_archive_of_pieces_is_named(tmp_path: Path) -> None:
    whole = image_archive(tmp_path / "whole", {"manifest.json": manifest(OURS[0], "nginx:latest")}).read_bytes()
    with pieces.writing(tmp_path, "a.oci.tar.zst", 50) as writer:
        writer.write(whole)
        files = writer.finish()
    assert len(files) > 1
    (line,) = restoring.foreign_images(files, restoring.allowed(LOADED, STACK))
    assert "the image 'nginx:latest'" in line


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image_archive(tmp_path / name, {"manifest.json": manifest(OURS[0])})
    digests = {name: checksums.digest_of(tmp_path / name) for name in names}
    (tmp_path / checksums.NAME).write_text(checksums.text(digests))
    return tmp_path


def test_files_beside_an_archive_that_make_archive_did_not_write_do_not_keep_it_from_being_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ["current.oci.tar.zst", "kit.tar", "tools/uv.whl", "wheels/current/torch.whl"]
    folder(tmp_path, *ours, "notes.txt", "System Volume Information/WPSettings.dat", "llm-repro/README.md", "wheels/gone/torch.whl", "gone.oci.tar.zst")
    archive.write_sums(tmp_path)
    assert list(archive.read_sums(tmp_path)) == ours
    monkeypatch.setitem(restoring.ENGINES, "docker", lambda: None)
    monkeypatch.setattr(restoring, "_restore", lambda client, files, images: [])
    restoring.restore(tmp_path)


@pytest.mark.parametrize("name", ["nope.oci.tar.zst", "below/current.oci.tar.zst", "wheels/nope/x.whl", "notes.txt"])
def test_a_file_that_make_archive_does_not_write_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KitError, match=f"holds files that `make archive` does not write, so nothing was restored:\n  {name}: neither"):
        restoring.restore(folder(tmp_path, "current.oci.tar.zst", name))


NAME = "current.oci.tar.zst"


@pytest.mark.parametrize("names", [[f"{NAME}.000", f"{NAME}.002"], [f"{NAME}.001"], [NAME, f"{NAME}.000"], [f"{NAME}.000", f"{NAME}.0000"]])
def test_pieces_that_are_no_whole_file_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(KitError, match="not the pieces of one file"):
        restoring.restore(folder(tmp_path, *names))


def test_a_piece_that_is_not_listed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path, NAME)
    image_archive(tmp_path / f"{NAME}.000", {"manifest.json": manifest("nginx:latest")})
    read = []
    monkeypatch.setitem(restoring.ENGINES, "docker", lambda: None)
    monkeypatch.setattr(restoring, "_restore", lambda client, files, images: read.extend(files) or [])
    restoring.restore(tmp_path)
    assert read == [tmp_path / NAME]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/urandom", path), lambda path: os.symlink(path, path)])
def test_a_list_of_checksums_that_is_no_file_is_one_line(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / checksums.NAME)
    with pytest.raises(KitError, match="SHA256SUMS is missing: .* holds no archive"):
        restoring.restore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(KitError, match="holds no archive"):
        restoring.restore(tmp_path / "file")


@pytest.mark.parametrize("name", ["\x1b[2Jcurrent: restored", "a\rb", "a\x1eb", "a\0b"])
def test_a_name_that_a_terminal_cannot_show_is_refused_and_not_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / checksums.NAME).write_bytes(f"{'0' * 64}  {name}\n".encode())
    with pytest.raises(KitError, match="line 1 names .* allowed are printable characters") as told:
        restoring.restore(tmp_path)
    assert name not in str(told.value)


def test_a_folder_that_lists_no_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KitError, match="lists no images, so nothing was restored"):
        restoring.restore(folder(tmp_path))


def test_of_many_files_that_are_missing_some_are_named_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / checksums.NAME).write_text(checksums.text({f"tools/{number:03d}": "0" * 64 for number in range(100)}))
    with pytest.raises(
        KitError, match="damaged, so nothing was restored:\n  tools/000: is missing(.|\n)*and 80 more\nCopy it again, or type ARCHIVES="
    ) as told:
        restoring.restore(tmp_path)
    assert str(told.value).count("is missing") == 20


@pytest.mark.parametrize("labels", [[1], "stand-in", 3])
def test_an_image_whose_labels_are_no_table_is_refused_before_its_file_is_built(tmp_path: Path, labels: object) -> None:
    def blob(content: object) -> dict[str, str]:
        data = json.dumps(content).encode()
        path = tmp_path / "blobs/sha256" / hashlib.sha256(data).hexdigest()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"digest": f"sha256:{path.name}"}

    for told in ({}, None, labels):
        manifest = blob({"config": blob({"config": {"Env": ["A=1"], "Labels": told}})})
        (tmp_path / "index.json").write_text(json.dumps({"manifests": [manifest | {"annotations": {"io.containerd.image.name": OURS[0]}}]}))
        if told is not labels:
            assert [name for name, _ in image_files._images(tmp_path)] == [OURS[0]]
    with pytest.raises(ValueError, match="its labels are no table"):
        list(image_files._images(tmp_path))


def test_a_place_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder(tmp_path, "current.oci.tar.zst")
    (tmp_path / "a" / checksums.NAME).write_text(checksums.text({"../current.oci.tar.zst": checksums.digest_of(tmp_path / "current.oci.tar.zst")}))
    with pytest.raises(KitError, match=r"damaged: line 1 names '\.\./current.oci.tar.zst'"):
        restoring.restore(tmp_path / "a")


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_device_or_a_pipe_in_an_archive_is_refused(tmp_path: Path, kind: bytes) -> None:
    path, plain = tmp_path / "a.oci.tar.zst", member("manifest.json", json.dumps(manifest(OURS[0])).encode())
    path.write_bytes(zstandard.compress(plain + header("here", 0, kind) + bytes(1024)))
    (line,) = refused(path)
    assert "its member 'here' leads outside, or is a device" in line


class Engine:
    """The ids of images by name; images without a name stay. A load gives the names `loads`; `wrong` are the ids of images that differ from their pins."""

    def __init__(self, held: dict[str, str], loads: dict[str, str], wrong: tuple[str, ...] = ()) -> None:
        self.images, self.held, self.loads, self.wrong = self, dict(held), loads, wrong
        self.ids = {*held.values(), *loads.values()}

    def get(self, name: str) -> Mock:
        if name not in self.held and name not in self.ids:
            raise ImageNotFound(name)
        image = Mock(id=self.held.get(name, name))
        image.tag = lambda tag: self.held.__setitem__(tag, image.id)
        return image

    def remove(self, name: str, force: bool) -> None:
        del self.held[name]


@pytest.fixture
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], None]:
    """Restores an archive into an engine."""

    def restore(engine: Engine) -> None:
        monkeypatch.setitem(restoring.ENGINES, "docker", lambda: engine)
        monkeypatch.setattr(restoring, "_load", lambda client, files: client.held.update(client.loads))
        monkeypatch.setattr(
            restoring.verify, "check_foreign", lambda client, image: ["idna: locked 3.6, found none"] if client.get(image.tag).id in client.wrong else []
        )
        restoring.restore(folder(tmp_path, "current.oci.tar.zst"))

    return restore


def test_images_that_hold_what_their_pins_say_keep_their_tags_and_the_base_comes_with_them(restored: Callable) -> None:
    engine = Engine({}, {OURS[0]: "new", OURS[1]: "other", BASE: "base"})
    restored(engine)
    assert engine.held == {OURS[0]: "new", OURS[1]: "other", BASE: "base"}


def test_an_image_that_differs_loses_its_tag_to_the_image_that_had_it_and_a_base_that_was_there_stays(restored: Callable) -> None:
    engine = Engine({OURS[0]: "old", BASE: "base"}, {OURS[0]: "bad", OURS[1]: "bad", OURS[2]: "new", BASE: "foreign"}, wrong=("bad",))
    with pytest.raises(KitError, match=f"and were not kept:\n  {OURS[0]}: idna: .*\n  {OURS[1]}: idna: .*\nType make build-all"):
        restored(engine)
    assert engine.held == {OURS[0]: "old", OURS[2]: "new", BASE: "base"}


@pytest.mark.parametrize("end", [KeyboardInterrupt(), KitError("the engine does not load it")])
def test_an_archive_whose_images_were_not_all_looked_at_leaves_no_tag_that_it_gave(restored: Callable, monkeypatch: pytest.MonkeyPatch, end) -> None:
    engine = Engine({OURS[1]: "old"}, {OURS[0]: "new", OURS[1]: "new"})
    engine.wrong = Mock(__contains__=Mock(side_effect=end))
    with pytest.raises(type(end)):
        restored(engine)
    assert engine.held == {OURS[1]: "old"}


def test_an_engine_that_takes_files_gets_them_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(image_files, "restore", lambda kind, files, images: built.append((kind.engine, files, [one.tag for one in images])) or [])
    restoring.restore(folder(tmp_path, "current.oci.tar.zst"), "pyxis")
    assert built == [("pyxis", [tmp_path / "current.oci.tar.zst"], OURS)]


@pytest.mark.slow  # a whole kit
def test_the_kit_is_kept_where_no_docker_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    archive.archive(tmp_path / "archives", LOADED.images(), parts=("kit",))
    assert "/kit.tar: the kit" in capsys.readouterr().out and archive.damaged(tmp_path / "archives", archive.read_sums(tmp_path / "archives")) == []
    with pytest.raises(KitError, match="no Docker answers"):
        archive.archive(tmp_path / "more", LOADED.images(), parts=("images",))
