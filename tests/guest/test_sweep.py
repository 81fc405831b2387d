"""A sweep over batch sizes on a real tiny model: a run for each size, none twice, rows of their own."""

import pytest

from scripts import articles
from scripts.run import checkpoints, options, plan
from scripts.verdicts import row_groups


@pytest.mark.usefixtures("python")
def test_one_command_runs_every_size_once_and_another_runs_none_again(tmp_path):
    settings = {"ARTICLE": "demo", "STACK": "demo", "ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random"}
    asked = options.parse({**settings, "BATCH_SIZES": "3,1"})
    (planned,) = [one for one in plan.plan(["transformers"], asked, every=False) if one.case.name == "llama-transformers"]
    records = plan.run_all([planned], asked, tmp_path, keep_going=False)
    assert [(one.status, one.guest.batch_size, one.guest.check["passed"]) for one in records] == [("ok", 1, True), ("ok", 3, True)]
    assert ".controlled.b3.demo." in records[1].id
    kept = (tmp_path / records[1].id / "job.json").read_text() + (tmp_path / records[1].id / "result.json").read_text()
    assert '"path": "models/random/' in kept and str(checkpoints.folder()) not in kept
    again = plan.run_all([planned], options.parse({**settings, "BATCH_SIZES": "1,2,3"}), tmp_path, keep_going=False)
    assert [one.guest.batch_size for one in again] == [1, 2, 3]
    assert (again[0].id, again[2].id) == (records[0].id, records[1].id)
    (group,) = row_groups.build(again, articles.load_all())
    assert [(row.name, row.batch_size) for row in group.rows] == [("llama-transformers", 1), ("llama-transformers b2", 2), ("llama-transformers b3", 3)]
    assert group.row_of("llama-transformers", 1, 2).batch_size == 2
    assert group.row_of("llama-transformers", 1).batch_size == 1
    assert group.row_of("llama-transformers", 1, 4) == "llama-transformers b4 was not run here"
