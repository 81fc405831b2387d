"""A row of several runs shows the middle of what its runs tell of loading, the first call, the parts of a run and the GPUs' load."""

import copy
import dataclasses

import pytest

from scripts.report import data
from scripts.report.views import around, parts, token_table
from scripts.results import Record
from scripts.verdicts import row_groups
from tests import synthetic
from tests.synthetic import job, record
from tests.unit.test_limits import CONTROLLED, cells_of

SHARES = "GPU busy, % of the time"


def runs_of(count: int = 3) -> list[Record]:
    """Runs whose median by time is the last but one."""
    return synthetic.repeated(record(job("deepspeed", 2, **CONTROLLED), (20.0, 2000.0)), count)


def group_of(runs):
    (group,) = row_groups.build(runs, {})
    assert len(group.rows) == 1
    return group


def tell(runs, **lists):
    """Each run's own of these numbers: of its guest, where that has such a field, else of its host."""
    for name, values in lists.items():
        for run, value in zip(runs, values, strict=True):
            if hasattr(run.guest, name):
                setattr(run.guest, name, value)
            else:
                run.host[name] = value


def of_csv(group, name):
    (column,) = (column for column in data.COLUMNS if column.name == name)
    return {column.value(line) for line in data.lines_of(group, None)}


def test_loading_and_the_first_call_are_those_of_the_middle_run():
    runs = runs_of()
    tell(runs, load_s=[9.0, 30.0, 20.0], launch_us=[{"before": 5, "after": 1}, {"before": 7, "after": 3}, {"before": 6, "after": 2}])
    for run, cold_ms in zip(runs, (500.0, 900.0, 700.0), strict=True):
        run.guest.measurements[0]["cold_ms"] = cold_ms
    group = group_of(runs)
    (line,) = cells_of(around.section(group, None), "deepspeed")
    assert (line["load, s"], line["cold call, ms"]) == ("20.0", "700")
    assert line["operator launch on the host, µs: before / after the calls"] == "6.00 / 2.00"
    assert (of_csv(group, "load_s"), of_csv(group, "cold_ms")) == ({20.0}, {700.0})


def test_a_disturbed_run_and_a_run_that_tells_nothing_do_not_count():
    runs = runs_of(4)
    tell(runs, load_s=[25.0, None, 20.0, 30.0])
    runs[0].host["conditions"] = {"marks": ["foreign load"], "disturbed": ["foreign load"]}
    assert of_csv(group_of(runs), "load_s") == {20.0}


@pytest.mark.parametrize(("status", "load_s"), [("failed", 20.0), ("oom", None)])
def test_a_row_whose_latest_run_ran_out_of_memory_shows_nothing_of_the_runs_before_it_and_after_a_failed_run_it_does(status, load_s):
    runs = runs_of()
    tell(runs, load_s=[25.0, 20.0, 15.0])
    broken = synthetic.record(runs[0].job, status=status, reason="it broke")
    broken.host["started_at"] = "2026-11-29T04:10:00Z"
    assert of_csv(group_of([*runs, dataclasses.replace(broken, id=f"{broken.id[:-2]}09")]), "load_s") == {load_s}


def test_start_to_finish_is_the_middle_of_the_sums_and_not_the_sum_of_the_middles():
    runs = runs_of()
    tell(runs, load_s=[1.0, 2.0, 30.0])
    for run, cold_ms in zip(runs, (90000.0, 2000.0, 1000.0), strict=True):
        run.guest.measurements[0]["cold_ms"] = cold_ms
    group = group_of(runs)
    (line,) = ({column.header: column.cell(row) for column in token_table.around_columns(group)} for row in group.rows)
    assert (line["start to ready, s"], line["first call, s"], line["start to finish, s"]) == ("2.00", "2.00", "31.00")


def test_memory_at_each_moment_of_a_batch_is_that_of_the_middle_run():
    runs = runs_of()
    for run, gib in zip(runs, (1, 3, 2), strict=True):
        devices = [{"allocated_bytes": size * synthetic.GIB, "peak_allocated_bytes": (size + 5) * synthetic.GIB} for size in (gib, gib - 1)]
        run.guest.figures = {"cycles": {"memory": {"before": devices, "after": devices}}}
    group = group_of(runs)
    (line,) = ({column.header: column.cell(row) for column in token_table.around_columns(group)} for row in group.rows)
    assert line["allocated before / after / peak of a GPU, GiB"] == "2.00 / 2.00 / 7.00"


def test_a_process_that_took_no_memory_of_a_gpu_saw_none_of_the_engine_s():
    runs = runs_of()
    for run in runs:
        nothing = [{"allocated_bytes": 0, "peak_allocated_bytes": 0, "reserved_bytes": 0, "peak_reserved_bytes": 0}]
        run.guest.figures = {"cycles": {"memory": {"before": nothing, "after": nothing}}}
    group = group_of(runs)
    (line,) = ({column.header: column.cell(row) for column in token_table.around_columns(group)} for row in group.rows)
    assert (line["allocated before / after / peak of a GPU, GiB"], line["reserved after / peak, GiB"]) == ("—", "—")


def test_each_part_of_a_run_is_that_of_its_middle_run():
    runs = runs_of()
    tell(runs, prepare_s=[0.1, 56.0, 0.2], wall_s=[60.0, 50.0, 40.0], began=[100.0] * 3)
    tell(runs, phases=[{"import": [100.0 + start_s, 103.0], "load": [103.0, 103.0 + load_s]} for start_s, load_s in ((1, 9), (2, 3), (1.5, 5))])
    group = group_of(runs)
    (line,) = cells_of(parts.section(group, None), "deepspeed")
    assert (line["prepare, s"], line["start, s"], line["import, s"], line["load, s"]) == ("0.2", "1.5", "1.5", "5.0")
    assert line["whole run, s"] == "60.1"  # 60.1, 106.0 and 40.2
    assert "need not add up" in parts.section(group, None)
    assert "need not add up" not in parts.section(group_of(runs[:1]), None)


def stamped():
    """A run of 60 s and its judge, whose calls take 25 s beside a second of start, 2 s of import, 9 s of load and 8 s of unseen prompts."""
    (run,) = runs_of(1)
    tell([run], prepare_s=[0.5], container_s=[0.25], wall_s=[60.0], judge_s=[5.0], began=[100.0])
    phases = {"import": [101.0, 103.0], "load": [103.0, 112.0], "measure": [112.0, 140.0], "answers": [140.0, 148.0]}
    tell([run], phases=[phases])
    run.guest.measurements = [{"new_tokens": 1, "cold_ms": 4000.0, "warmup_ms": [500.0, 500.0], "timed_ms": [10000.0] * 2}]
    return run


def test_the_rest_of_a_run_is_what_no_part_claims_and_the_judge_belongs_to_the_whole():
    (line,) = cells_of(parts.section(group_of([stamped()]), None), "deepspeed")
    told = {"prepare": "0.5", "container": "0.2", "start": "1.0", "import": "2.0", "load": "9.0", "unseen prompts": "8.0", "judge": "5.0"}
    assert {name: line[f"{name}, s"] for name in told} == told
    assert (line["cold and warm-up calls, s"], line["timed calls, s"]) == ("5.0", "20.0")
    assert (line["whole run, s"], line["rest, s"]) == ("65.8", "15.0")


def test_only_parts_that_a_run_tells_have_a_column_and_a_meaning():
    run = stamped()
    shown = parts.section(group_of([run]), None)
    assert "token by token" not in shown and "- *unseen prompts*: one more call " in shown and "- *judge*: " in shown
    run.guest.phases["tokens"] = [148.0, 150.0]
    shown = parts.section(group_of([run]), None)
    assert cells_of(shown, "deepspeed")[0]["token by token, s"] == "2.0" and "- *token by token*: " in shown


def test_a_clock_that_was_set_back_makes_no_rest_negative():
    run = stamped()
    run.host["wall_s"] = 1.0
    assert parts.rest_s(run) == 0.0


def test_a_run_whose_duration_is_not_known_has_no_rest():
    run = stamped()
    del run.host["wall_s"]
    assert (parts.rest_s(run), parts.whole_s(run)) == (None, None)
    assert not parts.section(group_of([run]), None)


@pytest.mark.parametrize(
    ("told", "shown", "least"),
    [
        ([(0.2, 0.5), (0.4, 0.9), (0.3, 0.7)], "30, 70", 0.3),
        ([(0.2, 0.5), (0.4, "too-short"), ("no-reading", 0.7)], "20, 50", 0.2),
        ([("no-reading", 0.5), ("too-short", 0.6), ("too-short", 0.7)], "too-short, 60", None),
        ([("too-short", 0.5), ("too-short", 0.6), ("no-reading", 0.7)], "no-reading, 60", None),
        ([(0.2, 0.5), (), ()], "20, 50", 0.2),
        ([(0.2,), (0.4, 0.9), (0.3, 0.7)], "30, 70", 0.3),
    ],
)
def test_the_load_of_each_gpu_is_that_of_the_middle_run_that_tells_it(told, shown, least):
    runs = runs_of()
    for run, shares in zip(runs, told, strict=True):
        gpus = [{"code": share} if isinstance(share, str) else {"code": "ok", "share": share} for share in shares]
        run.host["busy"] = [{"new_tokens": count, "gpus": copy.deepcopy(gpus)} for count in (1, 128)] if gpus else []
    group = group_of(runs)
    (line,) = cells_of(around.section(group, None), "deepspeed")
    assert line[SHARES] == f"{shown} and {shown}"
    assert of_csv(group, "gpu_busy_share") == {least}


def test_the_median_run_is_chosen_by_its_longest_calls():
    """By the calls of one new token the middle run is the first, by those of 128 the last."""
    runs = [synthetic.record(runs_of(1)[0].job, means_ms, number=number) for number, means_ms in enumerate([(20.0, 2200.0), (10.0, 1800.0), (30.0, 2000.0)], 1)]
    (row,) = group_of(runs).rows
    assert row.record.number == 3


def test_the_median_run_is_chosen_by_the_mean_of_its_calls_for_that_is_its_time():
    """By the median of its calls it would be the first."""
    calls_ms = [[12.0, 12.0, 12.0], [10.0, 10.0, 40.0], [14.0, 14.0, 14.0]]
    runs = [synthetic.record(job("deepspeed", 2, timed_runs=3), number=number) for number in (1, 2, 3)]
    for run, timed_ms in zip(runs, calls_ms, strict=True):
        run.guest.measurements[0]["timed_ms"] = timed_ms
    (row,) = group_of(runs).rows
    assert row.record.number == 3


def test_a_row_that_timed_no_calls_shows_its_latest_undisturbed_run():
    def run(number, **host):
        one = synthetic.record(job("fusion-compile", article="deepspeed-inference"), number=number)
        one.guest.measurements, one.guest.figures = [], {"fusion": [{"region": "mlp", "implementation": "eager", "batch_size": 1, "us": [1.0], "reason": ""}]}
        one.host.update({"started_at": f"2026-11-2{number}T04:10:00Z", **host})
        return one

    disturbed = {"conditions": {"marks": ["foreign load"], "disturbed": ["foreign load"]}}
    (row,) = group_of([run(1), run(2), run(3, **disturbed)]).rows
    assert row.record.number == 2 and [one.number for one in row.counted_runs] == [1, 2]
    (row,) = group_of([run(1, **disturbed), run(2, **disturbed)]).rows
    assert row.record.number == 2
    (row,) = group_of([run(1), run(2), dataclasses.replace(run(3), status="failed")]).rows
    assert row.record.number == 2, "a run that failed timed nothing"


def test_where_each_run_was_disturbed_all_of_them_are_shown():
    runs = runs_of()
    tell(runs, load_s=[25.0, 20.0, 15.0])
    for run in runs:
        run.host["conditions"] = {"marks": ["foreign load"], "disturbed": ["foreign load"]}
    (row,) = group_of(runs).rows
    assert (list(row.counted_runs), row.undisturbed()) == (runs, [])
    assert of_csv(group_of(runs), "load_s") == {20.0}


def test_the_95th_percentile_is_that_of_all_calls_and_mean_and_spread_are_those_of_the_runs():
    runs = runs_of(2)
    for run, timed_ms in zip(runs, ([10.0] * 10, [10.0] * 9 + [110.0]), strict=True):
        run.guest.measurements[0]["timed_ms"] = timed_ms
    (row,) = group_of(runs).rows
    summary = row.summary(1)
    assert (summary.n, summary.mean, summary.std) == (2, 15.0, 5.0) and summary.p95 == pytest.approx(15.0), "at 0.95 x 19 = 18.05 of 20 calls"


def further_token(*runs):
    (line,) = cells_of(around.section(group_of(runs), None), "deepspeed")
    return line["further token, ms (95 % interval)"]


def test_a_run_without_calls_of_one_token_tells_no_further_token():
    asked = job("deepspeed", 2, variant="controlled", new_tokens=(1, 16))
    lacking, both = (record(asked, (10.0, 40.0), number=number, spread=0.0) for number in (1, 2))
    del lacking.guest.measurements[0]
    assert further_token(both, lacking) == "2.00"


def test_longer_calls_that_were_not_slower_tell_no_further_token():
    assert further_token(record(job("deepspeed", 2, **CONTROLLED), (10.0, 9.0), spread=0.0)) == "within noise"


def test_more_gpus_than_letters_have_letters_with_a_number():
    runs = [record(job("deepspeed", 2), 12.0, number=number) for number in range(1, 15)]
    for place, run in enumerate(runs):
        run.host["gpus"] = [{**gpu, "uuid": f"GPU-{2 * place + gpu['index']}"} for gpu in run.host["gpus"]]
    letters = around.gpu_letters(group_of(runs))
    assert (letters["GPU-25"], letters["GPU-26"]) == ("Z", "A1") and len(set(letters.values())) == 28
