"""A sweep over batch sizes on a real tiny model: a run for each size, none twice, rows of their own."""

import pytest

from scripts import articles
from scripts.run import plan, rounds
from scripts.verdicts import row_groups
from tests.typed import chosen


@pytest.mark.full
def test_one_command_runs_every_size_once_and_another_runs_none_again(models, monkeypatch, tmp_path):
    monkeypatch.setenv("MODELS", str(models))
    settings = {"ARTICLE": "demo", "STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random", "RUNS": str(tmp_path)}
    asked = chosen(**{**settings, "BATCH_SIZES": "3"})
    (planned,) = [one for one in plan.plan(["transformers"], asked, every=False) if one.case.name == "llama-transformers"]
    (first,) = rounds.run_all([planned], asked, keep_going=False)
    assert (first.status, first.guest.batch_size, first.guest.check["passed"]) == ("ok", 3, True)
    assert ".controlled.b3.demo." in first.id
    assert sorted(path.name for path in (tmp_path / first.id).iterdir()) == ["job.json", "log.txt", "result.json", "tokens.json"]
    kept = (tmp_path / first.id / "job.json").read_text() + (tmp_path / first.id / "result.json").read_text()
    assert '"path": "models/random/' in kept and str(models) not in kept

    records = rounds.run_all([planned], chosen(**{**settings, "BATCH_SIZES": "3,1"}), keep_going=False)
    assert [(one.status, one.guest.batch_size, one.guest.check["passed"]) for one in records] == [("ok", 1, True), ("ok", 3, True)]
    assert records[1].id == first.id and len(list(tmp_path.iterdir())) == 2
    (group,) = row_groups.build(records, articles.load_all())
    assert [(row.name, row.batch_size) for row in group.rows] == [("llama-transformers", 1), ("llama-transformers b3", 3)]
    assert group.row_of("llama-transformers", 1, 3).batch_size == 3
    assert group.row_of("llama-transformers", 1).batch_size == 1
    assert group.row_of("llama-transformers", 1, 4) == "llama-transformers in batch 4 was not run in this setting (stack demo)"
