"""scripts/pins/base_digests.py: digests of base images are recorded once, where a registry answers, and change nothing else."""

import shutil

import pytest

from scripts import paths, pins
from scripts.pins import base_digests

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A `docker` command that answers as given, and a copy of pins.toml."""
    (tmp_path / "docker").mkdir()
    shutil.copy(paths.ROOT / "docker/pins.toml", tmp_path / "docker")

    def answer(script: str) -> pins.Pins:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin/docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/docker").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        return pins.load(tmp_path)

    return answer


def test_a_registrys_digests_are_written_and_become_part_of_the_base(registry):
    loaded = registry(f"echo {DIGEST}")
    lines = base_digests.record(loaded)
    assert f"python:3.8-slim-bookworm: {DIGEST} recorded in docker/pins.toml" in lines
    after = pins.load(loaded.root)
    assert after.image("int8", "2023-02").base == f"python:3.8-slim-bookworm@{DIGEST}"
    assert after.image("deepspeed", "hopper").options["compile"]["base"]["digest"] == DIGEST
    assert base_digests.without_digest((loaded.root / "docker/pins.toml").read_text()) == []
    before = (paths.ROOT / "docker/pins.toml").read_text()
    assert (loaded.root / "docker/pins.toml").read_text().replace(DIGEST, "") == before.replace(DIGEST, "")


def test_whoever_reads_the_pins_while_digests_are_written_reads_the_earlier_ones_whole(registry):
    loaded = registry(f"echo {DIGEST}")
    path = loaded.root / "docker/pins.toml"
    before = path.read_text()
    with path.open() as reader:
        base_digests.record(loaded)
        assert reader.read() == before != path.read_text()


def test_a_digest_that_is_there_stays(registry):
    loaded = registry(f"echo {DIGEST}")
    base_digests.record(loaded)
    loaded = registry("echo sha256:" + "cd" * 32)
    assert base_digests.record(loaded) == []
    assert pins.load(loaded.root).image("int8", "2023-02").base.endswith(DIGEST)


def test_no_further_image_is_asked_for_after_one_without_an_answer(registry, monkeypatch):
    asked = []
    monkeypatch.setattr(base_digests, "ask", lambda reference: asked.append(reference) or "")
    base_digests.record(registry("exit 1"))
    assert len(asked) == 1 < len(base_digests.without_digest((paths.ROOT / "docker/pins.toml").read_text()))


@pytest.mark.parametrize("script", ["exit 1", "echo nothing useful", "echo sha256:short"])
def test_without_an_answer_the_bases_are_named_and_nothing_is_written(registry, script):
    loaded = registry(script)
    before = (loaded.root / "docker/pins.toml").read_text()
    lines = base_digests.record(loaded)
    assert len(lines) == 1 and "python:3.8-slim-bookworm" in lines[0] and "pinned only by their tag" in lines[0]
    assert (loaded.root / "docker/pins.toml").read_text() == before
