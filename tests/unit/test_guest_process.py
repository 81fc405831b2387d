"""How a guest's process begins its ranks, and how it ends."""

import dataclasses
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import actions, backends, compat, forms, reasons
from bench.__main__ import refused, run
from bench.actions import no_garbage_collection
from bench.job import to_json
from bench.measuring import ranks
from tests import synthetic

ROOT = Path(__file__).resolve().parents[2]


def test_a_key_of_load_that_the_backend_does_not_read_is_refused_before_anything_is_loaded():
    job = dataclasses.replace(synthetic.job("int8"), load={"dtype": "int8", "device_map": "auto", "max_memry": "8GB"})
    found = refused(job, backends.find("int8"), forms.find("generate"))
    assert (found.status, found.reason) == ("unsupported", "load.max_memry is no argument of this backend, allowed are dtype, device_map, max_memory")


#: Stands for `python -m bench` of a rank.
RANK = """
import json, os, sys, time
rank, plan = os.environ["RANK"], json.load(open(sys.argv[1]))
told = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME")}
json.dump(told, open("rank-" + rank, "w"))
if rank in plan["sleeps"]:
    time.sleep(60)
if rank in plan["dies"]:
    os.kill(os.getpid(), 9)
if rank == "0" and plan["answers"]:
    open(sys.argv[2], "w").write("{}")
sys.exit(plan["code"])
"""


def start(folder, *, sleeps="", dies="", answers=True, code=0):
    """(exit code of two ranks' start, modules that it imported)."""
    (folder / "bench").mkdir()
    (folder / "bench" / "__main__.py").write_text(RANK)
    (folder / "job.json").write_text(json.dumps({"sleeps": sleeps, "dies": dies, "answers": answers, "code": code}))
    (folder / "result.json").write_text("of an earlier run")
    text = f"import json, sys; sys.path.insert(0, {str(ROOT)!r}); from bench.measuring import ranks; code = ranks.start(2, 'job.json', 'result.json'); print(json.dumps([code, list(sys.modules)]))"
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_rank_is_told_its_number_and_where_the_others_are(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    code, modules = start(tmp_path)
    told = [json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in range(2)]
    assert code == 0 and (tmp_path / "result.json").read_text() == "{}"
    assert [(one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["OMP_NUM_THREADS"]) for one in told] == [("0", "0", "2", "3"), ("1", "1", "2", "3")]
    assert {(one["MASTER_ADDR"], one["NCCL_SOCKET_IFNAME"]) for one in told} == {("127.0.0.1", "lo")}
    assert "torch" not in modules, "importing it takes seconds of every run"


def test_a_rank_that_ends_badly_ends_the_others_and_its_signal_is_told(tmp_path):
    began = time.monotonic()
    assert start(tmp_path, sleeps="0", dies="1", answers=False)[0] == 137
    assert time.monotonic() - began < 20


def test_without_a_result_the_first_exit_code_stands(tmp_path):
    assert start(tmp_path, answers=False, code=3)[0] == 3


ENDING = """
import atexit, types
from bench.__main__ import end

class Held:
    def __del__(self):
        print("taken apart")

held = Held()
atexit.register(print, "registered")
end(types.SimpleNamespace(kind={kind!r}), 3)
"""


@pytest.mark.parametrize(("kind", "said"), [("measure", ["registered"]), ("judge", ["registered"]), ("profile", ["registered", "taken apart"])])
def test_a_process_ends_without_taking_its_objects_apart_unless_it_is_profiled(kind, said):
    done = subprocess.run([sys.executable, "-c", ENDING.format(kind=kind)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (3, said), done.stderr


def test_a_failure_while_it_ends_does_not_change_how_it_ended():
    text = "import atexit, types; from bench.__main__ import end; atexit.register(lambda: 1 / 0); end(types.SimpleNamespace(kind='measure'), 0)"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr


def test_a_refusal_that_fails_is_a_failed_result_and_no_process_without_one(tmp_path):
    """No library of the measurements is installed for the tests of the host, so int8 cannot even say whether it runs here."""
    (tmp_path / "job.json").write_text(to_json(synthetic.job("int8", device="cpu", scale="tiny")))
    command = [sys.executable, "-m", "bench", str(tmp_path / "job.json"), str(tmp_path / "result.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "PackageNotFoundError" in done.stderr, "the log has the traceback"
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["status"] == "failed" and "bitsandbytes" in result["reason"]


@pytest.mark.parametrize(("ranks_there", "error", "raises"), [("1", RuntimeError("x"), False), ("2", ValueError("x"), False), ("2", RuntimeError("x"), True)])
def test_of_several_ranks_one_gives_up_a_call_only_where_all_do(monkeypatch, ranks_there, error, raises):
    monkeypatch.setenv("WORLD_SIZE", ranks_there)
    if raises:
        with pytest.raises(ranks.LaterCallFailed, match="a call after the timed ones failed on one of 2 ranks: RuntimeError: x"):
            ranks.told(error, alike=ranks.REFUSALS)
    else:
        assert ranks.told(error, alike=ranks.REFUSALS) == {"reason": f"{type(error).__name__}: x"}
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ranks.LaterCallFailed):
        ranks.told(ValueError("x"))


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("CUDA out of memory")])
def test_memory_that_runs_out_after_the_timed_calls_is_no_oom_of_the_row(monkeypatch, error):
    """Verdicts take a row that ran out of memory for one that cannot run."""

    def later(job, result, phases, folder):
        monkeypatch.setenv("WORLD_SIZE", "2")
        ranks.told(error)

    monkeypatch.setattr(actions, "import_libraries", lambda: None)
    monkeypatch.setattr(compat, "out_of_memory_errors", lambda torch: ())
    monkeypatch.setitem(actions.ACTIONS, "measure", later)
    result = run(synthetic.job("int8", device="cpu", scale="tiny"))
    assert result.status == "failed" and result.reason.startswith("a call after the timed ones failed on one of 2 ranks: ")


CALLS, AFTER = {"new_tokens": 1, "timed_ms": [1.0]}, "a call after the timed ones ran out of memory: "


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("CUDA out of memory")])
@pytest.mark.parametrize(
    ("timed", "status", "reason"),
    [({}, "oom", ""), ({"measurements": [CALLS]}, "failed", AFTER), ({"figures": {"workload": {}}}, "failed", AFTER)],
    ids=["before the timed calls", "after them", "after a form without timed calls"],
)
def test_memory_that_runs_out_in_the_output_check_loses_no_time_and_is_no_oom_either(monkeypatch, error, timed, status, reason):
    def checked(job, result, phases, folder):
        for name, value in timed.items():
            setattr(result, name, value)
        raise error

    monkeypatch.setattr(actions, "import_libraries", lambda: None)
    monkeypatch.setattr(compat, "out_of_memory_errors", lambda torch: ())
    monkeypatch.setitem(actions.ACTIONS, "measure", checked)
    result = run(synthetic.job("int8", device="cpu", scale="tiny"))
    assert result.status == status and result.reason.startswith(f"{reason}{'no' if isinstance(error, MemoryError) else 'RuntimeError: CUDA out of memory'}")
    assert result.measurements == timed.get("measurements", []) and result.figures == timed.get("figures", {})


def test_garbage_is_collected_again_after_the_imports_however_they_end():
    with no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), no_garbage_collection():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.parametrize(("text", "line"), [("one\ntwo", "one"), ("\n  one\n\ntwo\n", "one"), (" \n", "RuntimeError"), ("", "RuntimeError")])
def test_an_error_is_told_by_its_first_line_or_by_its_type(text, line):
    assert (reasons.first_line(RuntimeError(text)), reasons.reason(RuntimeError(text))) == (line, f"RuntimeError: {line}")
