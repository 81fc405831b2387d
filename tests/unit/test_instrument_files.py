"""What an instrument writes takes the place of an earlier file whole: a reader of the earlier one still has all of it."""

import json
import os
from pathlib import Path

import pytest

from bench.instruments import fault_table, layers, weights_and_times
from bench.job import to_json
from tests import synthetic


def of_fault_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault_table.write({"shape": "bloom-7b1", "scale": "tiny", "dtype": "float32", "new_tokens": 4, "bits": [4], "candidates": []}, str(path))


def of_layers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "job.json").write_text(to_json(synthetic.job("transformers")))
    monkeypatch.setattr(layers, "compare", lambda job: {"with_mask": {"layers": [0.0, 0.5], "logits": 0.25}})
    layers.main(str(path.parent / "job.json"), str(path))


def of_weights_and_times(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_and_times, "run", lambda options: {"q1": {"1x1": [1.0, 2.0]}})
    weights_and_times.main(["bloom-7b1", "--candidates", "q1", "--out", str(path)])


@pytest.mark.parametrize(("write", "key"), [(of_fault_table, "candidates"), (of_layers, "with_mask"), (of_weights_and_times, "ms")])
def test_an_instrument_replaces_its_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write, key: str) -> None:
    out, earlier = tmp_path / "out.json", tmp_path / "earlier"
    out.write_text("an earlier table")
    os.link(out, earlier)
    write(out, monkeypatch)
    assert key in json.loads(out.read_text()) and earlier.read_text() == "an earlier table"
