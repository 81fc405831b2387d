"""scripts/images/inventory.py and scripts/images/rebuild.py without Docker: what is shared is counted once, and what differs is named."""

import datetime
import io
import json
import signal
import tarfile
import types

import pytest
from click.testing import CliRunner
from docker.errors import ImageNotFound

from scripts import pins
from scripts.commands.line import command_line
from scripts.errors import KitError
from scripts.images import archive, build, inventory, rebuild, registry, restoring, sbom, verify


def test_a_layer_that_two_images_have_is_counted_once():
    own, total = inventory.unique_bytes({"a": {"base": 100, "torch": 50, "one": 3}, "b": {"base": 100, "torch": 50, "two": 4}, "c": {"base": 100}})
    assert own == {"a": 3, "b": 4, "c": 0}
    assert total == 157


def test_an_image_that_is_not_checked_yet_is_not_among_the_kit_s():
    loaded = pins.load()
    tag = loaded.image("int8", "2023-02").tag
    held = [
        types.SimpleNamespace(tags=[tag]),
        types.SimpleNamespace(tags=[f"{tag}{inventory.UNCHECKED}0"]),
        types.SimpleNamespace(tags=["llm-repro/int8:old-0"]),
    ]
    client = types.SimpleNamespace(images=types.SimpleNamespace(list=lambda _: held))
    rows = [(row.tag, row.state) for row in inventory.listed(client, loaded) if row.image]
    assert sorted(rows) == sorted([(tag, "built"), ("llm-repro/int8:old-0", "stale")])
    lacking = [row.tag for row in inventory.listed(client, loaded) if row.state == "not built"]
    assert lacking == [image.tag for image in loaded.images() if image.tag != tag]


def test_an_age_is_in_its_largest_unit():
    now = datetime.datetime(2026, 1, 10, 12, 0, tzinfo=datetime.UTC)
    assert inventory.age("2026-01-08T12:00:00.123456789Z", now) == "2 days"
    assert inventory.age("2026-01-10T11:00:00Z", now) == "1 hour"
    assert inventory.age("2026-01-10T11:59:50Z", now) == "now"


def test_the_age_of_an_image_that_was_restored_is_unknown():
    now = datetime.datetime(2026, 1, 10, 12, 0, tzinfo=datetime.UTC)
    assert inventory.age("0001-01-01T00:00:00Z", now) == "unknown"


def test_steps_of_a_history_without_a_layer():
    assert [
        bool(inventory.NO_LAYER.match(step)) for step in ("ENV A=1", '/bin/sh -c #(nop)  CMD ["python3"]', "RUN |1 A=1 /bin/sh -c true", "WORKDIR /kit", "")
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_record_as_a_table_says_what_is_stale_and_what_is_missing(tmp_path):
    loaded = pins.load()
    image = loaded.image("int8", "2023-02")
    (tmp_path / "reports").mkdir()
    one = {
        "pins_id": "0" * 12,
        "built": "2026-01-01",
        "seconds": 60,
        "id": "sha256:1",
        "base": image.base,
        "stand_in": True,
        "layers": {"a": 1_900_000_000, "b": 100_000_000},
    }
    (tmp_path / inventory.RECORD).write_text(json.dumps({"int8/2023-02": one}))
    lines = inventory.record_lines(pins.Pins(tmp_path, loaded.host, loaded.stacks, loaded.shared, loaded.backends))
    assert lines[2] == f"| int8:2023-02 | 2026-01-01 | {'0' * 12} (stale) | 60 | 2.00 | 2.00 | {image.base} (stand-in) |"
    assert "All 1 together: 2.0 GB, of which 1.9 GB are torch" in lines[-1] and "Not in this record: transformers:2023-02" in lines[-1]


def test_whoever_reads_the_record_while_a_build_is_written_into_it_reads_the_earlier_one_whole(tmp_path, monkeypatch):
    image, path = pins.load().image("int8", "2023-02"), tmp_path / inventory.RECORD
    docker = types.SimpleNamespace(images={image.tag: types.SimpleNamespace(id="sha256:1", labels={})})
    path.parent.mkdir()
    path.write_text("{}")
    monkeypatch.setattr(inventory, "layers", lambda client, tag: {"a": 1})
    with path.open() as reader:
        inventory.record(docker, image, 60.0, tmp_path)
        assert reader.read() == "{}"
    assert inventory.recorded(tmp_path)["int8/2023-02"]["layers"] == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n{}", "[]", '{"int8/2023-02": {"id": "sha256:1"}}', '{"int8/2023-02": 1}'])
def test_a_record_that_a_merge_has_damaged_is_one_line_that_says_what_to_type(tmp_path, text):
    (tmp_path / "reports").mkdir()
    (tmp_path / inventory.RECORD).write_text(text)
    with pytest.raises(KitError, match=r"^reports/images.json is damaged \(.*\); type git checkout reports/images.json$"):
        inventory.recorded(tmp_path)


def layer(*folders, **files):
    """{path: fields} of a layer with these folders and files, as rebuild reads it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in folders:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        for name, (content, date) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), date
            tar.addfile(info, io.BytesIO(content))
    stream.seek(0)
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        return {one.name: rebuild.entry(tar, one) for one in tar}


def test_two_layers_that_differ_are_told_apart_entry_by_entry():
    one, other = (
        layer(same=(b"x", 1), dated=(b"x", 1), written=(b"x", 1), gone=(b"x", 1)),
        layer(same=(b"x", 1), dated=(b"x", 2), written=(b"y", 1), new=(b"x", 1)),
    )
    assert rebuild.layer_differences(one, other) == ["dated: date", "gone: only in the first", "new: only in the second", "written: content"]
    assert rebuild.layer_differences(one, one) == []


def test_the_order_of_a_layer_counts_too():
    assert rebuild.layer_differences(layer(a=(b"", 1), b=(b"", 1)), layer(b=(b"", 1), a=(b"", 1))) == ["the same entries in another order"]


def test_a_folder_that_a_layer_lists_without_a_change_in_it_is_told_apart_from_one_that_holds_something():
    one, other = layer("etc"), layer("etc", "run", "opt", **{"opt/new": (b"x", 1), "runner": (b"x", 1)})
    assert rebuild.layer_differences(one, other) == [
        "opt: only in the second",
        "opt/new: only in the second",
        "run: only in the second, a folder without a change in it",
        "runner: only in the second",
    ]
    assert rebuild.layer_differences(layer("run"), layer()) == ["run: only in the first, a folder without a change in it"]


@pytest.mark.parametrize(("folders", "files", "last"), [(40, 0, None), (42, 0, "and 2 more, each a folder without a change in it"), (41, 1, "and 2 more")])
def test_forty_entries_of_a_layer_are_listed_and_the_others_counted(folders: int, files: int, last: str | None) -> None:
    other = layer(*(f"folder-{number:02}" for number in range(folders)), **{f"written-{number}": (b"x", 1) for number in range(files)})
    lines = rebuild.layer_differences(layer(), other)
    assert (len(lines), lines[-1]) == ((41, last) if last else (40, "folder-39: only in the second, a folder without a change in it"))


class Saved:
    """An image of one layer."""

    def __init__(self, name: str) -> None:
        self.id, self.attrs = name, {"Config": {}, "RootFS": {"Layers": [f"sha256:{name}"]}}


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (dict, "layer 1, the bytes differ, but all entries have equal type, mode, owner, group, date, size, link, content"),
        (iter([None, {}]).__next__, "layer 1, not compared: `docker save` writes no file with the name of the layer's digest"),
        (iter([{}, None]).__next__, "layer 1, not compared: `docker save` writes no file with the name of the layer's digest"),
        (lambda: None, "layer 1, not compared: `docker save` writes no file with the name of the layer's digest"),
    ],
)
def test_a_layer_with_another_digest_is_told_even_where_its_entries_are_equal(monkeypatch, found, line):
    monkeypatch.setattr(rebuild, "entries", lambda tag, digest: found())
    client = types.SimpleNamespace(images=types.SimpleNamespace(get=Saved))
    assert rebuild.compare(client, "one", "two") == [line]
    assert rebuild.compare(client, "one", "one") == []


def image(identity, configuration, *layers):
    return types.SimpleNamespace(id=identity, attrs={"Config": configuration, "RootFS": {"Layers": list(layers)}})


def compared(monkeypatch, one, two, contents=None):
    """The differences between two images; `contents` are {(tag, digest): entries}, and no other layer may be read."""
    monkeypatch.setattr(rebuild, "entries", lambda tag, digest: (contents or {})[tag, digest])
    held = {"one": one, "two": two}
    return rebuild.compare(types.SimpleNamespace(images=types.SimpleNamespace(get=held.get)), "one", "two")


def test_two_images_are_told_apart_by_their_configuration(monkeypatch):
    one, two = image("1", {"Env": ["A=1"], "User": "kit", "Cmd": []}, "sha256:a"), image("2", {"Env": ["A=2"], "User": "kit", "Labels": {}}, "sha256:a")
    assert compared(monkeypatch, one, two) == ["configuration, Cmd: [] | None", "configuration, Env: ['A=1'] | ['A=2']", "configuration, Labels: None | {}"]


def test_the_layers_of_two_images_that_differ_are_read_and_no_other(monkeypatch):
    contents = {("one", "sha256:b"): layer(file=(b"x", 1)), ("two", "sha256:c"): layer(file=(b"y", 1))}
    one, two = image("1", {}, "sha256:a", "sha256:b"), image("2", {}, "sha256:a", "sha256:c", "sha256:d")
    assert compared(monkeypatch, one, two, contents) == ["layer 2, file: content", "one has more layers than the other"]


def test_two_images_of_the_same_layers_and_configuration_differ_in_their_history(monkeypatch):
    one, two = image("1", {"User": "kit"}, "sha256:a"), image("2", {"User": "kit"}, "sha256:a")
    assert compared(monkeypatch, one, two) == ["all layers are equal, but the history or the date of creation differs"]


def test_a_layer_is_read_from_the_image_as_docker_saves_it(monkeypatch, tmp_path):
    def archive_of(**files):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name.replace("__", "/"))
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return stream.getvalue()

    (tmp_path / "saved.tar").write_bytes(archive_of(**{"blobs__sha256__aa": archive_of(other=b"x"), "blobs__sha256__bb": archive_of(opt__kit=b"y")}))
    (tmp_path / "docker").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked; exec cat {tmp_path}/saved.tar\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert rebuild.entries("kit:1", "sha256:bb") == layer(**{"opt/kit": (b"y", 0)})
    assert rebuild.entries("kit:1", "sha256:cc") is None
    assert (tmp_path / "asked").read_text() == "save kit:1\n"


class Images:
    """The images of a Docker that holds those which were built."""

    def __init__(self) -> None:
        self.images, self.held, self.id = self, [], "sha256:0"

    def get(self, tag):
        assert tag in self.held
        return self

    def remove(self, tag, force):
        if tag not in self.held:
            raise ImageNotFound(tag)
        self.held.remove(tag)


LEFT_OUT = f"layer 2, run: only in the first, {rebuild.UNCHANGED}"


@pytest.mark.parametrize(
    ("pairs", "built", "lines"),
    [
        ([[]], 1, []),
        ([["layer 1, a: content"]], 1, ["layer 1, a: content"]),
        ([[LEFT_OUT, "layer 1, a: content"]], 1, [LEFT_OUT, "layer 1, a: content"]),
        ([[LEFT_OUT], []], 2, []),
        ([[LEFT_OUT]] * 3, 3, [LEFT_OUT]),
    ],
)
def test_a_pair_of_builds_that_differs_in_folders_left_out_alone_is_made_again_twice_at_most(monkeypatch, capsys, pairs, built, lines):
    docker, answers, typed = Images(), iter(pairs), []

    def run_buildx(image, tag, *options, wheels):
        typed.append((tag, options, wheels))
        docker.held = sorted({*docker.held, tag})

    monkeypatch.setattr(rebuild, "connect", lambda: docker)
    monkeypatch.setattr(build, "run_buildx", run_buildx)
    monkeypatch.setattr(rebuild, "compare", lambda client, first, second: next(answers))
    one = pins.load().image("int8", "2023-02")
    tags = [f"{one.tag}-rebuilt-1", f"{one.tag}-rebuilt-2"]
    assert rebuild.rebuild(one, "wheels") == lines
    assert typed == [(tag, ("--no-cache",), "wheels") for tag in tags] * built
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("sha256:")] == [f"sha256:0  {tag}" for tag in tags] * built
    assert docker.held == []


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rebuild_whose_build_fails_leaves_no_image_and_tells_why(monkeypatch, failing):
    docker = Images()

    def run_buildx(image, tag, *options, wheels):
        if len(docker.held) + 1 == failing:
            raise KitError("was not built")
        docker.held.append(tag)

    monkeypatch.setattr(rebuild, "connect", lambda: docker)
    monkeypatch.setattr(build, "run_buildx", run_buildx)
    with pytest.raises(KitError, match="was not built"):
        rebuild.rebuild(pins.load().image("int8", "2023-02"))
    assert docker.held == []


@pytest.fixture
def unheeded():
    """Within the test a signal that no command answers does nothing: by default it would end the tests."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("unheeded")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("verb", "module", "name"),
    [
        (("build", "int8"), build, "build"),
        (("verify", "int8"), verify, "verify"),
        (("rebuild", "int8"), rebuild, "rebuild"),
        (("sbom", "int8"), sbom, "write"),
        (("archive",), archive, "archive"),
        (("restore",), restoring, "restore"),
        (("push", "--registry", "a/b"), registry, "push"),
        (("pull", "--registry", "a/b"), registry, "pull"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_verb_of_images_that_is_ended_by_a_signal_first_clears_up(monkeypatch, verb, module, name, number):
    cleared = []

    def work(*_):
        try:
            signal.raise_signal(number)
        finally:
            cleared.append("cleared")
        cleared.append("went on")

    monkeypatch.setattr(module, name, work)
    done = CliRunner().invoke(command_line, verb)
    assert (done.exit_code, cleared) == (128 + number, ["cleared"]), done.output


LEFT_OUT = ["layer 5, etc: only in the second, a folder without a change in it", "layer 5, run: only in the second, a folder without a change in it"]
OTHER = ["layer 5, etc/passwd: date"]


@pytest.mark.parametrize(
    ("pairs", "answer"),
    [
        ([[]], []),
        ([OTHER], OTHER),
        ([[*LEFT_OUT, *OTHER]], [*LEFT_OUT, *OTHER]),
        ([LEFT_OUT, []], []),
        ([LEFT_OUT, LEFT_OUT, []], []),
        ([LEFT_OUT, OTHER], OTHER),
        ([LEFT_OUT, LEFT_OUT, LEFT_OUT], LEFT_OUT),
    ],
)
def test_a_pair_of_builds_is_made_again_only_where_folders_alone_were_left_out(monkeypatch, capsys, pairs, answer):
    docker, to_come = Images(), list(pairs)
    monkeypatch.setattr(rebuild, "connect", lambda: docker)
    monkeypatch.setattr(build, "run_buildx", lambda image, tag, *options, wheels: docker.held.append(tag))
    monkeypatch.setattr(rebuild, "compare", lambda client, first, second: to_come.pop(0))
    assert rebuild.rebuild(pins.load().image("int8", "2023-02")) == answer
    assert to_come == []
    said = capsys.readouterr().out
    assert said.count("sha256:0") == 2 * len(pairs)
    assert said.count("builds both images once more") == len(pairs) - 1


@pytest.mark.parametrize(("labels", "stands_in"), [({"stand-in": "true"}, True), ({"stand-in": "false"}, False), ({}, False)])
def test_an_image_is_a_stand_in_where_its_label_says_so(labels, stands_in):
    assert inventory.is_stand_in(types.SimpleNamespace(labels=labels)) is stands_in
