"""A whole run whose guest is hostile: the run is stored as failed with the reason, and nothing of the host's reaches the results."""

import json
import stat
import sys
from pathlib import Path

import pytest

from scripts import results
from scripts.results import Record, answers
from scripts.run import cost, plan, rounds
from tests.typed import chosen

#: An interpreter in name: it says that it has torch, and does something else than `python -m bench JOB RESULT`.
GUEST = """#!{python}
import json, os, signal, sys
if sys.argv[1] == "-c":
    sys.exit(0)
job, path = json.load(open(sys.argv[3])), sys.argv[4]
good = {{"schema": 2, "id": job["id"], "status": "ok", "batch_size": None, "measurements": [], "memory": {{"devices": []}},
        "figures": {{"fusion": [{{"region": "mlp", "implementation": "eager", "batch_size": 1, "us": [1.0], "reason": ""}}]}}}}
def write(**changes):
    with open(path, "w") as stream:
        json.dump(dict(good, **changes), stream)
{attack}
"""

SETTINGS = {
    "ARTICLE": "deepspeed-inference",
    "CASES": "fusion-compile",
    "STACK": "current",
    "ENGINE": "host",
    "DEVICE": "cpu",
    "SCALE": "tiny",
    "WEIGHTS": "random",
}


def measured(folder: Path, attack: str) -> Record:
    """The stored record of a run with that guest."""
    python = folder / "python3"
    python.write_text(GUEST.format(python=sys.executable, attack=attack.replace("SECRET", str(folder / "secret"))))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (folder / "secret").write_text("root:x:0:0")
    asked = chosen(**SETTINGS, RUNS=str(folder / "runs"), MODELS=str(folder / "models"), PYTHON_HOST=str(python))
    (record,) = rounds.run_all(plan.plan(["compiled"], asked, every=True), asked, keep_going=False)
    assert results.load_all(folder / "runs") == ([record], [])
    return record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_an_honest_answer_of_such_a_guest_counts(folder: Path) -> None:
    record = measured(folder, "write(phases={'measure': [1.0, 2.0]})")
    assert record.status == "ok"
    assert record.host["container_s"] >= 0 and record.host["judge_s"] >= 0
    assert record.host["conditions"]["cores"] is None and record.host["conditions"]["load_average_after"] >= 0
    assert cost.whole_s(record) >= record.host["wall_s"] > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("os.mkfifo(path)", "result.json is a pipe"),
        ("os.symlink('SECRET', path)", "result.json is a symbolic link"),
        ("os.link('SECRET', path)", "result.json has 2 names"),
        pytest.param("os.mkdir(path)", "result.json is a folder", marks=pytest.mark.slow),
        pytest.param("open(path, 'wb').truncate(3 << 30)", "result.json has 3,221,225,472 bytes", marks=pytest.mark.slow),
        ("pass", "exit code 0 and wrote no result"),
        pytest.param("sys.exit(3)", "exit code 3 and wrote no result", marks=pytest.mark.slow),
    ],
)
def test_what_is_no_plain_file_fails_the_run_and_is_not_kept(folder: Path, attack: str, why: str) -> None:
    record = measured(folder, attack)
    assert record.status == "failed" and why in record.reason
    assert sorted(path.name for path in (folder / "runs" / record.id).iterdir()) == ["job.json", "log.txt", "result.json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("open(path, 'w').write('[' * 200_000)", "lists and objects within each other"),
        ("write(id='another')", "its id is 'another'"),
        ("write(load_s=1e9)", "its process lived"),
        ("write(environment={'packages': ['torch']})", "environment.packages"),
        ("write(figures={})", "neither timed calls nor figures"),
        ("write(); os.kill(os.getpid(), signal.SIGSEGV)", "(SIGSEGV)"),
        ("""open(path, 'w').write(json.dumps(good).replace('"ok"', '"ok", "reason": "' + chr(92) + 'ud800"'))""", "damaged result.json"),
        ("""open(path, 'w').write(json.dumps(good).replace('1.0', '1e400'))""", "out of range"),
    ],
)
def test_an_answer_that_is_refused_stays_beside_the_failed_result(folder: Path, attack: str, why: str) -> None:
    record = measured(folder, attack)
    assert record.status == "failed" and why in record.reason
    assert (folder / "runs" / record.id / answers.REJECTED).stat().st_size > 100


def test_what_else_a_guest_leaves_as_links_or_says_as_nonsense_does_no_harm(folder: Path) -> None:
    attack = """
for name in ("trace.json.gz", "outputs.jsonl", "tokens.json", "profile.nsys-rep"):
    os.symlink('SECRET', os.path.join(os.path.dirname(path), name))
for event in ({"phase": 5}, {"total": "x"}, {"run": ["x"], "total": 1}, [], {"phase": "x" * 1_000_000}):
    print("@" + json.dumps(event))
print("@{")
write()
"""
    record = measured(folder, attack)
    assert record.status == "ok"
    kept = {path.name: path for path in (folder / "runs" / record.id).iterdir()}
    assert sorted(kept) == ["job.json", "log.txt", "result.json"]
    assert not any(path.is_symlink() or b"root:x" in path.read_bytes() for path in kept.values())


@pytest.mark.slow
def test_a_guest_that_leaves_thousands_of_folders_within_each_other_ends_no_command(folder: Path) -> None:
    attack = """
os.chdir(os.path.dirname(path))
for _ in range(2500):
    os.mkdir("d"), os.chdir("d")
write()
"""
    record = measured(folder, attack)
    assert record.status == "ok" and not (folder / "runs" / record.id / "work").exists()


def test_a_reason_is_one_line_that_a_terminal_can_show(folder: Path) -> None:
    record = measured(folder, "write(status='failed', reason='a' + chr(27) + '[2Jb' + chr(10) + 'c' + 'x' * 50_000)")
    assert record.status == "failed" and record.reason.startswith("a?[2Jb c") and len(record.reason) <= 2000
    assert json.loads((folder / "runs" / record.id / "result.json").read_text())["guest"]["reason"] == record.reason


def test_names_and_words_of_a_guest_move_no_cursor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "'x' + chr(27) + '[2J' + chr(10) + 'row: ok'"
    attack = f"write(figures=dict(good['figures'], **{{{hostile}: 1}}), check={{'passed': False, 'reason': {hostile}, 'tolerance': job['tolerance']}})"
    record = measured(folder, attack)
    told = capsys.readouterr().out
    assert "\x1b" not in told and "\n  row" not in told and "\nrow" not in told
    assert record.status == "failed" or record.guest.check["reason"] == "x?[2J row: ok"
    assert "x?[2J row: ok" in told


def test_a_stored_run_without_marks_is_told_as_measured_before(folder: Path) -> None:
    run = measured(folder, "write()")
    path = folder / "runs" / run.id / "result.json"
    told = json.loads(path.read_text())
    told["host"]["conditions"] = {"marks": None}
    path.write_text(json.dumps(told))
    assert measured(folder, "sys.exit(1)").id == run.id
