"""reports/runs: what is stored is loaded again, nothing is overwritten, damage is named, and runs are numbered and counted."""

import array
import errno
import functools
import json
import operator
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from bench.job import InvalidDocument, to_json
from scripts import names, paths, results
from scripts.errors import KitError, UsageError
from scripts.results import copies, shapes
from tests import synthetic

FIXTURES = Path(__file__).parent / "fixtures" / "runs"


def test_what_is_stored_is_what_is_loaded(tmp_path: Path) -> None:
    record = synthetic.record(synthetic.job("layer-parallel", 2, new_tokens=(1, 16)))
    results.store(tmp_path / record.id, record)
    assert results.load_all(tmp_path) == ([record], [])


def test_times_of_tokens_are_kept_small_and_written_as_they_were(tmp_path: Path) -> None:
    record = synthetic.probed(synthetic.record(synthetic.job("int8", new_tokens=(1, 16))))
    record.guest.figures["token_times"]["between_ms"][2] = [10.5] * 14 + [7]  # a whole number stays one
    results.store(tmp_path / record.id, record)
    loaded = results.load(tmp_path / record.id)
    between_ms = loaded.guest.figures["token_times"]["between_ms"]
    assert [type(call) for call in between_ms] == [array.array, array.array, list]
    assert [list(call) for call in between_ms] == record.guest.figures["token_times"]["between_ms"]
    assert to_json(loaded) == to_json(record)


def test_equal_parts_of_two_runs_are_kept_once(tmp_path: Path) -> None:
    asked = synthetic.job("int8")
    synthetic.write(tmp_path, [synthetic.record(asked), synthetic.record(asked, number=2, gpu_name="ANOTHER GPU")])
    first, second = results.load_all(tmp_path)[0]
    assert first.job.prompt is second.job.prompt and first.guest.environment is second.guest.environment
    assert first.host["image"] is second.host["image"] and first.host["gpus"] != second.host["gpus"]


def test_a_result_is_never_overwritten(tmp_path: Path) -> None:
    record = synthetic.record(synthetic.job("int8"))
    path = results.store(tmp_path / record.id, record)
    before = path.read_bytes()
    with pytest.raises(KitError, match="FORCE=1"):
        results.store(tmp_path / record.id, synthetic.record(synthetic.job("int8"), 5.0))
    assert path.read_bytes() == before


def test_a_result_that_cannot_be_written_is_kept_elsewhere_with_the_line_that_brings_it_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = synthetic.record(synthetic.job("int8"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    wall = tmp_path / "runs with a space"
    wall.write_text("a file where the folder should be")
    with pytest.raises(KitError) as caught:
        results.store(wall / record.id, record)
    message = str(caught.value)
    assert "\n" not in message and "Not a directory" in message
    wall.unlink()
    subprocess.run(message.partition("bring it in with: ")[2], shell=True, check=True)
    assert results.load_all(wall) == ([record], [])


def test_what_the_host_saw_in_other_bytes_than_utf_8_costs_no_result(tmp_path: Path) -> None:
    record = synthetic.record(synthetic.job("int8"))
    record.host["machine"]["cpu"] = os.fsdecode(b"\xe9")
    results.store(tmp_path / record.id, record)
    (kept,), _ = results.load_all(tmp_path)
    assert kept.host["machine"]["cpu"] == "?" and kept.guest == record.guest


def test_a_link_that_leads_nowhere_is_named_and_hides_no_run(tmp_path: Path) -> None:
    record = synthetic.record(synthetic.job("int8"))
    synthetic.write(tmp_path, [record])
    (tmp_path / "loop").symlink_to("loop")
    found, skipped = results.load_all(tmp_path)
    assert found == [record] and [(skip.path.name, skip.is_run) for skip in skipped] == [("loop", False)]
    assert results.any_run(tmp_path) and results.existing(record.id[:-3], tmp_path) == [record.id]


@pytest.mark.parametrize("file", ["job.json", "result.json"])
def test_a_folder_holds_a_run_where_a_job_or_a_result_lies_in_one_of_its_folders(tmp_path: Path, file: str) -> None:
    (tmp_path / "a-run-01").mkdir()
    assert not results.any_run(tmp_path)
    (tmp_path / "a-run-01" / file).touch()
    assert results.any_run(tmp_path) and not results.any_run(tmp_path / "a-run-01")


def test_a_folder_of_runs_that_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match=r"^RUNS is '.*', which cannot be read \(Permission denied\), .*; try RUNS="):
        results.load_all(tmp_path)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from scripts import results
from scripts.errors import run_command
from tests import synthetic
record = synthetic.record(synthetic.job("int8"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # no file of this process may grow beyond 100 bytes
run_command(lambda: results.store(Path(sys.argv[1]) / record.id, record) and 0)
"""


def test_where_no_disk_takes_it_the_result_is_printed(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "runs")], env=environment, capture_output=True, text=True, cwd=paths.ROOT, check=False
    )
    assert done.returncode == 1 and not list(temporary.iterdir()), "no empty folder is left"
    assert len(done.stderr.strip().splitlines()) == 1 and "File too large" in done.stderr
    assert json.loads(done.stdout)["status"] == "ok"
    assert not list(tmp_path.glob("runs/*/*"))


def _folder(runs: Path, text: str, name: str = "a.b-01") -> None:
    (runs / name).mkdir(parents=True)
    (runs / name / "result.json").write_text(text, encoding="utf-8")


def _changed(**fields: object) -> str:
    record = json.loads(to_json(synthetic.record(synthetic.job("int8"))))
    return json.dumps({**record, "id": "a.b-01", **fields})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_changed()[:300], "damaged"),
        ("", "damaged"),
        ("[]", "expected a JSON object"),
        ("[" * 100_000, "damaged"),
        (_changed(schema=3), "schema is 3, this kit reads 1 and 2"),
        (_changed(schema=True), "schema is True"),
        (_changed(extra=1), "unknown field 'extra'"),
        (_changed(id="a.b-02"), "not of this folder"),
        (_changed(status="fine"), "status is 'fine'"),
        (_changed(status="failed"), "without a reason"),
        (_changed(guest=None), "without an answer"),
        (_changed(job={"schema": 1}), "job: Object missing required field `id`"),
        (_changed(host={}), "host: Object missing required field `engine`"),
        (_changed(host={"engine": "docker", "started_at": "2026-11-21T04:10:00Z", "gpus": {}}), "host.gpus: Expected `array | null`, got `object`"),
        (_changed(host={"engine": "docker", "started_at": "2026"}), 'host.started_at: Expected a moment as "2026-11-21T04:10:00Z"'),
        (
            _changed().replace('"figures": {}', '"figures": {"calls": [{"new_tokens": 9, "timed_tokens": [9]}]}'),
            "damaged result.json: it counts the tokens of the calls [(9, 1)], but it timed",
        ),
        (_changed().replace('"load_s": 3.21', '"load_s": NaN'), "damaged result.json: JSON is malformed"),
        (_changed().replace('"load_s": 3.21', '"load_s": 1e400'), "Number out of range"),
    ],
)
def test_a_damaged_result_is_named_and_the_others_still_come(tmp_path: Path, text: str, reason: str) -> None:
    record = synthetic.record(synthetic.job("layer-parallel"))
    synthetic.write(tmp_path, [record])
    _folder(tmp_path, text)
    records, skipped = results.load_all(tmp_path)
    assert records == [record]
    assert [one.path.name for one in skipped] == ["a.b-01"]
    assert reason in skipped[0].reason


@pytest.mark.parametrize("field", ["id", "status", "schema", "job", "host"])
def test_a_field_that_is_missing_is_named_once(field: str) -> None:
    fields = json.loads(_changed())
    del fields[field]
    with pytest.raises(InvalidDocument) as error:
        shapes.check(fields, shapes.Record)
    assert str(error.value) == f"damaged result.json: the whole: Object missing required field `{field}`"


def test_a_folder_without_a_result_is_an_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / "a.b-01").mkdir()
    (tmp_path / "a.b-01" / "job.json").write_text("{}")
    _, skipped = results.load_all(tmp_path)
    assert "has not finished" in skipped[0].reason


def test_no_runs_folder_is_no_runs(tmp_path: Path) -> None:
    assert results.load_all(tmp_path / "none") == ([], [])


def test_a_plain_file_in_place_of_a_run_is_named(tmp_path):
    (tmp_path / "inference-tools.int8-01").write_text("")
    (tmp_path / ".gitkeep").write_text("")
    _, (skipped,) = results.load_all(tmp_path)
    assert (skipped.path.name, skipped.reason) == ("inference-tools.int8-01", "a file in place of a run's folder")


def test_a_run_under_another_number_is_no_second_run_and_equal_single_calls_are(tmp_path: Path) -> None:
    first, second, third = (synthetic.record(synthetic.job("deepspeed", 2), 12.0, number=number) for number in (1, 2, 3))
    second.guest.measurements[0]["timed_ms"][0] += 0.001
    third.guest.measurements[:] = first.guest.measurements
    for run in (first, second, third):
        results.store(tmp_path / run.id, run)
    records, skipped = results.load_runs(tmp_path)
    assert records == [first, second]
    assert [(one.path.name, one.reason) for one in skipped] == [(third.id, f"its timed calls are those of {first.id}, to the last digit; a copy is no run")]
    single = synthetic.record(synthetic.job("deepspeed", 2, timed_runs=1), 12.0)
    assert not list(copies.of([("a", single.guest), ("b", single.guest)]))


@pytest.mark.parametrize(("calls", "copied"), [(2, []), (3, ["b"])])
def test_three_equal_calls_make_a_copy_and_two_may_be_chance(calls: int, copied: list[str]) -> None:
    run = synthetic.record(synthetic.job("deepspeed", 2, timed_runs=calls), 12.0)
    assert [name for name, _ in copies.of([("a", run.guest), ("b", run.guest)])] == copied


def test_numbers_go_on_after_every_run_even_one_that_did_not_finish(tmp_path: Path) -> None:
    assert results.next_number("a.b", tmp_path) == 1
    for name in ("a.b-01", "a.b-99", "a.b-100", "a.b.c-07", "a.b-x"):
        (tmp_path / name).mkdir()
    assert results.existing("a.b", tmp_path) == ["a.b-01", "a.b-99", "a.b-100"]
    assert results.next_number("a.b", tmp_path) == 101


@pytest.mark.parametrize("number", ["²", "①", "٣", "1a", ""])
def test_a_folder_whose_name_only_looks_numbered_is_no_run(tmp_path, number):
    (tmp_path / f"a.b-{number}").mkdir()
    (tmp_path / "a.b-04").mkdir()
    assert results.existing("a.b", tmp_path) == ["a.b-04"] and results.next_number("a.b", tmp_path) == 5


@pytest.mark.parametrize(("status", "expected"), [("ok", True), ("oom", True), ("unsupported", True), ("failed", False), ("timeout", False)])
def test_failed_runs_and_timeouts_are_tried_again(tmp_path: Path, status: str, expected: bool) -> None:
    record = synthetic.record(synthetic.job("int8"), status=status, reason="" if status == "ok" else "synthetic")
    synthetic.write(tmp_path, [record])
    prefix = record.id.rsplit("-", 1)[0]
    assert (results.enough(prefix, 1, tmp_path) is not None) == expected


def test_the_latest_run_that_counts_is_found_behind_a_failed_and_an_unfinished_one(tmp_path: Path) -> None:
    asked = synthetic.job("int8")
    first, second = synthetic.record(asked), synthetic.record(asked, status="failed", reason="synthetic", number=2)
    synthetic.write(tmp_path, [first, second])
    prefix = first.id.rsplit("-", 1)[0]
    (tmp_path / f"{prefix}-03").mkdir()
    assert results.enough(prefix, 1, tmp_path) == first


def test_a_row_has_enough_runs_once_that_many_have_ended(tmp_path: Path) -> None:
    asked = synthetic.job("int8")
    runs = [synthetic.record(asked, number=number) for number in (1, 2, 3)]
    failed = synthetic.record(asked, status="failed", reason="synthetic", number=4)
    for run in (*runs, failed):
        results.store(tmp_path / run.id, run)
    prefix = runs[0].id.rsplit("-", 1)[0]
    assert results.enough(prefix, 3, tmp_path) == runs[2]
    assert results.enough(prefix, 4, tmp_path) is None


def test_a_row_that_runs_out_of_memory_is_not_repeated(tmp_path: Path) -> None:
    oom = synthetic.record(synthetic.job("int8"), status="oom", reason="synthetic")
    synthetic.write(tmp_path, [oom])
    prefix = oom.id.rsplit("-", 1)[0]
    assert results.enough(prefix, 5, tmp_path) == oom
    synthetic.write(tmp_path, [synthetic.record(synthetic.job("int8"), number=2)])
    assert results.enough(prefix, 5, tmp_path) is None, "since then it fitted"


def test_committed_results_of_this_schema_can_still_be_read() -> None:
    records, skipped = results.load_all(FIXTURES)
    assert {record.status for record in records} == {"ok", "oom", "unsupported"}
    assert len(skipped) == 1


LOAD = """
import json, sys, time
from pathlib import Path
from scripts import results


def fastest_s(read):
    taken_s = []
    for _ in range(3):
        began = time.process_time()
        read()
        taken_s.append(time.process_time() - began)
    return min(taken_s)


folder = Path(sys.argv[1])
of_results = sorted(folder.glob("*/result.json"))
records, skipped = results.load_all(folder)
print(len(records), len(skipped))
print(fastest_s(lambda: results.load_all(folder)), fastest_s(lambda: [json.loads(path.read_text()) for path in of_results]))
"""


@pytest.mark.full
def test_ten_thousand_runs_load_in_time(tmp_path: Path) -> None:
    """A twentieth of them, with the packages of a real environment, at best of three: reading may take as long as the whole report should.

    They are read in a process of its own, as the report reads them: the collector of garbage would else go through all that the tests' process holds.
    A slow machine may take ten times what it takes to read the same files as JSON and do no more (a quiet one takes 5.3 times).
    """
    record = synthetic.record(synthetic.job("int8", new_tokens=(1, 128)))
    record.guest.environment["packages"] = {f"package-{number}": f"{number}.0.1" for number in range(100)}
    for number in range(1, 501):
        name = f"{record.id[:-2]}{number:02d}"
        record.guest.measurements[0]["timed_ms"][0] = 100 + number / 1000
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(to_json(record).replace(record.id, name))
    done = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, cwd=paths.ROOT, check=False)
    assert done.returncode == 0, done.stderr
    counts, times_s = done.stdout.splitlines()
    assert counts == "500 0"
    taken_s, plain_s = map(float, times_s.split())
    assert taken_s < max(5 / 20, 10 * plain_s)


def plain_s(folder: Path, count: int) -> float:
    """Processor seconds in which this machine reads so many results as JSON and does no more, by the best of three: what is allowed on a slow machine
    is a multiple of it."""
    of_results, taken_s = sorted(folder.glob("*/result.json"))[:count], []
    for _ in range(3):
        began = time.process_time()
        for path in of_results:
            json.loads(path.read_text())
        taken_s.append(time.process_time() - began)
    return min(taken_s)


REPORT = """
import sys, time
from pathlib import Path
from scripts.report import document
document.write(Path(sys.argv[1]), Path(sys.argv[2]))
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")).split()[1], time.process_time())
"""


@pytest.mark.full
def test_ten_thousand_of_the_newest_runs_are_reported_in_time_and_memory(tmp_path: Path) -> None:
    """All of them, with times of tokens, probes and energy, each run with times of its own. Below 500 MB at the peak.

    The criterion is 10 s on a quiet core; 30 s of processor time are allowed, for a machine that does other things meanwhile, and on a slow one ten
    times what reading the JSON takes. The peak is VmHWM, which getrusage's ru_maxrss is too, but that begins with what the tests' own process holds.
    """
    controlled = {"variant": "controlled", "new_tokens": (1, 128)}
    cases = ("transformers", "layer-parallel", "tensor-parallel", "int8", "deepspeed", "compiled", "vllm")
    timed = [synthetic.record(synthetic.job(case, **controlled), (30.0, 1900.0 - place)) for place, case in enumerate(cases)]
    try:
        synthetic.write_many(tmp_path / "runs", [synthetic.told(synthetic.probed(one)) for one in timed], 10_000)
        command = [sys.executable, "-c", REPORT, str(tmp_path / "runs"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=paths.ROOT, check=False)
        parsed_s = 20 * plain_s(tmp_path / "runs", 500)
    finally:
        shutil.rmtree(tmp_path / "runs")  # hundreds of MB
    assert done.returncode == 0, done.stderr
    assert "10000 runs" in done.stderr and "skipped" not in done.stdout
    peak_kib, taken_s = done.stdout.split()[-2:]
    assert int(peak_kib) * 1024 < 500e6
    assert float(taken_s) < max(30, 10 * parsed_s)


STRANGE = ["", ".hidden", "-dash", "../up", "a/b", "a b", "a\n", "<b>", "é", "a" * 65]


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("field", ["article", "case", "variant", "backend", "stack", "form", "kind", "weights", "scale", "dtype"])
def test_a_name_that_is_no_name_is_refused_wherever_it_stands(tmp_path: Path, field: str, name: str) -> None:
    document = json.loads(_changed())
    job = document["job"]
    place = job["model"] if field in ("weights", "scale") else job["load"] if field == "dtype" else job
    assert field in place
    place[field] = name
    _folder(tmp_path, json.dumps(document))
    assert results.load_all(tmp_path)[0] == []
    assert f"{field}: Expected letters, digits, '.', '_' and '-'" in results.load_all(tmp_path)[1][0].reason


@pytest.mark.parametrize(
    ("path", "most"),
    [
        (("job", "runs"), shapes.MOST_SERIES),
        (("guest", "measurements"), shapes.MOST_SERIES),
        (("guest", "figures", "fusion"), shapes.MOST_REGIONS),
        (("guest", "figures", "fusion", 0, "us"), shapes.MOST_SAMPLES),
    ],
)
def test_more_entries_than_a_report_can_compare_are_refused(path: tuple, most: int) -> None:
    """A result of 60 KB with 3,000 measurements kept `make report` busy for a minute, one of two regions with 20,000 samples each for longer."""
    fields = json.loads(to_json(synthetic.record(synthetic.job("deepspeed"))))
    fields["guest"]["figures"]["fusion"] = [{"region": "r", "implementation": "eager", "batch_size": 1, "us": [1.0], "reason": ""}]
    shapes.check(fields, shapes.Record)
    *above, last = path
    place = functools.reduce(operator.getitem, above, fields)
    place[last] = place[last] * most
    shapes.check(fields, shapes.Record)
    place[last] += place[last][:1]
    with pytest.raises(InvalidDocument, match=rf"^damaged result.json: .*{last}: Expected `array` of length <= {most}$"):
        shapes.check(fields, shapes.Record)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (("host", "busy", 0, "gpus", 0, "share"), 1.01),
        (("host", "busy", 0, "gpus", 0, "share"), -0.01),
        (("host", "energy", 0, "gpus", 0, "joules"), -1.0),
        (("host", "gpu_memory", 0, "peak_used_bytes"), -1),
        (("guest", "measurements", 0, "timed_ms", 0), 0.0),
        (("guest", "check", "logits_relative_error"), -0.1),
        (("guest", "figures", "roof", "devices", 0, "read_us", 0), 0.0),
        (("guest", "figures", "roof", "devices", 0, "read_bytes"), 0),
        (("guest", "figures", "roof", "devices", 0, "matrix_us", 0), 0.0),
        (("guest", "figures", "products", "step_us", 0), 0.0),
        (("guest", "figures", "token_times", "first_ms", 0), 0.0),
        (("guest", "figures", "token_times", "between_ms", 0, 0), -0.1),
        (("guest", "figures", "workload", "seconds"), 0.0),
        (("guest", "figures", "latency", "arrivals_per_s"), 0.0),
        (("guest", "figures", "latency", "median_ms"), 0.0),
        (("guest", "figures", "cycles", "counted_tokens"), 0),
        (("guest", "figures", "calls", 0, "timed_tokens", 0), -1),
    ],
)
def test_a_number_that_nothing_can_have_is_refused_where_it_stands(path: tuple, number: float) -> None:
    fields = json.loads(to_json(synthetic.probed(synthetic.record(synthetic.job("deepspeed", new_tokens=(1, 16))))))
    counts = dict.fromkeys(("items", "new_tokens", "prompt_tokens", "padded_prompt_tokens", "decode_rows"), 4)
    fields["guest"]["figures"] |= {
        "workload": {**counts, "seconds": 1.0, "resumed": False},
        "latency": {"arrivals_per_s": 4.0, "items": 4, "median_ms": 1.0},
        "cycles": {"sequences": 1, "counted_tokens": 1, "real_tokens": 1, "ranks": 1},
        "calls": [{"new_tokens": 1, "timed_tokens": [1]}],
    }
    shapes.check(fields, shapes.Record)
    *above, last = path
    functools.reduce(operator.getitem, above, fields)[last] = number
    named = next(key for key in reversed(path) if isinstance(key, str))
    with pytest.raises(InvalidDocument, match=rf"^damaged result.json: .*{named}.*: Expected `.*` (<=|>=|>) "):
        shapes.check(fields, shapes.Record)


@pytest.mark.parametrize("name", [".a-01", "-a-01", "a b-01", "a", "a-1", "a-x", "a\n-01", "é-01", "a" * 241 + "-01"])
def test_an_id_that_is_no_id_is_refused(tmp_path: Path, name: str) -> None:
    _folder(tmp_path, _changed(id=name))
    (skipped,) = results.load_all(tmp_path)[1]
    assert "id: Expected an id that ends in -<number>" in skipped.reason


def test_the_kits_own_ids_are_ids() -> None:
    longest = "a" * 240 + "-99"
    assert all(re.match(names.RUN_ID, one) for one in (longest, "a-01", "a.b_c-d.0123456789ab-123"))
