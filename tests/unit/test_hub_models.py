"""Real weights: fetched once through the hub's real client from a hub on this machine, checked, and used where they are already."""

import dataclasses
import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.models import weights
from scripts import articles
from scripts.commands import models as commands
from scripts.containers import restrictions
from scripts.errors import KitError, PreflightError, UsageError
from scripts.models import article_models, files, hub, links, locking, manifest, place, store
from scripts.models.article_models import ArticleModel
from scripts.models.byte_progress import ByteProgress
from scripts.paths import ROOT
from scripts.pins import models as model_pins
from scripts.pins.models import LockedModel, ModelFile
from scripts.run import conversion
from scripts.run.options import Options
from scripts.surroundings import Surroundings
from scripts.verdicts import row_groups
from tests import synthetic
from tests.fakes import hub as fake_hub

NAME = "someone/bloom-of-the-test"
FIRST, SECOND = "1" * 40, "2" * 40
PARAMETERS = 10_000
CONFIG = json.dumps(weights.config_of("bloom-7b1", "full")).encode()


def some_bytes(count, seed=0):
    return random.Random(seed).randbytes(count)


def model_files(seed=0, **others):
    return {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": some_bytes(2 * PARAMETERS, seed), **others}


def index_of(*names):
    return json.dumps({"weight_map": {f"tensor.{number}": name for number, name in enumerate(names)}}).encode()


def shards(index):
    """A model's files with its weights in model-1.safetensors and an index, which may name others."""
    whole = model_files()
    return {"model-1.safetensors": whole.pop("model.safetensors"), "model.safetensors.index.json": index, **whole}


def model(commit=FIRST, parameters=PARAMETERS, **changes):
    return ArticleModel(NAME, "bloom-7b1", parameters, commit, **changes)


@pytest.fixture
def served(monkeypatch, tmp_path):
    """A hub with one model in one commit, on a machine whose user has no cache and no token."""
    monkeypatch.setattr(hub, "WAITS_S", (0.0, 0.0))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with fake_hub.running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        running.add(NAME, FIRST, model_files())
        yield running


@pytest.fixture
def no_hub(monkeypatch, served):
    """Call it, and no hub answers any more."""
    return lambda: monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")


def held_files(held):
    return {path.name: path.read_bytes() for path in held.folder.iterdir() if path.name != manifest.NAME}


def locked(content, commit=FIRST):
    described = [ModelFile(name, len(text), f"sha256:{hashlib.sha256(text).hexdigest()}") for name, text in content.items()]
    return LockedModel(commit, files.used(NAME, described))


def test_the_digest_of_weights_is_of_their_names_and_contents_and_of_no_other_file():
    def digest(**more):
        return files.weights_sha256(locked(model_files(**more)).files)

    weights_line = f"sha256:{hashlib.sha256(model_files()['model.safetensors']).hexdigest()}  model.safetensors\n"
    assert digest() == digest(**{"tokenizer.json": b"{ }"}) == hashlib.sha256(weights_line.encode()).hexdigest()
    assert digest() != digest(**{"model.safetensors": b"other"})


# ---------------------------------------------------------------- an article's model
@pytest.fixture
def with_article(monkeypatch):
    """A function that adds an article whose model has this name, and these keys beside it, to the kit's own."""

    def add(name, **keys):
        own = articles.load_all()
        added = {"name": name, "architecture": "bloom", "shape": "bloomz-7b1", **keys}
        mine = dataclasses.replace(own["deepspeed-inference"], slug="mine", model=added, models={})
        for every in ("load_all", "without_mistakes", "without_mistakes_told"):
            monkeypatch.setattr(articles, every, lambda: {**own, "mine": mine})

    return add


def test_a_model_without_a_pin_stops_no_measurement_of_another_one(with_article):
    with_article("a/new-model", parameters=1)
    pinned = articles.load_all()["inference-tools"].model["name"]
    assert article_models.find(pinned).name == pinned
    with pytest.raises(
        KitError, match=r'docker/pins.toml has no \[models."a/new-model"\]: real weights need a pin, as docs/adding.md says; type WEIGHTS=random'
    ):
        article_models.find("a/new-model")


def test_a_model_without_a_pin_keeps_no_other_model_from_being_fetched(with_article, capsys):
    others = article_models.of_articles()
    with_article("a/new-model", parameters=1)
    capsys.readouterr()
    assert article_models.of_articles() == others
    assert 'note: a/new-model is left out: docker/pins.toml has no [models."a/new-model"]' in capsys.readouterr().err


def test_models_of_an_article_without_hardware_are_fetched_where_it_is_named_only(with_article, monkeypatch):
    others = article_models.of_articles()
    with_article("a/new-model", parameters=1)
    pins = model_pins.load()
    monkeypatch.setattr(model_pins, "load", lambda: {**pins, "a/new-model": model_pins.ModelPin(FIRST)})
    assert {model.name for model in article_models.of_articles()} == {model.name for model in others} | {"a/new-model"}
    every = articles.without_mistakes_told()
    monkeypatch.setattr(articles, "without_mistakes_told", lambda: {**every, "mine": dataclasses.replace(every["mine"], hardware=None)})
    assert article_models.of_articles() == others


def test_the_models_of_an_article_with_a_mistake_are_left_out_with_a_note(mistaken, capsys):
    its_own = articles.find("batch-generate").model["name"]
    mistaken("batch-generate")
    others = [model.name for model in article_models.of_articles()]
    assert articles.find("inference-tools").model["name"] in others and its_own not in others
    assert "note: batch-generate is left out: batch-generate.toml: not TOML" in capsys.readouterr().err


def test_a_pinned_model_without_its_number_of_parameters_says_what_is_missing(with_article, monkeypatch, capsys):
    with_article("a/new-model")
    pins = model_pins.load()
    monkeypatch.setattr(model_pins, "load", lambda: {**pins, "a/new-model": model_pins.ModelPin(FIRST)})
    words = "has no `parameters`, so the kit cannot tell whether real weights are its own; type WEIGHTS=random"
    with pytest.raises(KitError, match=words):
        article_models.find("a/new-model")
    article_models.of_articles()
    assert words in capsys.readouterr().err


def test_a_number_of_parameters_that_one_article_lacks_is_taken_from_another_one(with_article):
    own = articles.load_all()["inference-tools"].model
    with_article(own["name"])
    assert article_models.find(own["name"]).parameters == own["parameters"]


# ---------------------------------------------------------------- pins
def test_no_model_of_an_article_is_pinned_to_a_branch():
    pins = model_pins.load()
    unpinned = {one.name for one in article_models.of_articles() if not model_pins.is_commit(one.commit)}
    assert unpinned <= {"philschmid/gpt-j-6B-fp16-sharded"} and {pin.commit for name, pin in pins.items() if name in unpinned} <= {""}


def test_a_pin_that_names_a_branch_is_refused(tmp_path):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/pins.toml").write_text('[models."a/b"]\ncommit = "main"\norigin = "chosen"\nwhy = "a test"\n')
    with pytest.raises(KitError, match="commit is 'main'; a model needs a commit"):
        model_pins.load(tmp_path)


def test_the_lock_holds_the_commits_of_the_pins():
    assert all(pin.locked for name, pin in model_pins.load().items() if name in model_pins.read_lock())


def test_locking_writes_the_files_of_each_commit_once(served, tmp_path):
    (tmp_path / "docker").mkdir()
    locking.lock(model(), tmp_path)
    entry = model_pins.read_lock(tmp_path)[NAME]
    assert entry.commit == FIRST and {file.name for file in entry.files} == {"config.json", "tokenizer.json", "model.safetensors"}
    assert entry.files[1].digest == f"sha256:{hashlib.sha256(some_bytes(2 * PARAMETERS)).hexdigest()}"
    asked = len(served.requests)
    locking.lock(model(locked=entry), tmp_path)
    assert len(served.requests) == asked


def test_locking_gives_a_commit_to_a_model_without_a_pin(served, tmp_path):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/pins.toml").write_text(f'[models."{NAME}"]\ncommit = ""\norigin = "chosen"\nwhy = "a test"\n')
    locking.lock(model(""), tmp_path)
    assert model_pins.load(tmp_path)[NAME].commit == FIRST


def test_a_lock_of_another_commit_than_the_pin_s_does_not_count(tmp_path):
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/pins.toml").write_text(f'[models."{NAME}"]\ncommit = "{SECOND}"\norigin = "chosen"\nwhy = "a test"\n')
    model_pins.write_lock({NAME: locked(model_files())}, tmp_path)
    pin = model_pins.load(tmp_path)[NAME]
    assert (pin.commit, pin.locked) == (SECOND, None)


# ---------------------------------------------------------------- what is fetched
def test_a_model_is_fetched_at_its_commit_whatever_main_names(served, tmp_path):
    served.add(NAME, SECOND, model_files(seed=2))
    held = store.provide(model(), tmp_path)
    assert (held.commit, held_files(held)) == (FIRST, model_files())


def test_without_a_pin_the_commit_of_the_first_fetch_stays_when_main_moves(served, tmp_path):
    assert store.provide(model(""), tmp_path).commit == FIRST
    served.add(NAME, SECOND, model_files(seed=2))
    assert store.provide(model(""), tmp_path).commit == store.commit_of(model(""), tmp_path) == FIRST


@pytest.mark.parametrize(("sha", "asked"), [(SECOND, FIRST), ("../../../theirs", ""), ("main", ""), (None, FIRST), (None, "")])
def test_a_hub_that_answers_with_another_commit_is_refused(served, tmp_path, monkeypatch, sha, asked):
    (tmp_path / "docker").mkdir()
    describe = served.describe
    monkeypatch.setattr(served, "describe", lambda *question: {**describe(*question), "sha": sha})
    allowed = f"allowed is the pinned {FIRST}" if asked else "allowed is 40 hex digits"
    for fetch in (store.provide, locking.lock):
        with pytest.raises(KitError, match=f"the hub answered with commit '{sha}', {allowed}; type HF_ENDPOINT="):
            fetch(model(asked), tmp_path)
    assert served.served_bytes.keys() <= {""} and not model_pins.read_lock(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rfilename": "a\0.json"}, r"it lists a file with the name 'a\\x00.json'"),
        ({"rfilename": "\x1b[2J.json"}, "it lists a file with the name"),
        ({"rfilename": "\ud800.json"}, "it lists a file with the name"),
        ({"rfilename": f"{'x' * 250}.json"}, "it lists a file with the name 'xxx"),
        ({"rfilename": None}, "it lists a file with the name None"),
        ({"rfilename": "x.json", "size": "20"}, "it lists x.json with '20' bytes"),
        ({"rfilename": "x.json", "size": -5}, "it lists x.json with -5 bytes"),
    ],
)
def test_a_hub_that_lists_what_no_file_here_can_be_is_one_line(served, tmp_path, monkeypatch, changes, words):
    told = served.describe(NAME, FIRST)
    told["siblings"].append({"size": 2, "blobId": "0" * 40} | changes)
    monkeypatch.setattr(served, "describe", lambda name, revision: told)
    with pytest.raises(KitError, match=f"{NAME} cannot be fetched from http.*{words}"):
        store.provide(model(), tmp_path)


def test_a_hub_that_lists_no_files_at_all_is_one_line(served, tmp_path, monkeypatch):
    told = served.describe(NAME, FIRST)
    del told["siblings"]
    monkeypatch.setattr(served, "describe", lambda name, revision: told)
    with pytest.raises(KitError, match="has no .*safetensors"):
        store.provide(model(), tmp_path)


def test_a_hub_that_sends_more_than_a_file_has_is_stopped_there(served, tmp_path):
    whole = model_files()["model.safetensors"]
    served.altered["model.safetensors"] = (whole + bytes(32 << 20), -1)
    with pytest.raises(KitError, match="it sends more than the 20,000 bytes of model.safetensors"):
        store.provide(model(), tmp_path)
    kept = [path.stat().st_size for path in tmp_path.rglob("*model.safetensors*")]
    assert all(size_bytes <= len(whole) for size_bytes in kept)


def test_the_commit_is_known_before_any_file_is_fetched(served, tmp_path):
    assert store.commit_of(model(""), tmp_path) == FIRST
    assert store.commit_of(model(SECOND), tmp_path) == SECOND
    assert served.served_bytes.keys() <= {""}


def test_a_second_time_nothing_is_asked_and_nothing_is_read(served, no_hub, tmp_path, monkeypatch):
    held = store.provide(model(), tmp_path)
    asked = list(served.requests)
    no_hub()
    monkeypatch.setattr(files, "digest_of", lambda *_: pytest.fail("a file was read again"))
    monkeypatch.setattr(place, "alone", lambda _: pytest.fail("a complete folder was about to be written"))
    assert store.provide(model(), tmp_path) == held and served.requests == asked
    assert served.served_bytes["model.safetensors"] == 2 * PARAMETERS


def test_one_format_is_fetched_safetensors_before_pickles(served, tmp_path):
    pickles = {"pytorch_model.bin": some_bytes(2 * PARAMETERS, 1), "pytorch_model.bin.index.json": b"{}", "training_args.bin": b"x"}
    served.add(
        NAME, SECOND, model_files(**pickles, **{"model.safetensors.index.json": b"{}", "original/consolidated.safetensors": b"x", "flax_model.msgpack": b"x"})
    )
    held = store.provide(model(SECOND), tmp_path)
    assert set(held_files(held)) == {"config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"}


def test_pickles_are_fetched_where_the_commit_has_nothing_else(served, tmp_path):
    pickles = {"pytorch_model-1.bin": some_bytes(2 * PARAMETERS, 1), "pytorch_model.bin.index.json": index_of("pytorch_model-1.bin")}
    served.add(NAME, SECOND, {"config.json": CONFIG, "tokenizer.json": b"{}", "optimizer.bin": b"x", **pickles})
    assert set(held_files(store.provide(model(SECOND), tmp_path))) == {"config.json", "tokenizer.json", *pickles}


def test_a_commit_without_weights_is_refused(served, tmp_path):
    served.add(NAME, SECOND, {"config.json": CONFIG})
    with pytest.raises(KitError, match="has no .*safetensors.*MODEL_PATH="):
        store.provide(model(SECOND), tmp_path)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (index_of("model-1.safetensors", "model-2.safetensors"), "names 'model-2.safetensors', which is not there"),
        (index_of("../../theirs/model-1.safetensors"), "names '../../theirs/model-1.safetensors', which is not there"),
        (index_of(), "names 'no file'"),
        (b"{{", "there is no model.safetensors, and model.safetensors.index.json cannot be read"),
    ],
)
def test_an_index_that_leads_elsewhere_is_refused_before_the_weights_are_fetched(served, tmp_path, index, words):
    served.add(NAME, SECOND, shards(index))
    with pytest.raises(KitError, match=f"the folder .* does not hold its weights: .*{words}.*; type MODEL_PATH="):
        store.provide(model(SECOND), tmp_path)
    assert "model-1.safetensors" not in served.served_bytes


def test_the_shards_of_an_index_are_a_model(served, tmp_path):
    served.add(NAME, SECOND, shards(index_of("model-1.safetensors", "model-1.safetensors")))
    assert held_files(store.provide(model(SECOND), tmp_path)) == served.commits[NAME][SECOND]


def test_other_weights_have_another_digest(served, tmp_path):
    served.add(NAME, SECOND, model_files(seed=2))
    first, second = store.provide(model(), tmp_path), store.provide(model(SECOND), tmp_path)
    assert first.weights_sha256 != second.weights_sha256 and len(first.weights_sha256) == 64


# ---------------------------------------------------------------- another model under the name
def test_a_tiny_model_under_the_name_is_refused_before_it_is_fetched(served, tmp_path):
    with pytest.raises(KitError, match=f"{NAME}: the hub's commit 111111111111 has .* 7,069,016,064 parameters have 13 GB to 35 GB"):
        store.provide(model(parameters=7_069_016_064), tmp_path)
    assert "model.safetensors" not in served.served_bytes


def test_another_architecture_under_the_name_is_refused_each_time(served, tmp_path):
    served.add(NAME, SECOND, {**model_files(), "config.json": json.dumps({"model_type": "bloom", "n_layer": 4}).encode()})
    for _ in range(2):
        with pytest.raises(KitError, match="has n_layer 4 in its config.json, the model has 30"):
            store.provide(model(SECOND), tmp_path)
    assert "model.safetensors" not in served.served_bytes


# ---------------------------------------------------------------- a wrong byte
def wrong_byte(content):
    return content[:-1] + bytes([content[-1] ^ 1])


def test_a_wrong_byte_is_named_set_aside_and_fetched_anew(served, tmp_path, capsys):
    right = served.commits[NAME][FIRST]["model.safetensors"]
    served.altered["model.safetensors"] = (wrong_byte(right), 1)
    held = store.provide(model(), tmp_path)
    assert (held.folder / "model.safetensors").read_bytes() == right
    assert (held.folder / "model.safetensors.wrong").read_bytes() == wrong_byte(right)
    assert "model.safetensors has sha256" in capsys.readouterr().err


def test_a_hub_that_goes_on_serving_a_wrong_byte_is_refused(served, tmp_path):
    right = served.commits[NAME][FIRST]["model.safetensors"]
    served.altered["model.safetensors"] = (wrong_byte(right), 2)
    with pytest.raises(KitError, match="the hub served a wrong model.safetensors for this commit, twice; .*HF_ENDPOINT="):
        store.provide(model(), tmp_path)
    store.provide(model(), tmp_path)  # and the next try may be served the right one


def test_a_small_file_with_a_wrong_byte_is_refused_as_well(served, tmp_path):
    served.altered["tokenizer.json"] = (b"[}", 2)
    with pytest.raises(KitError, match="a wrong tokenizer.json"):
        store.provide(model(), tmp_path)


def test_a_mirror_that_changes_files_and_their_announced_digests_is_refused_by_the_lock(served, tmp_path):
    pinned = model(locked=locked(model_files()))
    served.add(NAME, FIRST, model_files(seed=9))
    with pytest.raises(KitError, match="served a wrong model.safetensors"):
        store.provide(pinned, tmp_path)


def test_a_file_that_changed_on_the_disk_is_fetched_anew(served, tmp_path):
    held = store.provide(model(), tmp_path)
    path = held.folder / "model.safetensors"
    path.write_bytes(wrong_byte(path.read_bytes()))
    os.utime(path, ns=(1, 1))
    assert held_files(store.provide(model(), tmp_path))["model.safetensors"] == model_files()["model.safetensors"]
    assert served.served_bytes["tokenizer.json"] == 2  # the others were left alone


def test_verifying_finds_a_change_that_size_and_time_do_not_show(served, tmp_path, capsys):
    held = store.provide(model(), tmp_path)
    path = held.folder / "model.safetensors"
    before = path.stat()
    path.write_bytes(wrong_byte(path.read_bytes()))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.provide(model(), tmp_path) == held and store.verify(model(), tmp_path) == held
    assert path.read_bytes() == model_files()["model.safetensors"]
    assert f"set aside as {path}.wrong" in capsys.readouterr().err


def test_verifying_right_files_needs_no_network(served, no_hub, tmp_path):
    held = store.provide(model(), tmp_path)
    no_hub()
    assert store.verify(model(), tmp_path) == held
    assert store.verify(model(SECOND), tmp_path) is None


def test_a_large_file_shows_size_rate_and_time_left(capsys):
    with ByteProgress("checking model.safetensors", 5_000_000_000, done_bytes=1_000_000_000) as progress:
        progress.began -= 10
        progress.add(1_000_000_000)
        assert progress.line() == "checking model.safetensors: 2.00 of 5.00 GB, 100 MB/s, 30 s left"
        assert capsys.readouterr().err == ""
        progress.shown_at -= 100
        progress.add(500_000_000)
        assert "2.50 of 5.00 GB, 150 MB/s, 17 s left" in capsys.readouterr().err


# ---------------------------------------------------------------- a network with faults
def test_a_connection_that_breaks_in_the_middle_of_a_file_goes_on_there(served, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    served.cut_after["model.safetensors"] = 5_500
    held = store.provide(model(), tmp_path)
    assert served.ranges_of("model.safetensors") == ["", "bytes=5000-"] and held_files(held) == model_files()


@pytest.mark.slow
def test_a_fetch_that_was_killed_in_the_middle_of_a_file_goes_on_there(served, tmp_path):
    chunk = 10 << 20  # the client writes in such pieces
    served.add(NAME, SECOND, model_files(**{"model.safetensors": some_bytes(2 * chunk + 500)}))
    served.stall_after["model.safetensors"] = chunk + 400
    large = f"ArticleModel({NAME!r}, 'bloom-7b1', {chunk}, {SECOND!r})"
    program = (
        "import os; from pathlib import Path; from scripts import surroundings; from scripts.models import store; from scripts.models.article_models import ArticleModel\n"
        f"surroundings.use(os.environ); store.provide({large}, Path({str(tmp_path)!r}))"
    )
    part = tmp_path / "hub" / NAME.replace("/", "--") / SECOND / ".model.safetensors.part"
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size == chunk) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    held = store.provide(ArticleModel(NAME, "bloom-7b1", chunk, SECOND), tmp_path)
    assert served.ranges_of("model.safetensors") == ["", f"bytes={chunk}-"]
    assert (held.folder / "model.safetensors").read_bytes() == some_bytes(2 * chunk + 500) and not part.exists()


def test_a_mirror_that_sends_the_whole_file_in_place_of_its_rest_is_no_harm(served, tmp_path):
    path = tmp_path / "hub" / NAME.replace("/", "--") / FIRST / "model.safetensors"
    path.parent.mkdir(parents=True)
    hub.part_of(path).write_bytes(model_files()["model.safetensors"][:5000])
    served.no_ranges = True
    assert held_files(store.provide(model(), tmp_path)) == model_files()
    assert served.ranges_of("model.safetensors") == ["bytes=5000-"] and not path.with_name(path.name + files.WRONG).exists()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again(served, tmp_path, status, capsys):
    served.fail = [(status, {"Retry-After": "0"})]
    store.commit_of(model(""), tmp_path)
    assert "the hub is busy, trying again in 0 s" in capsys.readouterr().err
    served.fail = [(503, {})]
    hub.download(NAME, FIRST, files.used(NAME, [ModelFile("model.safetensors", 2 * PARAMETERS, "")])[0], tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == model_files()["model.safetensors"]


def test_a_hub_that_stays_busy_ends_in_one_line(served, tmp_path):
    served.fail = [(503, {})] * 3
    with pytest.raises(
        KitError, match=f"{NAME} cannot be fetched from {served.endpoint} .*503.* type the same again once it answers, or HF_ENDPOINT=.*, or WEIGHTS=random"
    ):
        store.provide(model(), tmp_path)


@pytest.mark.parametrize(
    ("message", "here"),
    [
        ("a model cannot be fetched; type the same again, or WEIGHTS=random", "a model cannot be fetched; type the same again"),
        ("a; b; type MODEL_PATH=/folder of a copy, or WEIGHTS=random", "a; b; make bench-… takes MODEL_PATH=/folder of a copy, or WEIGHTS=random"),
        ("real weights need a pin; type WEIGHTS=random", "real weights need a pin; make bench-… takes WEIGHTS=random"),
        ("a file has changed; type rm -r folder", "a file has changed; type rm -r folder"),
    ],
)
def test_verbs_of_models_advise_only_what_they_read(message, here):
    assert commands.advice_here(message) == here


def test_without_an_address_of_a_mirror_the_hub_itself_is_named(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert "cannot be fetched from https://huggingface.co (OSError); type the same again" in hub._failed(NAME, OSError())


def test_the_password_of_a_mirror_s_address_is_not_shown(served, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", served.endpoint.replace("//", "//me:secret@"))
    served.fail = [(503, {})] * 3
    with pytest.raises(KitError, match="503 .* for url 'http://…@127") as failed:
        store.provide(model(), tmp_path)
    assert "secret" not in str(failed.value) + "".join(capsys.readouterr())


@pytest.mark.parametrize(("token", "advice"), [("", "after accepting its licence on the hub"), ("hf_" + "w" * 30, "with a token of an account that accepted")])
def test_a_gated_model_says_what_to_do_and_never_the_token(served, tmp_path, monkeypatch, capsys, token, advice):
    served.gated = "hf_" + "r" * 30
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(KitError, match="is gated or unknown to the hub") as refused:
        store.provide(model(), tmp_path)
    said = str(refused.value) + "".join(capsys.readouterr())
    assert advice in said and (not token or token not in said)


def test_a_gated_model_is_fetched_with_its_token_which_lies_in_no_file(served, tmp_path, monkeypatch, capsys):
    served.gated = "hf_" + "r" * 30
    monkeypatch.setenv("HF_TOKEN", served.gated)
    store.provide(model(), tmp_path)
    assert not any(served.gated.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert served.gated not in "".join(capsys.readouterr())


def test_a_line_break_at_the_end_of_a_token_is_no_part_of_it(served, tmp_path, monkeypatch):
    served.gated = "hf_" + "r" * 30
    monkeypatch.setenv("HF_TOKEN", served.gated + "\r\n")
    store.provide(model(), tmp_path)
    assert served.tokens == {served.gated}


@pytest.mark.parametrize("between", ["\n", "\r", " ", "é", "\x01"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(served, tmp_path, monkeypatch, capsys, between):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "r" * 30 + between + "s" * 30)
    for fetch in (lambda: store.provide(model(), tmp_path), lambda: hub.download(NAME, FIRST, ModelFile("model.safetensors", 1, ""), tmp_path / "file")):
        with pytest.raises(UsageError, match="HF_TOKEN has a space, a line break or another") as refused:
            fetch()
        said = str(refused.value) + "".join(capsys.readouterr())
        assert "r" * 10 not in said and "s" * 10 not in said and not served.tokens


def test_the_token_stays_with_the_hub_where_files_are_served_from_elsewhere(served, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "r" * 30)
    with fake_hub.running("127.0.0.2") as storage:
        storage.commits, served.storage = served.commits, storage
        store.provide(model(), tmp_path)
    assert served.tokens == {"hf_" + "r" * 30} and storage.tokens == {""}
    assert storage.ranges_of("model.safetensors") == [""]


def test_a_model_that_the_hub_does_not_know_and_a_commit_that_is_gone_are_named(served, tmp_path):
    with pytest.raises(KitError, match="nobody/nothing is gated or unknown to the hub"):
        store.provide(ArticleModel("nobody/nothing", "bloom-7b1", 1, FIRST), tmp_path)
    with pytest.raises(KitError, match="the hub no longer has the pinned commit; type MODEL_PATH="):
        store.provide(model(SECOND), tmp_path)


def test_without_a_network_files_that_are_there_serve_and_others_are_named(served, no_hub, tmp_path):
    held = store.provide(model(), tmp_path)
    no_hub()
    assert store.provide(model(), tmp_path) == held
    with pytest.raises(KitError, match="cannot be fetched"):
        store.provide(model(SECOND), tmp_path)


@pytest.mark.slow  # a process of its own
def test_a_second_make_models_reads_no_weights_and_asks_nobody(served, no_hub, tmp_path):
    (asked,) = article_models.of_articles("inference-tools")
    folder = tmp_path / "hub" / asked.name.replace("/", "--") / asked.commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    with (folder / "model.safetensors").open("wb") as sparse:
        sparse.truncate(2 * asked.parameters)
    listed = tuple(ModelFile(name, (folder / name).stat().st_size, f"sha256:{'0' * 64}") for name in ("config.json", "model.safetensors"))
    seen = {file.name: manifest.look(folder / file.name) for file in listed}
    manifest.Manifest(asked.name, asked.commit, listed, seen).write(folder)
    no_hub()
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["make", "--no-print-directory", "models", "ARTICLE=inference-tools", f"MODELS={tmp_path}"], cwd=ROOT, capture_output=True, text=True)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stdout) == (0, f"{asked.name} at {asked.commit[:12]}: {folder}\n")
    assert spent.ru_utime + spent.ru_stime - began.ru_utime - began.ru_stime < 3


# ---------------------------------------------------------------- the disk
def test_a_model_that_does_not_fit_is_refused_before_it_is_fetched(served, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10_000, 0, 10_000))
    with pytest.raises(PreflightError, match="type MODELS=/another/disk"):
        store.provide(model(), tmp_path)
    assert "model.safetensors" not in served.served_bytes


def test_what_is_on_the_disk_already_does_not_have_to_come(served, tmp_path):
    root, pinned = tmp_path / "models", model(locked=locked(model_files()))
    every = sum(len(content) for content in model_files().values())
    assert store.still_to_come_bytes(model(), root) is None
    assert store.still_to_come_bytes(pinned, root) == every
    assert store.still_to_come_bytes(pinned, root, tmp_path) == 0
    fill_hub_cache(model_files(), SECOND)
    assert store.still_to_come_bytes(model(SECOND), root) == 0
    store.provide(model(), root)
    assert store.still_to_come_bytes(model(), root) == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode != 0:
        pytest.skip("NOT TESTED: a full disk; a file system of its own needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_fills_up_is_named_and_what_came_is_kept(served, small_disk, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    served.add(NAME, SECOND, model_files(**{"model.safetensors": some_bytes(800_000)}))
    monkeypatch.setattr("scripts.models.place.room_for", lambda *_: (small_disk / "of-others").write_bytes(bytes(500_000)))  # it fills up later
    with pytest.raises(KitError, match=r"cannot be written \(No space left on device\); type MODELS=/another/folder"):
        store.provide(model(SECOND, parameters=400_000), small_disk)
    (small_disk / "of-others").unlink()
    monkeypatch.setattr("scripts.models.place.room_for", lambda *_: None)
    store.provide(model(SECOND, parameters=400_000), small_disk)
    whole, rest = served.ranges_of("model.safetensors")
    assert whole == "" and 0 < int(rest.removeprefix("bytes=").rstrip("-")) < 800_000
    assert served.served_bytes["tokenizer.json"] == 2


# ---------------------------------------------------------------- files that are there already
def fill_hub_cache(content, commit=FIRST, name=NAME):
    """The hub's cache as its client leaves it: links to blobs that are named by their digests."""
    folder = Path(os.environ["HF_HOME"]) / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "blobs").mkdir(parents=True)
    (folder / "snapshots" / commit).mkdir(parents=True)
    for file, text in content.items():
        digest = hashlib.sha256(text).hexdigest() if len(text) >= 1000 else hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
        (folder / "blobs" / digest).write_bytes(text)
        (folder / "snapshots" / commit / file).symlink_to(f"../../blobs/{digest}")
    return folder


def test_the_hub_s_cache_lies_in_the_user_s_and_a_mirror_s_address_ends_in_no_slash():
    typed = Surroundings({"XDG_CACHE_HOME": "/scratch/cache", "HF_ENDPOINT": "https://mirror.example/"})
    assert (str(typed.hub_cache), typed.hub_endpoint) == ("/scratch/cache/huggingface/hub", "https://mirror.example")


def test_the_hub_s_own_cache_serves_without_a_copy_and_without_a_network(served, no_hub, tmp_path):
    blobs = fill_hub_cache(model_files()) / "blobs"
    no_hub()
    held = store.provide(model(), tmp_path / "models")
    assert held_files(held) == model_files() and held.commit == FIRST
    assert (held.folder / "model.safetensors").is_symlink() and links.sources(held.folder) == [blobs]


def test_files_of_the_cache_are_not_fetched_and_the_missing_ones_are(served, tmp_path):
    fill_hub_cache({"model.safetensors": model_files()["model.safetensors"]})
    assert held_files(store.provide(model(), tmp_path / "models")) == model_files()
    assert "model.safetensors" not in served.served_bytes and served.served_bytes["tokenizer.json"] == 2


def test_a_wrong_file_of_the_cache_is_left_alone_and_the_right_one_is_fetched(served, tmp_path):
    right = model_files()["model.safetensors"]
    blob = fill_hub_cache(model_files()) / "blobs" / hashlib.sha256(right).hexdigest()
    blob.write_bytes(wrong_byte(right))
    held = store.provide(model(), tmp_path / "models")
    assert held_files(held)["model.safetensors"] == right and blob.read_bytes() == wrong_byte(right)
    assert [path.name for path in held.folder.iterdir() if path.name.endswith(files.WRONG)] == []


def test_a_cache_that_lacks_a_shard_does_not_serve_without_a_network(served, no_hub, tmp_path):
    fill_hub_cache(shards(index_of("model-1.safetensors", "model-2.safetensors")))
    no_hub()
    with pytest.raises(KitError, match="cannot be fetched"):
        store.provide(model(), tmp_path / "models")


@pytest.mark.parametrize("index", [b"{}", b"{{", b'{"weight_map": []}', b"[]"])
def test_a_cache_whose_index_is_damaged_does_not_serve_without_a_network(served, no_hub, tmp_path, index):
    fill_hub_cache(shards(index))
    no_hub()
    with pytest.raises(KitError, match="cannot be fetched"):
        store.provide(model(), tmp_path / "models")


def folder_of(tmp_path, content):
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name, text in content.items():
        (folder / name).write_bytes(text)
    return folder


def test_a_typed_folder_serves_without_a_copy_and_is_checked_against_the_lock(no_hub, tmp_path):
    no_hub()
    theirs = folder_of(tmp_path, model_files(**{"README.txt": b"not of the commit", "pytorch_model.bin": b"x"}))
    pinned = model(locked=locked(model_files()))
    held = store.provide(pinned, tmp_path / "models", theirs)
    assert held.commit == FIRST and held_files(held) == model_files() and links.sources(held.folder) == [theirs]
    (theirs / "model.safetensors").write_bytes(wrong_byte(model_files()["model.safetensors"]))
    with pytest.raises(KitError, match="MODEL_PATH is .* but there model.safetensors has sha256 .* leave it out to fetch the model"):
        store.provide(pinned, tmp_path / "models", theirs)
    assert sorted(path.name for path in theirs.iterdir()) == sorted([*model_files(), "README.txt", "pytorch_model.bin"])


def test_a_typed_folder_without_weights_is_named(no_hub, tmp_path):
    no_hub()
    theirs = folder_of(tmp_path, {"config.json": CONFIG})
    with pytest.raises(UsageError, match=f"MODEL_PATH is '{theirs}', and .* has no .*safetensors.*; type MODEL_PATH="):
        store.provide(model(), tmp_path / "models", theirs)


def test_a_typed_folder_that_nothing_can_be_compared_with_is_known_by_its_digest(no_hub, tmp_path):
    no_hub()
    theirs = folder_of(tmp_path, model_files())
    first = store.provide(model(), tmp_path / "models", theirs)
    assert first.commit == f"folder-{first.weights_sha256[:12]}" == store.commit_of(model(), tmp_path / "models", theirs)
    (theirs / "model.safetensors").write_bytes(some_bytes(2 * PARAMETERS, 3))
    second = store.provide(model(), tmp_path / "models", theirs)
    assert second.commit != first.commit and second.weights_sha256 != first.weights_sha256


def test_a_plan_knows_the_commit_of_a_typed_folder_once_a_run_has_read_its_files(no_hub, tmp_path):
    no_hub()
    theirs, root = folder_of(tmp_path, model_files()), tmp_path / "models"
    assert store.commit_of_plan(model(locked=locked(model_files())), root, theirs) == FIRST
    with pytest.raises(hub.CannotFetch, match=f"^no run has read the files of MODEL_PATH={theirs} yet$"):
        store.commit_of_plan(model(), root, theirs)
    assert not root.exists()
    held = store.provide(model(), root, theirs)
    assert store.commit_of_plan(model(), root, theirs) == held.commit
    (theirs / "model.safetensors").write_bytes(some_bytes(2 * PARAMETERS, 3))
    with pytest.raises(hub.CannotFetch):
        store.commit_of_plan(model(), root, theirs)


def test_a_plan_with_a_typed_folder_has_the_commit_that_was_fetched_with_which_a_run_compares_the_files(no_hub, tmp_path):
    theirs, root = folder_of(tmp_path, model_files()), tmp_path / "models"
    fetched = store.provide(model(), root)
    no_hub()
    assert store.commit_of_plan(model(), root, theirs) == fetched.commit == store.commit_of(model(), root, theirs) == FIRST


def test_a_name_in_a_typed_folder_that_is_no_text_is_left_out(no_hub, tmp_path):
    source = folder_of(tmp_path, model_files())
    (source / os.fsdecode(b"\xff.json")).write_text("{}")
    assert sorted(held_files(store.provide(model(commit=""), tmp_path / "models", source))) == sorted(model_files())


def test_a_manifest_that_leads_out_of_its_folder_counts_as_none_and_nothing_there_is_touched(served, tmp_path):
    held = store.provide(model(), tmp_path)
    mine, path = tmp_path / "hub" / "mine.json", held.folder / manifest.NAME
    mine.write_text("{}")
    told = json.loads(path.read_text())
    told["files"].append({"name": "../../mine.json", "size_bytes": 2, "digest": "git:0"})
    path.write_text(json.dumps(told))
    assert sorted(held_files(store.provide(model(), tmp_path))) == sorted(model_files())
    assert sorted(one.name for one in mine.parent.iterdir()) == ["mine.json", held.folder.parent.name] and mine.read_text() == "{}"


def test_a_typed_folder_is_read_once(no_hub, tmp_path, monkeypatch):
    theirs = folder_of(tmp_path, model_files())
    read = []
    digest_of = files.digest_of
    monkeypatch.setattr(files, "digest_of", lambda path, *kind: read.append(path.name) or digest_of(path, *kind))
    for _ in range(2):
        store.provide(model(), tmp_path / "models", theirs)
    assert sorted(read) == sorted(model_files())


@pytest.mark.parametrize(
    ("missing", "words"),
    [("model.safetensors", "has no .*safetensors"), ("config.json", "has no config.json that can be read"), (None, "allowed is a folder with config.json")],
)
def test_a_typed_folder_without_a_model_is_refused(no_hub, tmp_path, missing, words):
    theirs = folder_of(tmp_path, {name: text for name, text in model_files().items() if name != missing}) if missing else tmp_path / "nowhere"
    with pytest.raises(KitError, match=words):
        store.provide(model(), tmp_path / "models", theirs)


@pytest.mark.parametrize("config", [b"null", b"[]", b'"bloom"', b"{", b"[" * 100_000], ids=["null", "list", "text", "cut", "deep"])
def test_a_typed_folder_whose_config_json_is_no_object_is_refused(no_hub, tmp_path, config):
    theirs = folder_of(tmp_path, model_files(**{"config.json": config}))
    with pytest.raises(KitError, match="has no config.json that can be read"):
        store.provide(model(), tmp_path / "models", theirs)


def test_a_file_of_a_typed_folder_that_cannot_be_read_is_named(no_hub, tmp_path, monkeypatch):
    theirs = folder_of(tmp_path, model_files())

    def refused(path, *_):  # root may read every file
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(files, "digest_of", refused)
    with pytest.raises(KitError, match=f"{theirs}/config.json cannot be read .Permission denied.; .*MODEL_PATH="):
        store.provide(model(), tmp_path / "models", theirs)


def test_a_link_to_a_typed_folder_that_is_gone_is_named_by_verifying(no_hub, tmp_path):
    held = store.provide(model(), tmp_path / "models", folder_of(tmp_path, model_files()))
    (held.folder / "config.json").unlink()
    with pytest.raises(KitError, match="has changed: config.json is gone; .*type rm -r"):
        store.verify(model(), tmp_path / "models")


def test_a_typed_folder_that_changed_is_named_by_verifying(no_hub, tmp_path):
    theirs = folder_of(tmp_path, model_files())
    store.provide(model(), tmp_path / "models", theirs)
    (theirs / "model.safetensors").write_bytes(some_bytes(2 * PARAMETERS, 3))
    with pytest.raises(KitError, match=f"{theirs} has changed: model.safetensors has sha256"):
        store.verify(model(), tmp_path / "models")


# ---------------------------------------------------------------- jobs and rows
@pytest.fixture
def article_model(monkeypatch):
    """The test's model is a model of the articles, without a pin."""
    monkeypatch.setattr(article_models, "find", lambda name: model("", locked=None))


def test_a_job_s_model_carries_commit_and_digest(served, tmp_path, article_model):
    asked = {"name": NAME, "weights": "hub", "revision": "", "path": ""}
    named = {**asked, "revision": store.commit_of(article_models.find(NAME), tmp_path)}
    served.add(NAME, SECOND, model_files(seed=2))  # main moves between the plan and the fetch
    folder, fetched = conversion.hub_checkpoint(named, Options(models=tmp_path), print)
    assert named["revision"] == fetched["revision"] == folder.name == FIRST
    assert fetched["weights_sha256"] == store.provide(model(), tmp_path).weights_sha256


def test_results_of_other_weights_are_never_one_row():
    def measured(number, digest):
        asked = synthetic.job("int8", weights="hub")
        asked = dataclasses.replace(asked, model={**asked.model, "revision": FIRST, "weights_sha256": digest})
        return synthetic.record(asked, number=number)

    (group,) = row_groups.build([measured(1, "a" * 64), measured(2, "b" * 64), measured(3, "b" * 64)], articles.load_all())
    (row,) = group.rows
    assert {one.job.model["weights_sha256"] for one in row.runs} == {"b" * 64} and len(row.runs) == 2


def test_a_linked_folder_that_says_nothing_of_its_files_is_not_verified(tmp_path):
    for name in ("path-1", "path-2", "other"):
        (tmp_path / name).mkdir()
    manifest.Manifest(NAME, FIRST, ()).write(tmp_path / "path-2")
    assert [folder.name for folder, _ in store._linked(tmp_path)] == ["path-2"]


def test_a_link_to_another_file_and_a_copy_make_way_for_the_link_that_is_asked_for(tmp_path):
    (tmp_path / "stale").symlink_to(tmp_path / "gone")
    (tmp_path / "copy").write_text("old")
    for name in ("stale", "copy", "new", "new"):
        links.link(tmp_path / name, tmp_path / "target")
        assert (tmp_path / name).readlink() == tmp_path / "target"


def test_an_error_above_the_models_folder_is_the_folder_s_and_one_elsewhere_names_its_file(tmp_path):
    def told(file):
        with pytest.raises(KitError) as error, place.alone(tmp_path / "models"):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return str(error.value)

    for file in (tmp_path, tmp_path / "models", tmp_path / "models" / "hub"):
        assert told(file) == f"the models' folder {tmp_path / 'models'} cannot be written (Permission denied); type MODELS=/another/folder"
    assert told(tmp_path / "theirs").startswith(f"{tmp_path / 'theirs'} cannot be read (Permission denied); make it readable")


def test_a_container_sees_the_folders_that_links_lead_to(tmp_path):
    mounts = restrictions.Folders(tmp_path, tmp_path, tmp_path, [tmp_path / "cache"]).mounts()
    assert {"Target": str(tmp_path / "cache"), "Source": str(tmp_path / "cache"), "Type": "bind", "ReadOnly": True} in mounts
    assert sum(not mount["ReadOnly"] for mount in mounts) == 1
