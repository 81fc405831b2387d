"""Runs that share a name in different folders of results do not hinder each other."""

from pathlib import Path

from scripts.machine import locks
from scripts.run import runner


def unfinished(runs: Path) -> Path:
    """The work folder of a run that has no result yet."""
    work = runs / "demo.llama-01" / "work"
    work.mkdir(parents=True)
    return work


def test_a_living_run_keeps_its_work_and_a_dead_one_of_the_same_name_elsewhere_loses_it(tmp_path: Path) -> None:
    living, dead = (unfinished(tmp_path / name) for name in ("mine", "yours"))
    with locks.take(runner._lock_of(living.parent)):
        assert list(runner.sweep_unfinished(tmp_path / "mine")) == []
        assert list(runner.sweep_unfinished(tmp_path / "yours")) == [dead.parent]
    assert living.is_dir() and not dead.exists()


def test_a_folder_of_results_is_the_same_by_any_name(tmp_path: Path) -> None:
    work = unfinished(tmp_path / "runs")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    with locks.take(runner._lock_of(work.parent)):
        assert list(runner.sweep_unfinished(tmp_path / "link")) == []
    assert work.is_dir()
