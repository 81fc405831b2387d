"""make compare: a word for every row, and why two rows cannot be compared."""

import dataclasses
import os
import re
import statistics
import subprocess
import sys
import types
from pathlib import Path

import pytest

from scripts import articles, stats
from scripts.errors import KitError, UsageError
from scripts.report import cells, compared_runs, compared_verdicts, comparison
from scripts.verdicts import row_groups
from tests import synthetic
from tests.synthetic import job, record

ROOT = Path(__file__).resolve().parents[2]


def groups(*sides):
    known = comparison.articles_told()
    return [row_groups.build(side, known) for side in sides]


def compared(a, b, across=()):
    return comparison.compare(*groups(a, b), across)


def pairs(a, b, known):
    return compared_verdicts.pairs(*groups(a, b), known)


def words(a, b, **options):
    return {difference.name: (difference.word, difference.reason) for difference in compared(a, b, **options)}


def runs(asked, *means_ms, seed=0):
    """A row: a run of each mean."""
    days = range(1, len(means_ms) + 1)
    return [record(asked, mean_ms, number=day, seed=seed + day, started_at=f"2026-11-0{day}T04:10:00Z") for day, mean_ms in zip(days, means_ms, strict=True)]


@pytest.mark.parametrize(("means_ms", "word"), [((50.0, 60.0), "slower"), ((60.0, 50.0), "faster"), ((50.0, 50.01), "undecided")])
def test_a_row_is_faster_slower_or_undecided(means_ms, word):
    before, after = (runs(job("int8"), *[mean_ms] * 5, seed=seed) for seed, mean_ms in zip((0, 10), means_ms, strict=True))
    (difference,) = compared(before, after)
    assert difference.word == word and difference.ratio.value == pytest.approx(means_ms[1] / means_ms[0], rel=0.01)


def test_the_interval_is_that_of_the_verdicts_over_runs_and_not_over_calls():
    before, after = runs(job("int8"), *[50.0] * 5), runs(job("int8"), 60.0, 61.0, 40.0, 62.0, 45.0, seed=10)
    (difference,) = compared(before, after)
    assert difference.ratio == stats.ratio_over_runs(*([statistics.fmean(run.guest.measurements[0]["timed_ms"]) for run in row] for row in (after, before)))
    assert difference.word == "undecided" and difference.ratio.low < 1 < difference.ratio.high


def test_rows_that_were_asked_different_things_are_not_compared():
    before, after = runs(job("int8"), *[50.0] * 5), runs(job("int8", prompt="another"), *[60.0] * 5)
    assert list(words(before, after).values()) == [("not comparable", "int8 and int8 ran different models or prompts")]


def test_what_cannot_be_compared_says_why():
    right = record(job("int8"), 50.0)
    wrong = record(job("int8"), 40.0, checked=synthetic.check(0.4, passed=False))
    ((word, reason),) = words([right], [wrong]).values()
    assert word == "not comparable" and "output differs by 40 %" in reason
    assert words([right], [record(job("int8"), 51.0)]).popitem()[1] == ("not comparable", "A and B: 1 run, 5 are needed")
    several = runs(job("int8"), *[51.0] * 5)
    assert words([right], several).popitem()[1] == ("not comparable", "A: 1 run, 5 are needed")
    assert words(several, [right]).popitem()[1] == ("not comparable", "B: 1 run, 5 are needed")
    assert words([right], several[:3]).popitem()[1][1] == "A: 1 run, 5 are needed; B: 3 runs, 5 are needed"
    compared = words([right, record(job("bminf"), 9.0)], [right])
    assert compared["inference-tools/bminf, on 1, 1 new token"] == ("only in A", "")


def test_a_row_whose_padded_output_is_another_one_is_not_compared():
    wrong = runs(job("deepspeed", 2), 10.0, 10.1, 10.2, 10.1, 10.0)
    for one in wrong:
        one.guest.figures["cycles"] = {"padded_logits_relative_error": None}
    ((word, reason),) = words(wrong, runs(job("deepspeed", 2), 5.0, 5.1, 5.2, 5.1, 5.0)).values()
    assert word == comparison.NOT_COMPARABLE and "another one when padded" in reason


def test_the_same_runs_are_no_difference_and_are_counted_above_and_not_listed():
    row, other = runs(job("int8"), 50.0, 51.0), runs(job("bminf"), 90.0)
    differences = compared([*row, *other], row)
    assert [difference.word for difference in differences] == [comparison.SAME, comparison.ONLY_A]
    text = str(comparison.markdown(differences))
    counts = "0 faster, 0 slower, 0 undecided, 0 not comparable, 1 the same runs, 1 only in A, 0 only in B"
    assert text.splitlines()[0] == f"2 rows: {counts}. Rows of the same runs are not listed."
    assert "bminf" in text and "int8" not in text
    same = str(comparison.markdown(compared(row, row)))
    assert same.startswith("1 row: 0 faster") and same.endswith(" 0 only in B. Nothing changed.")
    assert all(
        set(mark) <= set(":-") and mark.count("-") >= 2 for line in text.splitlines() if line.startswith("| :") for mark in line.strip("| ").split(" | ")
    )


@pytest.mark.slow
def test_a_threshold_says_nothing_against_the_same_runs(tmp_path):
    synthetic.write(tmp_path / "runs", runs(job("int8"), 50.0, 51.0))
    done = run(A=str(tmp_path / "runs"), B=str(tmp_path / "runs"), THRESHOLD="5")
    assert (done.returncode, done.stderr) == (0, "") and "1 the same runs" in done.stdout


def test_many_rows_of_one_side_are_a_line_and_are_listed_on_request():
    row = runs(job("int8"), *[50.0] * 5)
    others = [one for count in range(1, 12) for one in runs(job("bminf", count), 90.0)]
    few = others[:10]
    differences = compared([*row, *others], [*runs(job("int8"), *[60.0] * 5, seed=10), record(job("deepspeed"), 9.0)])
    text = str(comparison.markdown(differences))
    assert "11 only in A, 1 only in B." in text.splitlines()[0]
    assert text.splitlines()[2] == "11 rows are only in A and not listed here; ALL_ROWS=1 lists them."
    assert "bminf" not in text and re.search("deepspeed, .* only in B", text) and re.search("int8, .* slower", text)
    assert str(comparison.markdown(differences, all_rows=True)).count("bminf") == 11
    assert str(comparison.markdown(compared([*row, *few], row))).count("bminf") == 10
    assert "No row is in both" in comparison.markdown(compared(others, row))


def test_the_verdicts_of_both_sides_stand_side_by_side_where_both_have_other_runs_of_a_claim(capsys):
    def measured(tensor_parallel_ms, seed, runs_each=5, stack="current"):
        of_rows = (("layer-parallel", 50.0), ("tensor-parallel", tensor_parallel_ms))
        return [one for case, mean_ms in of_rows for one in runs(job(case, 2, stack=stack), *[mean_ms] * runs_each, seed=seed)]

    known = articles.load_all()
    a, b = measured(40.0, 0) + measured(60.0, 30, stack="hopper"), measured(60.0, 10)
    (pair,) = pairs(a, b, known)
    assert (pair.claim, pair.a.verdict.word, pair.b.verdict.word) == ("inference-tools 1.2", "holds", "refuted")
    assert pair.measured_on.startswith("current · 2 × SYNTHETIC GPU"), "on the stack of B, whatever the stack of A's own headline is"
    assert re.search(r"\| inference-tools 1\.2 \| \*\*holds\*\* +\| \*\*refuted\*\* +\| current", compared_verdicts.table([pair]))
    (pair,) = pairs(measured(60.0, 30, stack="hopper"), b, known)
    assert re.match("A: hopper .*; B: current ", pair.measured_on)
    few = measured(60.0, 20, runs_each=1)
    assert [pair.b.verdict.word for pair in pairs(a, few, known)] == ["not tested"]
    assert pairs(few, few[::-1], known) == pairs(b, b, known) == pairs(a, a[:10], known) == []
    wrong = {"id": "9", "text": "", "relations": [{"case": "int8", "peak_memory_below_bytes": 24}]}
    broken = {**known, "inference-tools": dataclasses.replace(known["inference-tools"], claims=[wrong])}
    assert pairs(a, b, broken) == [] and "; its verdicts are not compared" in capsys.readouterr().err


def test_two_verdicts_that_hold_in_part_tell_which_parts_hold():
    def measured(deepspeed_ms, seed):
        of_rows = (("layer-parallel", [100.0] * 5), ("deepspeed", deepspeed_ms))
        return [one for case, means_ms in of_rows for one in runs(job(case, 2), *means_ms, seed=seed)]

    a, b = measured([50.0] * 5, 0), measured([30.0, 40.0, 30.0, 40.0, 30.0], 10)
    (line,) = [line for line in compared_verdicts.table(pairs(a, b, articles.load_all())).splitlines() if "inference-tools 1.5" in line]
    _, _, by_a, by_b, *_ = [cell.strip() for cell in line.split("|")]
    assert by_a == "**holds in part**: faster: holds; 3.83 times: refuted"
    assert by_b == "**holds in part**: faster: holds; 3.83 times: undecided"


def test_a_row_of_one_side_names_what_it_may_differ_in():
    (only,) = compared(runs(job("int8"), 50.0, 51.0), runs(job("bminf"), 90.0, 91.0), ["stack"])[:1]
    assert (only.word, only.sides) == ("only in A", ("current", ""))


def test_rows_of_different_stacks_are_compared_only_when_asked():
    a = runs(job("int8"), *[50.0] * 5) + runs(job("bminf"), *[50.0] * 5)
    b = runs(job("int8", stack="hopper"), *[60.0] * 5) + runs(job("bminf", stack="hopper"), *[60.0] * 5)
    assert [difference.word for difference in compared(a, b)] == ["only in A", "only in A", "only in B", "only in B"]
    assert {word for word, _ in words(a, b, across=["stack"]).values()} == {"slower"}


def on(cores, asked, mean_ms, cpu="Xeon", memory_gib=24):
    """A row of five runs in a host of so many cores."""
    five = runs(asked, *[mean_ms] * 5, seed=cores)
    for one in five:
        one.host["machine"] = {"cpu": cpu, "cpu_count": cores}
        one.host["gpus"] = [{**gpu, "memory_total_bytes": memory_gib << 30} for gpu in one.host["gpus"]]
    return five


def test_rows_of_two_kinds_of_host_are_set_side_by_side_only_when_asked():
    a, b = on(16, job("int8"), 50.0), on(64, job("int8"), 60.0, cpu="EPYC")
    apart = compared(a, b)
    assert [difference.word for difference in apart] == ["only in A", "only in B"]
    (difference,) = compared(a, b, across=["host"])
    assert (difference.word, difference.sides) == ("slower", ("Xeon, 16-core host", "EPYC, 64-core host"))
    assert difference.setting.startswith("current, docker, cuda, SYNTHETIC GPU, 24 GiB, compute capability 8.6, random")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (on(64, job("int8"), 60.0), "; with ACROSS=host some are."),
        (on(64, job("int8"), 60.0, memory_gib=48), "; with ACROSS=device some are."),
        (on(64, job("int8", stack="hopper"), 60.0), "; with ACROSS=stack,host some are."),
        (runs(job("int8", device="cpu"), 60.0) + on(64, job("int8"), 60.0), "; with ACROSS=host some are."),
        (on(16, job("int8", stack="hopper"), 60.0) + on(64, job("int8"), 60.0), "; with ACROSS=stack or ACROSS=host some are."),
        (on(16, job("bminf"), 60.0), ", whatever ACROSS lets differ."),
    ],
)
def test_where_no_row_is_in_both_the_shortest_values_of_across_are_told_with_which_some_are(other, told):
    row = on(16, job("int8"), 50.0)
    apart = compared(row, other)
    first, *_ = str(comparison.markdown(apart, across=comparison.across_that_match(*groups(row, other)))).splitlines()
    assert first.endswith(f" only in B. No row is in both A and B{told}")
    assert not comparison.is_without_a_pair(compared([*row, *other], row))


def test_across_hosts_a_gpu_with_other_memory_is_another_row():
    a, b = on(16, job("int8"), 50.0), on(64, job("int8"), 60.0, memory_gib=48)
    assert [difference.word for difference in compared(a, b, across=["host"])] == ["only in A", "only in B"]


def test_each_of_the_rows_that_differ_in_the_host_alone_has_a_line_of_its_own():
    a = on(16, job("int8"), 50.0) + on(32, job("int8"), 70.0)
    b = on(64, job("int8"), 60.0) + on(64, job("bminf"), 9.0)
    lines = compared(a, b, across=["host"])
    assert [(difference.word, difference.sides[0], difference.reason) for difference in lines] == [
        ("slower", "Xeon, 16-core host", ""),
        ("faster", "Xeon, 32-core host", ""),
        ("only in B", "", ""),
    ]
    table = comparison.markdown(lines)
    assert "No row is in both" not in str(table)
    assert re.search(r"\| inference-tools/int8, on 1, 1 new token +\| Xeon, 16-core host \| Xeon, 64-core host \| slower ", table)


def test_rows_without_a_time_have_a_line_too():
    (difference,) = compared(*([record(job("int8"), status="oom", reason="full", number=number)] for number in (1, 2)))
    assert difference.word == comparison.NOT_COMPARABLE and difference.name == "inference-tools/int8, on 1"


def test_rows_stand_in_the_order_of_the_article_s_cases_unless_its_file_has_a_mistake(mistaken):
    def names():
        rows = [record(job(case), 50.0) for case in ("bminf", "int8", "transformers")]
        return [difference.name.partition(",")[0].partition("/")[2] for difference in compared(rows, rows)]

    assert names() == ["transformers", "int8", "bminf"]
    mistaken("demo")
    assert names() == ["transformers", "int8", "bminf"]
    mistaken("inference-tools")
    assert names() == ["bminf", "int8", "transformers"]


@pytest.mark.parametrize("slug", ["mine", "inference-tools"])
def test_a_mistake_in_an_article_s_file_is_told_and_stops_no_comparison(mistaken, capsys, slug):
    a, b = runs(job("int8"), *[50.0] * 5), runs(job("int8"), *[60.0] * 5, seed=10)
    before = compared(a, b)
    mistaken(slug)
    assert compared(a, b) == before and before[0].word == "slower"
    told = capsys.readouterr().err
    assert told.startswith(f"note: {slug}.toml: not TOML: ") and told.endswith("; its rows are compared all the same, in the order of their names\n")


def run(**typed):
    kept = {name: value for name, value in os.environ.items() if name not in ("A", "B", "ACROSS", "THRESHOLD", "RUNS")}
    return subprocess.run([sys.executable, "-m", "scripts", "compare"], cwd=ROOT, env=kept | typed, capture_output=True, text=True)


def test_slower_by_more_than_a_threshold_is_the_whole_interval():
    slower = comparison.Difference("row", "", comparison.SLOWER, stats.Estimate(1.10, 1.04, 1.16))
    assert slower.is_slower_by(3) and not slower.is_slower_by(4) and not slower.is_slower_by(5)


@pytest.mark.slow
def test_the_threshold_decides_the_exit_code(tmp_path):
    synthetic.write(tmp_path / "a", runs(job("int8"), *[50.0] * 5))
    synthetic.write(tmp_path / "b", runs(job("int8"), *[60.0] * 5, seed=10))
    sides = {"A": str(tmp_path / "a"), "B": str(tmp_path / "b")}
    plain, above, below = (run(**sides, **more) for more in ({}, {"THRESHOLD": "25"}, {"THRESHOLD": "5"}))
    assert [plain.returncode, above.returncode, below.returncode] == [0, 0, 1]
    assert re.search(r"published\*\*\n\n.*\n.*\n\| inference-tools/int8, on 1, 1 new token \| slower +\| 50\.0  \| 60\.0  \| 1\.200 \(", plain.stdout)


@pytest.mark.slow
def test_two_single_runs_are_compared_whatever_they_differ_in(tmp_path):
    a, b = runs(job("int8"), 50.0), runs(job("int8", stack="hopper"), 60.0)
    for name, side in (("a", a), ("b", b), ("two", [*b, *runs(job("bminf"), 9.0)])):
        synthetic.write(tmp_path / name, side)
    single, beside_another = (run(A=str(tmp_path / "a"), B=str(tmp_path / name)).stdout for name in ("b", "two"))
    assert re.search(r"\| inference-tools/int8, on 1, 1 new token \| current, .* \| hopper, .* \| not comparable \|", single), single
    assert "No row is in both A and B; with ACROSS=stack some are." in beside_another, beside_another


@pytest.mark.slow
def test_two_revisions_of_the_repository_are_compared():
    done = run(A="HEAD", B="reports/runs")
    counted = re.match(r"(\d+) rows: .*, (\d+) the same runs, ", done.stdout)
    assert done.returncode == 0 and counted and int(counted[2]) > 50, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({}, "A is missing"),
        ({"A": "HEAD", "B": "no-such-thing"}, "B is 'no-such-thing', allowed are a run's id, a folder of runs or a git revision with reports/runs; try B="),
        ({"A": "HEAD", "B": "HEAD", "ACROSS": "moon"}, "ACROSS is 'moon', allowed are stack, device, host, engine, weights"),
        ({"A": "HEAD", "B": "HEAD", "THRESHOLD": "much"}, "THRESHOLD is 'much', allowed is a number of per cent"),
    ],
)
def test_a_wrong_value_explains_itself(typed, told):
    done = run(**typed)
    assert done.returncode == 2 and told in done.stderr


@pytest.mark.slow
def test_a_side_without_a_run_is_refused_and_a_threshold_over_nothing_fails(tmp_path):
    synthetic.write(tmp_path / "a" / "runs", runs(job("int8"), 50.0))
    synthetic.write(tmp_path / "b" / "runs", runs(job("bminf"), 50.0))
    damaged = tmp_path / "b" / "runs" / "damaged-01"
    damaged.mkdir()
    (damaged / "result.json").write_text("{")
    above = run(A=str(tmp_path / "a"), B=str(tmp_path / "b" / "runs"))
    assert above.returncode == 2 and f"which holds no run; try A={tmp_path / 'a' / 'runs'}" in above.stderr
    sides = {"A": str(tmp_path / "a" / "runs"), "B": str(tmp_path / "b" / "runs")}
    plain, judging = run(**sides), run(**sides, THRESHOLD="5")
    assert (plain.returncode, judging.returncode) == (0, 1)
    assert "THRESHOLD=5 judged nothing" in judging.stderr and "skipped" in plain.stderr and "damaged-01" in plain.stderr


@pytest.mark.slow
def test_a_threshold_over_rows_of_too_few_runs_fails(tmp_path):
    for name, means_ms in (("a", [50.0]), ("b", [90.0]), ("five", [90.0] * 5)):
        synthetic.write(tmp_path / name, runs(job("int8"), *means_ms, seed=len(name)))
    few, enough = (run(A=str(tmp_path / a), B=str(tmp_path / b), THRESHOLD="5") for a, b in (("a", "b"), ("five", "five")))
    assert few.returncode == 1 and "| not comparable " in few.stdout
    assert "THRESHOLD=5 judged nothing: no row of both may judge, as the column “why” says; five runs of each may: REPEATS=5" in few.stderr
    assert enough.returncode == 0 and "Nothing changed." in enough.stdout


def test_a_folder_that_is_not_there_yet_names_a_command_that_makes_it(tmp_path):
    with pytest.raises(UsageError, match=r"B is '\.\./no/runs', which is not a folder, .*; type make bench-layer-parallel RUNS=\.\./no/runs, which makes"):
        compared_runs.of("B", "../no/runs", tmp_path)
    with pytest.raises(UsageError, match="which holds no run; try B=reports/runs, or type make bench-layer-parallel RUNS="):
        compared_runs.of("B", str(tmp_path), tmp_path)


def test_a_revision_without_a_repository_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(compared_runs, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="A is 'HEAD~1', and there is no git repository here; type a folder: A=reports/runs"):
        compared_runs.of("A", "HEAD~1", tmp_path)


@pytest.mark.parametrize(
    ("place", "link", "attributes", "words"),
    [
        ("reports/runs", "/etc", "", "the archive's member 'reports/runs' is a link"),
        ("reports/runs/a", "/etc", "", "the archive's member 'reports/runs/a' is a link"),
        ("reports/runs/a/b", "", "reports/runs/** export-ignore", "file could not be opened"),
    ],
)
def test_a_revision_whose_runs_cannot_be_unpacked_is_named_with_the_next_step(tmp_path, monkeypatch, place, link, attributes, words):
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).symlink_to(link) if link else (tmp_path / place).write_text("")
    (tmp_path / ".gitattributes").write_text(attributes)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", tmp_path]
    for words_of_git in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=one"]):
        subprocess.run([*git, *words_of_git], check=True)
    monkeypatch.setattr(compared_runs, "ROOT", tmp_path)
    with pytest.raises(KitError, match=f"A is 'HEAD', whose reports/runs cannot be unpacked: {words}.*; try A=reports/runs"):
        compared_runs.of("A", "HEAD", tmp_path / "none")


def test_a_verdict_without_rows_has_no_setting():
    assert compared_verdicts._setting(types.SimpleNamespace(group=None, new_tokens=0)) == cells.NONE
