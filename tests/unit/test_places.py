"""What is kept of a job names no folder of this machine."""

import dataclasses
import os
import subprocess

import pytest

from scripts.errors import UsageError
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
    monkeypatch.setenv("KIT_COMMIT", "\udce9")
    with pytest.raises(UsageError, match="KIT_COMMIT is .*, allowed is a commit"):
        host_facts.git_state()
    monkeypatch.delenv("KIT_COMMIT")
    commit, _ = host_facts.git_state()
    assert commit == "unknown" or len(commit) == 40


def test_asking_git_for_its_state_locks_nothing_that_a_kill_could_leave_locked(tmp_path, monkeypatch):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    kept = tmp_path / "kept.txt"
    kept.write_text("text")
    git("init")
    git("add", "kept.txt")
    git("commit", "-m", "one")
    os.utime(kept, (1, 1))  # git reads the file again, and would store in its index that it is unchanged
    before = (tmp_path / ".git" / "index").read_bytes()
    monkeypatch.delenv("KIT_COMMIT", raising=False)
    monkeypatch.setattr(host_facts, "ROOT", tmp_path)
    assert host_facts.git_state()[1] is False
    assert (tmp_path / ".git" / "index").read_bytes() == before
    git("status")
    assert (tmp_path / ".git" / "index").read_bytes() != before, "git itself stores it"


def test_new_code_counts_as_a_change_also_where_git_shows_its_user_no_new_files(tmp_path, monkeypatch):
    (tmp_path / "gitconfig").write_text("[status]\n\tshowUntrackedFiles = no\n[user]\n\tname = n\n\temail = e\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.delenv("KIT_COMMIT", raising=False)
    kit = tmp_path / "kit"
    for words in (["init", "--quiet", str(kit)], ["-C", str(kit), "commit", "--quiet", "--allow-empty", "--message=one"]):
        subprocess.run(["git", *words], check=True)
    monkeypatch.setattr(host_facts, "ROOT", kit)
    (kit / "reports").mkdir()
    (kit / "reports/result.json").write_text("{}")
    assert host_facts.git_state()[1] is False, "results are no code"
    (kit / "backend.py").write_text("pass")
    assert host_facts.git_state()[1] is True
