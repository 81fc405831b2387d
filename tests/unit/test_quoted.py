"""scripts/report/quoted.py: a number in a hand-written page is that of its result, or make check fails."""

import dataclasses
import json
import statistics

import pytest

from scripts.errors import KitError
from scripts.paths import ROOT
from scripts.report import file_numbers, quoted
from tests import committed
from tests.synthetic import busy, job, record, repeated

SLOW = record(job("layer-parallel", 2), 30.0, spread=0.0)
FAST = record(job("deepspeed", 2, new_tokens=(1, 16)), (10.0, 90.0), spread=0.0, peak_gib=9.5)
RUNS = [*repeated(SLOW, 5, 0.02), *repeated(FAST, 5, 0.02)]
SLOWER, FASTER = (one.id.rpartition("-")[0] for one in (SLOW, FAST))


def number(marker, records=RUNS):
    """What stands between the two comments."""
    return quoted.filled("PAGE.md", f"It takes <!-- {marker} -->?<!-- end --> in all.", records).partition("-->")[2].partition("<!--")[0]


@pytest.mark.parametrize(
    ("marker", "digits"),
    [
        (f"mean_ms {SLOWER}", "30.0"),
        (f"mean_ms {SLOWER}-03 decimals=2", "30.00"),
        (f"mean_ms {SLOWER}-05 decimals=2", "30.61"),
        (f"mean_ms {SLOWER}-04..05 decimals=2", "30.45"),
        (f"ratio {SLOWER}-01..02 {FASTER}-03..05 tokens=1 decimals=3", "2.926"),
        (f"mean_ms {FASTER} tokens=16 decimals=0", "90"),
        (f"mean_ms {SLOWER} decimals=2 times=3 per=1000", "0.09"),
        (f"mean_ms {SLOWER} times=3 per=1000", "0.090"),
        (f"fastest_ms {SLOWER} decimals=2", "29.41"),
        (f"slowest_ms {SLOWER} decimals=2", "30.61"),
        (f"spread {SLOWER} decimals=3", "1.041"),
        (f"peak_gib {FASTER} decimals=1", "9.5"),
        (f"ratio {SLOWER} {FASTER} tokens=1", "3.00"),
        (f"ratio {SLOWER}-01 {FASTER}-05 tokens=1 decimals=3", "2.882"),
        (f"ratio_interval {SLOWER} {FASTER} tokens=1 decimals=1", "2.9 to 3.1"),
    ],
)
def test_a_number_is_that_of_the_runs_that_its_marker_names(marker, digits):
    assert number(marker) == digits


def test_numbers_of_runs_and_files_that_are_not_there_are_counted(tmp_path):
    (tmp_path / "read.json").write_text("[3]")
    page = tmp_path / quoted.PAGES[0].relative_to(ROOT)
    markers = [f"mean_ms {SLOWER}", f"mean_ms {SLOWER}-09", f"ratio {SLOWER}-04..06 {SLOWER}", f"spread {FASTER} tokens=1", "value read.json 0"]
    page.write_text("".join(f"<!-- {marker} -->1<!-- end -->\n" for marker in [*markers, "value_ratio read.json 0 gone.json 0", f"value {'a' * 300}.json 0"]))
    assert (quoted.unfounded(tmp_path, RUNS), quoted.unfounded(tmp_path, [])) == (4, 6)


def test_the_kit_holds_the_runs_and_files_of_each_number_that_its_pages_quote():
    assert quoted.unfounded(ROOT, committed.every()) == 0


def test_a_row_s_number_is_of_its_undisturbed_runs_as_in_the_report_and_runs_that_are_named_all_count():
    *others, fastest = repeated(SLOW, 5, 0.02)
    disturbed = dataclasses.replace(fastest, host={**fastest.host, "conditions": {"marks": ["hot"], "disturbed": ["hot"]}})
    runs = [*others, disturbed]
    assert number(f"slowest_ms {SLOWER} decimals=2") == number(f"slowest_ms {SLOWER}-01..05 decimals=2", runs) == "30.61"
    assert number(f"slowest_ms {SLOWER} decimals=2", runs) == "30.30"
    assert number(f"mean_ms {SLOWER}-05 decimals=2", runs) == number(f"mean_ms {SLOWER} decimals=2", [disturbed]) == "30.61", "no other run is there"


def test_a_ratio_over_sets_of_gpus_takes_each_set_as_one_number():
    runs = [*repeated(record(SLOW.job, 30.0, spread=0.0), 3, 0.0), *repeated(record(FAST.job, (10.0, 90.0), spread=0.0), 3, 0.0)]
    with pytest.raises(KitError, match="one set of GPUs ran all runs"):
        number(f"sets_ratio {SLOWER} {FASTER} tokens=1", runs)
    for run in runs:
        run.host["gpus"] = [{**gpu, "uuid": f"GPU-{run.number}-{gpu['index']}"} for gpu in run.host["gpus"]]
        run.guest.measurements[0]["timed_ms"] = [
            ms * (2**run.number if run.job.case == "layer-parallel" else 1) for ms in run.guest.measurements[0]["timed_ms"]
        ]
    assert number(f"sets_ratio {SLOWER} {FASTER} tokens=1 decimals=1", runs) == "12.0", "of 6, 12 and 24"
    assert number(f"sets_ratio_interval {SLOWER} {FASTER} tokens=1 decimals=2", runs) == "2.14 to 67.14"
    two = [run for run in runs if run.number < 3]
    with pytest.raises(KitError, match="fewer than 3 sets of GPUs carry no interval"):
        number(f"sets_ratio_interval {SLOWER} {FASTER} tokens=1", two)


def test_an_id_without_its_number_stands_for_the_row_whatever_ids_its_other_runs_have():
    """An earlier kit put less into an id."""
    earlier = [dataclasses.replace(run, id=f"{SLOWER}earlier-0{place}") for place, run in enumerate(repeated(record(SLOW.job, 60.0, spread=0.0), 2, 0.02), 1)]
    row = [*repeated(SLOW, 3, 0.02), *earlier, *repeated(FAST, 5, 0.02)]
    assert number(f"slowest_ms {SLOWER} decimals=0", row) == "61" == number(f"slowest_ms {SLOWER}earlier decimals=0", row)
    assert number(f"fastest_ms {SLOWER}earlier decimals=0", row) == "29" and number(f"mean_ms {SLOWER}-01 decimals=0", row) == "29"


def test_an_id_that_stands_for_two_rows_is_refused():
    """An earlier kit put no kind of machine into an id."""
    other = dataclasses.replace(SLOW, id=f"{SLOWER}-06", host={**SLOW.host, "machine": {**SLOW.host["machine"], "cpu_count": 7}})
    with pytest.raises(KitError, match="stands for runs of two rows; name one run"):
        number(f"mean_ms {SLOWER} decimals=0", [*RUNS, other])
    assert number(f"mean_ms {SLOWER}-06 decimals=0", [*RUNS, other]) == "30"


def test_some_runs_of_a_row_have_all_ended_well():
    failed = [dataclasses.replace(run, status="failed", reason="no") if run.number == 2 else run for run in RUNS]
    with pytest.raises(KitError, match=rf"there is no run {SLOWER}-01..03; "):
        number(f"mean_ms {SLOWER}-01..03 decimals=0", failed)


@pytest.mark.parametrize("numbers", ["05..06", "00..01", "03..02"])
def test_some_runs_of_a_row_are_all_there_or_the_marker_is_refused(numbers):
    with pytest.raises(KitError, match=rf"there is no run {SLOWER}-{numbers}; "):
        number(f"mean_ms {SLOWER}-{numbers} decimals=0")


def test_the_rest_of_the_page_stays_as_it_is():
    text = f"A <!-- comment --> and <!-- mean_ms {SLOWER} -->1<!-- end --> ms.\n"
    assert quoted.filled("PAGE.md", text, RUNS) == text.replace(">1<", ">30.0<")


def test_an_item_ratio_counts_the_items_of_a_call():
    batch = record(dataclasses.replace(FAST.job, case="batch", prompt={**FAST.job.prompt, "batch_size": 8}), (10.0, 90.0), spread=0.0)
    assert number(f"item_ratio {SLOWER} {batch.id} tokens=1 decimals=1", [*RUNS, batch]) == "24.0"
    row = repeated(batch, 5, 0.02)
    interval = number(f"item_ratio_interval {SLOWER} {batch.id.rpartition('-')[0]} tokens=1 decimals=1", [*RUNS, *row])
    assert interval == "23.5 to 24.6"  # Welch, 8 degrees of freedom: 24 × exp(± 0.023)


def test_a_ratio_of_kernels_is_of_the_runs_that_tell_their_share():
    runs = [dataclasses.replace(run, host=dict(run.host)) for run in RUNS]
    for run in runs:
        share = {SLOWER: 0.5, FASTER: 0.25}[run.id.rpartition("-")[0]]
        run.host["gpus"] = run.host["gpus"][:1]
        if run.number != 2:
            busy(run, share)
    of_calls = float(number(f"ratio {SLOWER} {FASTER} tokens=1 decimals=3", runs))
    assert float(number(f"kernel_ratio {SLOWER} {FASTER} tokens=1 decimals=3", runs)) == pytest.approx(2 * of_calls, rel=0.01)
    with pytest.raises(KitError, match=f"no run of {SLOWER} tells for how much of its time a kernel ran on its only GPU"):
        number(f"kernel_ratio {SLOWER} {FASTER} tokens=1", RUNS)


ARTICLE = "bench/articles/inference-tools.toml"


@pytest.mark.parametrize(
    ("marker", "digits"),
    [
        (f"value {ARTICLE} cases/deepspeed/published/mean_ms decimals=2", "30.75"),
        (f"value {ARTICLE} model/parameters times=2 per=1000000000 decimals=0", "14"),
        (f"value_ratio {ARTICLE} cases/layer-parallel/published/mean_ms {ARTICLE} cases/deepspeed/published/mean_ms", "3.83"),
        (f"mean_ratio {ARTICLE} cases/layer-parallel/published/mean_ms {ARTICLE} cases/deepspeed/published/mean_ms", "3.83"),
    ],
)
def test_a_number_of_a_file_is_the_one_at_its_path(marker, digits):
    assert number(marker, []) == digits


def test_ratios_of_lists_are_of_their_medians_or_of_their_means():
    file = "reports/instruments/masked-attention.json"
    rows = json.loads((ROOT / file).read_text(encoding="utf-8"))["rows"]
    slow, fast = rows[1]["us"], rows[0]["us"]
    medians, means = (middle(slow) / middle(fast) for middle in (statistics.median, statistics.fmean))
    assert f"{medians:.5f}" != f"{means:.5f}"
    assert number(f"value_ratio {file} rows/1/us {file} rows/0/us decimals=5", []) == f"{medians:.5f}"
    assert number(f"mean_ratio {file} rows/1/us {file} rows/0/us decimals=5", []) == f"{means:.5f}"


def test_a_number_that_is_too_large_to_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "read.json").write_text("[9e299, 1]")
    monkeypatch.setattr(file_numbers.at, "__defaults__", (tmp_path,))
    for marker in ("value read.json 0 times=2", "value read.json 0 times=999999999999999 decimals=1"):
        with pytest.raises(KitError, match=r"it is (1.8e\+300|inf), allowed is less than 1e\+300; leave out times$"):
            number(marker)


def test_a_saved_share_is_of_the_medians_and_its_range_is_over_the_rounds(tmp_path, monkeypatch):
    read = file_numbers.all_at
    monkeypatch.setattr(file_numbers, "all_at", lambda file, path, root=None: read(file, path, tmp_path))
    ways = [{"rounds": [{"ms": ms} for ms in rounds]} for rounds in ([40.0, 20.0, 20.0], [30.0, 21.0, 10.0])]
    (tmp_path / "read.json").write_text(json.dumps({"ways": ways}))
    with_all, without = (f"read.json ways/{way}/rounds/*/ms" for way in (0, 1))
    assert number(f"saved {without} {with_all} times=100 decimals=0", []) == "-5"  # by the medians 21 and 20
    assert number(f"saved_range {without} {with_all} times=100 decimals=0", []) == "-5 to 50"
    with pytest.raises(KitError, match="its lists have 1 and 3 numbers, as many in each are needed"):
        number(f"saved_range read.json ways/0/rounds/0/ms {with_all}", [])
    (tmp_path / "read.json").write_text(json.dumps({"ways": [{"rounds": [{"ms": 0}]}]}))
    with pytest.raises(KitError, match="the second number is 0"):
        number(f"saved {with_all} {with_all}", [])


def test_a_part_of_the_way_runs_from_the_second_number_to_the_third_and_its_range_is_over_the_rounds(tmp_path, monkeypatch):
    read = file_numbers.all_at
    monkeypatch.setattr(file_numbers, "all_at", lambda file, path, root=None: read(file, path, tmp_path))
    (tmp_path / "read.json").write_text(json.dumps({"ways": [[15.0, 12.0, 19.0], [10.0, 10.0, 11.0], [20.0, 18.0, 21.0]]}))
    lists = " ".join(f"read.json ways/{way}/*" for way in range(3))
    assert number(f"part_way {lists} decimals=2", []) == "0.50"  # of the medians 15, 10 and 20
    assert number(f"part_way_range {lists} decimals=2", []) == "0.25 to 0.80"
    with pytest.raises(KitError, match="it names 4 words, 6 are needed"):
        number("part_way read.json ways/0/* read.json ways/1/*", [])
    with pytest.raises(KitError, match="its lists have 3 and 3 and 1 numbers"):
        number("part_way_range read.json ways/0/* read.json ways/1/* read.json ways/2/0", [])
    with pytest.raises(KitError, match="the third number is the second"):
        number("part_way read.json ways/0/* read.json ways/1/* read.json ways/1/0", [])


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("mean_ms of-no-run", "there is no run of-no-run; try ls reports/runs reports/without-containers/runs"),
        (f"ratio {SLOWER}", "it names 1 runs, 2 are needed"),
        (f"mean_ms {FASTER}", "timed calls of 1 and 16 tokens; try tokens=1"),
        (f"mean_ms {SLOWER} tokens=9", "timed no call of 9 tokens, but of 1"),
        (
            f"mean_ms {SLOWER} decimals=99999999",
            "decimals=99999999 is wrong, allowed are tokens=N and decimals=N and times=N and per=N, with at most 20 decimals",
        ),
        (f"mean_ms {SLOWER} times={'9' * 400}", f"times={'9' * 60} is wrong"),
        (f"mean_ms {SLOWER} decimals=\u0663", "is wrong"),
        (f"mean_ms {SLOWER} digits=9", "digits=9 is wrong, allowed are tokens=N and decimals=N"),
        (f"mean_ms {SLOWER} decimals=many", "decimals=many is wrong"),
        (f"mean_ms {SLOWER} per=0", "per=0 is wrong"),
        (f"value {ARTICLE}", "it names 1 words, 2 are needed"),
        (f"value {ARTICLE} cases/deepseed/published", "holds no cases/deepseed, there are 0, 1"),
        ("value reports/instruments/of-no-name.json rounds", "there is no file "),
        (f"ratio_interval {SLOWER}-01 {FASTER} tokens=1", "fewer than 5 runs carry no interval"),
    ],
)
def test_a_marker_that_is_wrong_is_named_with_its_page_and_what_is_allowed(marker, words):
    with pytest.raises(KitError) as caught:
        number(marker)
    assert str(caught.value).startswith(f"PAGE.md: <!-- {marker} -->: ") and words in str(caught.value) and "\n" not in str(caught.value)


def test_memory_is_the_most_of_any_run():
    runs = [record(FAST.job, number=number, peak_gib=peak_gib) for number, peak_gib in ((1, 9.5), (2, 11.5))]
    assert number(f"peak_gib {FASTER} decimals=1", runs) == "11.5"


def test_memory_that_was_not_sampled_is_no_number():
    (bare,) = repeated(FAST, 1)
    bare.host["gpu_memory"] = []
    with pytest.raises(KitError, match="was not sampled"):
        number(f"peak_gib {FASTER}", [bare])


def test_a_marker_without_its_end_is_named():
    with pytest.raises(KitError, match=f"PAGE.md: no <!-- end --> follows the number of <!-- mean_ms {SLOWER} -->"):
        quoted.filled("PAGE.md", f"<!-- mean_ms {SLOWER} -->1 ms\n", RUNS)


def test_a_stale_number_is_an_error_until_it_is_written_again(tmp_path):
    page = tmp_path / "FINDINGS.md"
    page.write_text(f"It takes <!-- mean_ms {SLOWER} -->29.9<!-- end --> ms.\n")
    pages = [page, tmp_path / "of-no-such-name.md"]
    with pytest.raises(KitError, match=r"FINDINGS.md: .*29.9<!-- end --> is now 30.0. Try: make report"):
        quoted.check(RUNS, pages)
    quoted.save(RUNS, pages)
    quoted.check(RUNS, pages)
    assert page.read_text() == f"It takes <!-- mean_ms {SLOWER} -->30.0<!-- end --> ms.\n"


def test_a_number_whose_run_is_gone_stays_in_the_report_and_fails_the_check(tmp_path):
    page = tmp_path / "FINDINGS.md"
    page.write_text(f"<!-- mean_ms {SLOWER} -->29.9<!-- end --> and <!-- mean_ms of-no-run -->7.7<!-- end -->\n")
    quoted.save(RUNS, [page])
    assert ">30.0<" in page.read_text() and ">7.7<" in page.read_text()
    with pytest.raises(KitError, match="there is no run of-no-run"):
        quoted.check(RUNS, [page])


def test_a_run_that_did_not_end_well_gives_no_number():
    runs = [*RUNS, record(job("layer-parallel", 2), status="failed", reason="synthetic", number=6)]
    assert number(f"mean_ms {SLOWER}", runs) == "30.0"
    with pytest.raises(KitError, match="timed no call"):
        number(f"mean_ms {SLOWER}-06", runs)


def test_the_committed_pages_hold_the_numbers_of_the_committed_results():
    quoted.check(committed.every())
