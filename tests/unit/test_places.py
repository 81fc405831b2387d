"""What is kept of a job names no folder of this machine."""

import dataclasses

from scripts.run import checkpoints, host_facts
from tests.synthetic import job


def test_the_models_folder_of_this_machine_is_not_kept(tmp_path):
    asked = job("int8")
    here = dataclasses.replace(asked, model={**asked.model, "path": f"{tmp_path}/random/x"}, reference=f"{tmp_path}/references/y.npz")
    kept = checkpoints.without_places(here, tmp_path)
    assert (kept.model["path"], kept.reference) == ("models/random/x", "models/references/y.npz")
    assert kept.fingerprint() == asked.fingerprint()


def test_a_container_s_own_places_stay(tmp_path):
    asked = job("int8")
    inside = dataclasses.replace(asked, model={**asked.model, "path": "/models/random/x"})
    assert checkpoints.without_places(inside, tmp_path) == inside


def test_a_copy_of_the_kit_is_told_which_commit_it_is(monkeypatch):
    monkeypatch.setenv("KIT_COMMIT", "c0ffee")
    assert host_facts.git_state() == ("c0ffee", False)
    monkeypatch.delenv("KIT_COMMIT")
    commit, _ = host_facts.git_state()
    assert commit == "unknown" or len(commit) == 40
