"""The page of an environment names every run of its rows, so that a number can be cited: by id, raw result, GPUs, days, commit and image."""

import re

import pytest

from scripts import articles
from scripts.report.views import provenance
from scripts.verdicts import row_groups
from tests import synthetic

FIRST = articles.find("inference-tools")


def lines_of(*runs):
    """The lines of the table of runs, each as its cells."""
    (group,) = row_groups.build(list(runs), articles.load_all())
    page = str(provenance.environment(group, FIRST, "../runs"))
    table = page.rpartition("<details><summary>Which runs")[2]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")][2:], page


def ten_runs():
    """Of one row: five on each of two pairs of GPUs, at two commits."""
    runs = synthetic.repeated(synthetic.record(synthetic.job("deepspeed", 2), 12.0), 10)
    for place, run in enumerate(runs):
        synthetic.on_gpus(run, *(("GPU-a", "GPU-b") if place < 5 else ("GPU-c", "GPU-d")))
        run.host["commit"] = ("1" if place < 5 else "2") * 40
        run.host["started_at"] = f"2026-11-{place + 10}T04:10:00Z" if place < 5 else "2026-11-20T04:10:00Z"
    return runs


def test_each_of_ten_runs_of_a_row_is_named_with_its_raw_result_and_the_lines_tell_gpus_days_and_commits() -> None:
    runs = ten_runs()
    (first, second), page = lines_of(*runs)
    days = ", ".join(f"2026-11-{day}" for day in range(10, 15))
    assert (first[2:5], second[2:5]) == (["A B", days, "1" * 12], ["C D", "2026-11-20", "2" * 12])
    places = [place for line in (first, second) for place in re.findall(r"\]\((\S+)\)", line[1])]
    assert places == [f"../runs/{run.id}/result.json" for run in runs]
    assert first[1].startswith(f"[{runs[0].id}](") and "[-02](" in first[1] and second[1].startswith(f"[{runs[5].id}]("), "each line begins with a whole id"
    assert " …" not in page


@pytest.mark.parametrize("differs", ["", "GPUs", "commit", "image"])
def test_runs_share_a_line_only_on_the_same_gpus_at_the_same_commit_and_from_the_same_image(differs: str) -> None:
    first, second = synthetic.repeated(synthetic.record(synthetic.job("int8"), 12.0), 2)
    if differs == "GPUs":
        synthetic.on_gpus(second, "GPU-other")
    elif differs == "commit":
        second.host["commit"] = "2" * 40
    elif differs == "image":
        second.host["image"]["id"] = "sha256:bbbbbbbbbbbbbbbb"
    assert len(lines_of(first, second)[0]) == (2 if differs else 1)


def test_a_run_that_does_not_count_says_why() -> None:
    runs = ten_runs()[:5]
    runs[1].host["conditions"] = {"marks": ["hot"], "disturbed": ["hot"]}
    runs[2].guest.check |= {"passed": False, "reason": "synthetic"}
    ((line,), _) = lines_of(*runs)
    assert re.findall(r"result.json\)( \([^)]*\))?", line[1]) == ["", " (disturbed)", " (wrong output)", "", ""]
    ((failed,), _) = lines_of(synthetic.record(synthetic.job("deepspeed", 2), status="oom", reason="synthetic"))
    assert failed[1].endswith(" (oom)")
