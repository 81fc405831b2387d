"""What a calibration says of a machine, and where the report says it."""

import copy
import dataclasses
import re

import pytest

from bench.forms import fixed_kernel
from scripts import articles, results, stats
from scripts.commands.calibrate import lines_of_others, report_lines
from scripts.commands.line import invoke
from scripts.errors import UsageError
from scripts.run import jobs, rounds, several
from scripts.run.options import Options
from scripts.verdicts import calibration, row_groups
from tests import reports, synthetic
from tests.synthetic import job, record, repeated


def a_calibration(count: int = 5, kernel_ms: float = 10.0, scatter: float = 0.01, **asked: object) -> list:
    """Runs of both cases of a calibration."""
    asked = {"article": "calibration", "variant": "controlled", "timed_runs": 100, **asked}
    kernel = repeated(record(job("fixed-kernel", **asked), kernel_ms), count, scatter)
    return [*kernel, *repeated(record(job("empty", **asked), 0.0002), count)]


def test_a_form_of_no_model_times_nothing_by_the_kits_clock() -> None:
    article = articles.find("calibration")
    asked = jobs.measuring_job(article, article.case("empty"), "controlled", jobs.Target("current", "cpu", 1, "random", "full"))
    (measured,), tokens, figures = fixed_kernel.run(dataclasses.replace(asked, timed_runs=7), None, lambda **event: None)
    assert len(measured["timed_ms"]) == 7 and 0 < min(measured["timed_ms"]) < 1
    assert tokens is None and figures["kernel"]["kernel"] == "none" and figures["kernel"]["dtype"] == "float32"


def test_the_noise_floor_is_where_the_interval_of_two_equal_rows_ends() -> None:
    values = [10.0, 10.3, 9.8, 10.1, 9.9]
    assert stats.noise_floor(values) == pytest.approx(stats.ratio_over_runs(values, values).high - 1)
    assert stats.noise_floor(values[:4]) is None
    assert stats.noise_floor([7.0] * 5) == pytest.approx(0)


@pytest.mark.parametrize(
    ("ratio", "runs", "needed"),
    [((1.05, 0.95, 1.16), 5, 21), ((0.9, 0.8, 1.01), 5, 7), ((1.2, 1.1, 1.3), 5, None), ((1.0, 0.9, 1.1), 5, None), ((1.05, None, None), 4, None)],
)
def test_the_runs_that_would_decide_grow_with_the_square_of_the_width(ratio: tuple, runs: int, needed: int | None) -> None:
    assert stats.runs_to_decide(stats.Estimate(*ratio), runs, [1.0]) == needed


def test_the_runs_that_would_decide_a_size_are_those_of_the_nearest_end_that_the_interval_holds() -> None:
    assert stats.runs_to_decide(stats.Estimate(3.0, 2.0, 4.5), 5, [3.83 / 1.25, 3.83 * 1.25]) == 1845
    assert stats.runs_to_decide(stats.Estimate(3.0, 2.9, 3.02), 5, [3.83 / 1.25, 3.83 * 1.25]) is None, "the interval holds no end"
    assert stats.runs_to_decide(stats.Estimate(3.0, 2.0, 4.5), 5, [3.0]) is None, "the ratio is the end"
    assert stats.runs_to_decide(stats.Estimate(1.2, 0.5, 2.88), 5, [1.0, 2.0]) == 116, "the nearer of two ends that it holds"
    assert stats.runs_to_decide(stats.Estimate(1.15, 1.0, 1.21), 5, [1.0]) == 6, "at least one more"
    assert stats.runs_to_decide(stats.Estimate(1.05, 0.0, 2.0), 5, [1.0]) is None, "no logarithm"


def test_a_calibration_is_told_with_its_spread_and_what_the_kit_takes() -> None:
    records = a_calibration()
    for one in records:
        one.host.update(prepare_s=0.5, container_s=0.75)
    told = "\n".join(report_lines(records))
    assert re.search("fixed kernel       median (9.9|10.0)", told) and "(500 calls of 5 runs)" in told
    assert "noise floor        1.2 %: rows of 5 runs" in told
    assert "the kit's clock    median 0.0002" in told
    assert "the kit around it  prepare 0.50 s, container 0.75 s" in told
    assert "type REPEATS=10" in "\n".join(report_lines(a_calibration(3)))


def test_of_a_hundred_calls_the_second_longest_is_about_the_p99() -> None:
    records = a_calibration()
    for one in records:
        one.guest.measurements[0]["timed_ms"] = [*range(1, 100), 5000]
    assert "median 50.5 ms, MAD 50 %, p99 148 ms (500 calls of 5 runs)" in "\n".join(report_lines(records))


def test_runs_that_were_all_beside_others_make_no_calibration() -> None:
    records = a_calibration()
    for one in records:
        one.host["shared_with"] = 1
    assert calibration.of_groups(row_groups.build(records, articles.load_all())) == [] and report_lines(records) == []


def test_runs_on_a_disturbed_machine_make_no_floor_in_silence() -> None:
    records = a_calibration(6)
    records[0].host["conditions"] = {"marks": ["foreign load"], "disturbed": ["foreign load"]}
    assert "1 of 6 runs are marked, so the machine is not quiet" in "\n".join(report_lines(records))


def test_too_few_runs_that_were_all_disturbed_are_not_called_undisturbed() -> None:
    few = a_calibration(2)
    assert "noise floor        not known: 2 undisturbed runs, 5 are needed; type REPEATS=10" in "\n".join(report_lines(few))
    assert "not known: 1 undisturbed run, 5 are needed" in "\n".join(report_lines(a_calibration(1)))
    for one in few:
        one.host["conditions"] = {"disturbed": ["foreign load: 2.0 of 2 cores computed just before it began"]}
    assert "noise floor        not known: 0 undisturbed runs, 5 are needed" in "\n".join(report_lines(few))


def test_others_at_once_are_told_by_the_ratio_of_the_runs_beside_them_to_those_alone() -> None:
    alone, beside = repeated(record(job("fixed-kernel", article="calibration"), 10.0)), repeated(record(job("fixed-kernel", article="calibration"), 12.5), 6)
    for one in beside:
        one.host["shared_with"] = 2
    records = [*alone, *(dataclasses.replace(one, id=f"{one.id[:-2]}{one.number + 10}") for one in beside)]
    (told,) = [line for line in lines_of_others(records) if "times as long" in line]
    assert "beside 2 other jobs the kernel took 1.25 (1.2" in told and "(6 and 5 runs)" in told
    assert lines_of_others(alone) == []
    (calibrated,) = calibration.of_groups(row_groups.build(records, articles.load_all()))
    calibrated.beside[0].host["shared_with"] = 8
    assert list(calibrated.longer_beside()) == [2, 8], "the fewest others first"
    assert "(50 calls of 5 runs)" in "\n".join(report_lines(records)), "the floor is that of a machine without others"


def test_a_run_beside_others_whose_calls_are_of_another_number_of_tokens_is_no_part_of_a_calibration() -> None:
    records = [copy.deepcopy(one) for one in a_calibration()]
    for one in records[3:5]:
        one.host["shared_with"] = 1
    records[3].guest.measurements[0]["new_tokens"] = 2
    assert "(1 and 3 runs)" in lines_of_others(records)[1]


def test_a_calibration_speaks_for_its_machine_and_engine_alone() -> None:
    records = [*a_calibration(), *repeated(record(job("int8"), 50.0)), *repeated(record(job("int8"), 50.0, gpu_name="OTHER GPU"))]
    by_host = copy.deepcopy(records[-1])
    by_host.host["engine"], by_host.host["gpus"] = "host", records[0].host["gpus"]
    groups = row_groups.build([*records, by_host], articles.load_all())
    known = calibration.of_groups(groups)
    spoken = {(group.key.model, group.key.engine): bool(calibration.of_machine(known, group)) for group in groups if group.key.article != "calibration"}
    assert spoken == {("SYNTHETIC GPU", "docker"): True, ("SYNTHETIC GPU", "host"): False, ("OTHER GPU", "docker"): False}


def test_the_report_states_the_floor_and_what_would_decide_a_claim(tmp_path) -> None:
    from scripts.report import document

    fast, slow = record(job("deepspeed", 2), 49.0), record(job("layer-parallel", 2), 50.0)
    runs = [*a_calibration(scatter=0.02), *repeated(fast, 5, 0.05), *repeated(slow, 5, 0.05)]
    runs += [run for case in ("transformers", "tensor-parallel", "int8") for run in repeated(record(job(case, 2 if case == "tensor-parallel" else 1), 90.0))]
    synthetic.write(tmp_path / "runs", runs)
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert text.count(": 2.3 %.** Two rows of a fixed kernel, of 5 runs each, cannot be told apart below this difference.") == 2
    assert text.count("**Noise floor of a machine of this kind, with one of these GPUs: 2.3 %.**") == 1, "rows of two GPUs, and a calibration of one"
    assert "5 runs are too noisy for it. If ratio and scatter stay, about REPEATS=" in text


def test_the_floor_of_another_gpu_of_the_kind_is_told_as_such(tmp_path) -> None:
    from scripts.report import document

    elsewhere = repeated(record(job("int8"), 90.0))
    for run in elsewhere:
        synthetic.on_gpus(run, "GPU-elsewhere")
    synthetic.write(tmp_path / "runs", [*a_calibration(), *elsewhere])
    document.write(tmp_path / "runs", tmp_path)
    text = reports.text_of(tmp_path)
    assert text.count("**Noise floor of a machine of this kind, with another GPU: 1.2 %.**") == 1
    assert text.count("**Noise floor of this machine: 1.2 %.**") == 1, "on the calibration's own page"
    *_, line = [line for line in text.splitlines() if line.startswith("| [current, controlled, SYNTHETIC GPU") and "calibration" in line]
    assert line.endswith("| — |"), "a calibration has no output that could be right"


def test_the_page_of_a_calibration_shows_no_check_no_energy_and_no_memory(tmp_path) -> None:
    from scripts.report import document

    runs = [synthetic.probed(run, code="too-short") for run in a_calibration()]
    for run in runs:
        run.guest.check = None
    synthetic.write(tmp_path / "runs", runs)
    document.write(tmp_path / "runs", tmp_path)
    (page,) = [path for path in tmp_path.glob("calibration-*.md") if not path.stem.endswith("-environment")]
    text = page.read_text()
    assert "| ok |" in text and not any(word in text for word in ("not checked", "too-short", "NVML peak"))
    assert not list(tmp_path.glob("plots/calibration-*memory.svg")) and list(tmp_path.glob("plots/calibration-*time.svg"))


def test_of_two_calibrations_that_of_the_own_gpu_speaks_before_that_of_the_own_libraries() -> None:
    other_gpu, other_stack = a_calibration(), a_calibration(stack="hopper")
    for run in other_gpu:
        synthetic.on_gpus(run, "GPU-elsewhere")
    groups = row_groups.build([*other_gpu, *other_stack, *repeated(record(job("int8"), 90.0))], articles.load_all())
    known = calibration.of_groups(groups)
    (group,) = [group for group in groups if group.key.article != "calibration"]
    chosen = calibration.of_machine(known, group)
    assert chosen and chosen.group.key.stack == "hopper"


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        (["--plan", "1"], "WEIGHTS=random PLAN=1"),
        (["--scheduler", "slurm", "--partition", "gpu"], "WEIGHTS=random SCHEDULER=slurm PARTITION=gpu"),
        (["--plan", "1", "--device", "cpu", "--engine", "host"], "STACK=demo WEIGHTS=random ENGINE=host DEVICE=cpu PLAN=1"),
    ],
)
def test_what_a_calibration_does_not_do_is_refused_with_the_command_that_does_it_for_the_same_rows(typed: list[str], again: str) -> None:
    with pytest.raises(UsageError) as refused:
        invoke(["calibrate", *typed])
    told, _, command = str(refused.value).partition("; try make article-calibration ")
    assert told == f"{'PLAN=1' if '--plan' in typed else 'SCHEDULER=slurm'} is typed with calibrate, allowed only with bench and article"
    assert sorted(command.split()) == sorted([*again.split(), "REPEATS=5"])


def test_cases_that_a_calibration_would_lack_are_refused() -> None:
    for name, value in (("CASES", "empty"), ("CLAIMS", "1.1")):
        with pytest.raises(UsageError, match=f"{name} is '{value}' with calibrate, .*leave {name} out"):
            invoke(["calibrate", "--device", "cpu", f"--{name.lower()}", value, "--jobs", "2"])


@pytest.mark.parametrize(("name", "value"), [("WEIGHTS", "hub"), ("MODEL_PATH", "/tmp")])
def test_weights_that_a_calibration_would_not_load_are_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"^{name} is '{value}' with calibrate, which loads no model; leave {name} out$"
    with pytest.raises(UsageError, match=words):
        invoke(["calibrate", "--device", "cpu", f"--{name.lower().replace('_', '-')}", value])
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=words):
        invoke(["calibrate", "--device", "cpu"])


def test_more_jobs_than_cores_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "run_all", lambda *_, **__: pytest.fail("a run began"))
    with pytest.raises(UsageError, match="JOBS is 64, allowed is a whole number from 1 to 2"):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
        invoke(["calibrate", "--device", "cpu", "--engine", "host", "--stack", "current", "--jobs", "64"])


@pytest.mark.parametrize(("typed", "runs"), [([], 5), (["--repeats", "1"], 5), (["--repeats", "2"], 2)])
def test_each_case_has_five_runs_unless_more_than_one_is_typed_and_those_beside_others_lie_apart(typed: list[str], runs: int, tmp_path, monkeypatch) -> None:
    begun: list[tuple[list[str], str, int]] = []

    def run(planned: list, asked: Options, keep_going: bool = True) -> list:
        begun.append(([one.case.name for one in planned], asked.runs.relative_to(tmp_path).as_posix(), asked.repeats))
        return []

    monkeypatch.setattr(rounds, "run_all", run)
    monkeypatch.setattr(several, "perform", lambda planned, asked: len(run(planned, asked)))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    monkeypatch.setattr(results, "load_all", lambda folder: (a_calibration(), []))
    invoke(["calibrate", "--device", "cpu", "--engine", "host", "--stack", "current", "--jobs", "2", "--runs", str(tmp_path / "runs"), *typed])
    apart = "beside-2/runs"
    assert begun == [(["empty", "fixed-kernel"], "runs", runs), (["fixed-kernel"], apart, runs), (["fixed-kernel"] * 2, apart, runs)]
