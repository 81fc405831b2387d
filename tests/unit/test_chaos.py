"""The campaign of faults itself: its draws follow from the seed, and its oracle sees each breach."""

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.errors import PreflightError, Stopped
from scripts.machine import conditions
from scripts.machine import gpus as machine_gpus
from scripts.results import Record
from scripts.run import engines
from scripts.run.run_folders import WORK
from tests import synthetic
from tests.chaos import __main__ as chaos
from tests.chaos import campaign, faults, gpus, guest, hog, oracle, worlds
from tests.chaos.place import BOUND_S, GPU, HOST, ROOT, Place
from tests.chaos.worlds import World


def names(seed: str, count: int) -> list[str]:
    return [fault.kind.name for fault in campaign.drawn(seed, count, faults.KINDS)]


def test_a_seed_draws_the_same_faults_and_another_seed_others() -> None:
    assert names("a", 60) == names("a", 60) != names("b", 60)
    first, again = (campaign.drawn("a", 5, faults.KINDS)[2].draw().random() for _ in range(2))
    assert first == again


def test_every_kind_is_tried_where_there_are_faults_enough_and_the_bound_holds() -> None:
    assert set(names("a", len(faults.KINDS))) == {kind.name for kind in faults.KINDS}
    assert len(names("a", 7)) == 7 and len(names("a", 500)) == 500


def test_all_manners_that_are_drawn_are_of_the_language() -> None:
    words = {"write": guest.WRITING, "print": guest.PRINTING, "leave": guest.LEAVING, "end": guest.ENDING}
    seen: dict[str, set[str]] = {word: set() for word in words}
    for number in range(500):
        for kind in faults.KINDS:
            for manners in guest.parse_manners(kind.manners(random.Random(number))).values():
                for word in words.keys() & manners.keys():
                    assert manners[word] in words[word]
                    seen[word].add(manners[word])
    assert {word: set(allowed) - seen[word] for word, allowed in words.items()} == {word: set() for word in words}, "each is drawn at times"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place after an honest run."""
    place = Place(tmp_path_factory.mktemp("chaos") / "place", ROOT, HOST, 1)
    command = place.start()
    assert command.wait(BOUND_S[HOST]) == 0, command.text()
    return place


def result_of(place: Place) -> Path:
    (path,) = place.runs.glob("*/result.json")
    return path


def change_times(place: Place) -> None:
    fields = json.loads(result_of(place).read_text())
    fields["guest"]["measurements"][0]["timed_ms"][0] *= 1.5
    result_of(place).write_text(json.dumps(fields))


def cut(place: Place) -> None:
    result_of(place).write_text(result_of(place).read_text()[:300])


def breaches(place: Place, before: dict[Path, bytes], output: str = "") -> set[str]:
    found = oracle.lost(before) + oracle.false(place) + oracle.left(place) + oracle.promised(output) + oracle.tracebacks(output)
    return {category for category, _ in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        (lambda place: None, set()),
        (lambda place: result_of(place).unlink(), {oracle.LOST}),
        (change_times, {oracle.LOST, oracle.FALSE}),
        (cut, {oracle.LOST, oracle.FALSE}),
        (lambda place: (result_of(place).parent / ".lock").touch(), {oracle.LEFT}),
        (lambda place: (result_of(place).parent / "work").mkdir(), {oracle.LEFT}),
        (lambda place: (place.models / ".work-x").mkdir(), {oracle.LEFT}),
        (lambda place: (place.runs / "a-01").mkdir(), {oracle.LEFT}),
        (lambda place: (place.tmp / "scratch").touch(), {oracle.LEFT}),
    ],
    ids=["nothing", "result gone", "another time", "half a result", "lock", "work", "models' work", "empty run", "temporary file"],
)
def test_the_oracle_sees_each_breach_and_no_other(honest: Place, tmp_path: Path, damage: Callable, seen: set) -> None:
    place = Place(tmp_path / "place", ROOT, HOST, 1)
    for name in ("runs", "models"):
        shutil.copytree(honest.folder / name, place.folder / name, dirs_exist_ok=True)
    before = oracle.stored(place)
    damage(place)
    assert breaches(place, before) == seen


@pytest.mark.slow
def test_the_oracle_holds_a_command_to_what_it_said(honest: Place) -> None:
    promise = "\n".join(line for line in next(honest.folder.glob("output-*")).read_text().splitlines() if line.endswith("result.json"))
    assert promise and breaches(honest, {}, promise) == set()
    assert breaches(honest, {}, promise.replace("-01/", "-07/")) == {oracle.LOST}
    assert breaches(honest, {}, "Traceback (most recent call last):\n  …") == {oracle.TRACEBACK}


@pytest.mark.slow
def test_a_process_that_a_command_leaves_is_seen_and_ended(honest: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "GONE_WITHIN_S", 0.2)
    process = subprocess.Popen(["sleep", "60"], env=honest.environment, start_new_session=True)
    assert oracle.soon(honest.processes, 10), "a process that has just started shows no environment for a moment"
    (breach,) = oracle.processes_left(honest)
    assert breach == (oracle.LEFT, "a process: sleep 60 ") and process.wait(10) == -9
    assert oracle.processes_left(honest) == []


MINE, OTHER = 4711, 4712


def row(status: str = "ok", others: str = "", pids: tuple[int, ...] = (), reason: str = "") -> Record:
    """A made-up row of a GPU whose job took from second 100 to 112.5; `others` is when others used the GPU."""
    record = synthetic.record(synthetic.job("transformers"), status=status, reason=reason)
    marks = [f"foreign load: others {others}"] if others else []
    seen = {"gpus": [{"foreign_pids": list(pids)}], "marks": marks, "disturbed": marks}
    record.host.update(began=100.0, wall_s=12.5, conditions=seen)
    return record


class Held(gpus.Foreign):
    """A foreign process in name, with the GPU since a second."""

    def __init__(self, held_at: float) -> None:
        self.held_at, self.process = held_at, subprocess.Popen(["true"])
        self.process.wait()
        self.process.pid = MINE


DURING, BEGAN = "computed on GPU 0 during the run", "used GPU 0 when it began"


@pytest.mark.parametrize(
    ("held_at", "record", "wrong"),
    [
        (105.0, row(others=DURING, pids=(MINE,)), False),
        (90.0, row(others=BEGAN), False),
        (105.0, row(), True),
        (105.0, row(others=DURING, pids=(OTHER,)), True),
        (105.0, row(pids=(MINE,)), True),
        (112.0, row(), False),
        (120.0, row(), False),
        (120.0, row("oom", reason="CUDA out of memory"), True),
        (120.0, row("failed", reason="CUDA error"), True),
    ],
    ids=["named", "named at its beginning", "not marked", "another named", "listed and not marked", "too short", "too late", "oom", "failed"],
)
def test_a_row_beside_a_foreign_process_has_to_be_marked(held_at: float, record: Record, wrong: bool) -> None:
    found = gpus.after_a_guest(oracle.Ended(0, "", [record]), Held(held_at))
    assert [category for category, _ in found] == [oracle.FALSE] * wrong
    assert not wrong or record.status != "ok" or str(MINE) in found[0][1]


def test_a_run_beside_a_foreign_process_stores_a_row() -> None:
    assert gpus.after_a_guest(oracle.Ended(1, "error: no", []), Held(105.0))


AFTER = "a call after the timed ones ran out of memory: CUDA out of memory"
ERROR, TWO_LINES = "[1/1] a row\nerror: the weights job ended with oom: CUDA error: out of memory\n", "error: one\nerror: two\n"


@pytest.mark.parametrize(
    ("code", "output", "rows", "wrong"),
    [
        (1, "", [row("oom")], 0),
        (0, "", [row(others=DURING, pids=(MINE,))], 0),
        (0, "", [row(others=BEGAN)], 0),
        (1, ERROR, [], 0),
        (0, "", [row()], 1),
        (0, "", [row(others=DURING, pids=(OTHER,))], 1),
        (0, "", [row("oom")], 1),
        (1, "", [row("failed", reason="SIGSEGV")], 1),
        (1, "", [row("timeout")], 1),
        (0, ERROR, [], 1),
        (1, "", [], 1),
        (1, TWO_LINES, [], 1),
        (1, "", [row("failed", reason=AFTER)], 0),
        (0, "", [row("failed", reason=AFTER)], 1),
    ],
    ids=[
        *("oom", "ok and named", "ok and named at its beginning", "a line", "ok and not marked", "ok and another named"),
        *("oom and exit code 0", "failed", "timeout", "exit code 0", "nothing said", "two lines"),
        *("after the timed calls", "after them and exit code 0"),
    ],
)
def test_memory_that_runs_out_is_a_row_or_a_line(code: int, output: str, rows: list[Record], wrong: int) -> None:
    assert len(gpus.after_oom(oracle.Ended(code, output, rows), Held(105.0))) == wrong


@pytest.mark.parametrize("held_at", [112.0, 120.0], ids=["too short", "too late"])
def test_memory_that_is_taken_too_late_leaves_a_row_ok(held_at: float) -> None:
    assert gpus.after_oom(oracle.Ended(0, "", [row()]), Held(held_at)) == []


@pytest.mark.parametrize(
    ("output", "rows", "how"),
    [("", [row("oom"), row()], ["oom", "ok"]), (ERROR, [], ["oom"]), (ERROR, [row()], ["ok"]), ("error: no\n", [], ["no row"])],
    ids=["rows", "a helping job", "a row after all", "nothing"],
)
def test_a_command_tells_how_it_ended(output: str, rows: list[Record], how: list[str]) -> None:
    assert oracle.Ended(1, output, rows).how == how


def ended(kind: faults.Kind, *hows: str, breaches: int = 0) -> list[campaign.Outcome]:
    """An outcome for each word; "" came too late."""
    wrong = [(oracle.FALSE, "words")] * breaches
    return [campaign.Outcome(campaign.Fault("a", 1, kind), bool(how), how=[how] if how else [], breaches=wrong) for how in hows]


MEMORY, OTHERS = (next(kind for kind in faults.KINDS if words in kind.name) for words in ("GPU memory runs out, deepspeed", "SIGTERM"))


@pytest.mark.parametrize(
    ("outcomes", "line", "shown"),
    [
        (ended(MEMORY, "oom"), "1 injected, 0 breaches (oom 1)", True),
        (ended(MEMORY, "ok", "oom", "ok"), "3 injected, 0 breaches (ok 2, oom 1)", True),
        (ended(MEMORY, "ok", ""), "1 injected, 1 came too late, 0 breaches (ok 1)", False),
        (ended(MEMORY, ""), "0 injected, 1 came too late, 0 breaches", False),
        (ended(MEMORY, "failed", breaches=1), "1 injected, false results 1 (failed 1)", False),
        ([], "0 injected, 0 breaches", False),
    ],
    ids=["oom", "oom once", "ok", "late", "failed", "none drawn"],
)
def test_a_campaign_tells_where_memory_never_ran_out(outcomes: list[campaign.Outcome], line: str, shown: bool) -> None:
    lines = campaign.summary([MEMORY, OTHERS], [*outcomes, *ended(OTHERS, "no row")])
    not_shown = f"not shown: {MEMORY.name}: no run ended with oom"
    assert lines[:-1] == [f"{MEMORY.name}: {line}", f"{OTHERS.name}: 1 injected, 0 breaches", *[not_shown] * (not shown)]
    assert lines[-1].startswith("faults injected: ")


@pytest.mark.slow
def test_an_outcome_holds_how_its_struck_run_ended_and_a_result_is_read_before_threads_read_some_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []
    load = oracle.results.load_all
    monkeypatch.setattr(oracle.results, "load_all", lambda runs: (readers.append(threading.current_thread()), load(runs))[1])
    nothing = faults.Kind("nothing happens", 1, moments=(), shows="ok")
    with campaign.Campaign(tmp_path, [nothing]) as run:
        (outcome,) = run.perform([campaign.Fault("a", 1, nothing)])
    assert (outcome.struck, outcome.how, outcome.breaches) == (True, ["ok"], [])
    assert readers[0] is threading.main_thread() and threading.main_thread() not in readers[1:]


@pytest.mark.slow
def test_the_first_fault_of_a_kind_may_come_as_soon_as_the_job_begins(tmp_path: Path) -> None:
    struck: list[tuple[str, bool]] = []

    def strike(word: str) -> faults.Strike:
        return lambda command, place, world, draw: struck.append((word, bool(list(place.runs.glob(f"*/{WORK}/job.json")))))

    kind = faults.Kind("two", 1, strike=strike("drawn"), at_once=strike("at once"), moments=("start",))
    with campaign.Campaign(tmp_path, [kind]) as run:
        for fault in campaign.drawn("a", 2, [kind]):
            run.suffer(fault)
    assert [word for word, _ in struck] == ["at once", "drawn"] and struck[0][1]


def test_each_kind_of_memory_that_runs_out_has_to_show_it_and_its_first_fault_does() -> None:
    shows = [kind for kind in faults.KINDS if kind.shows == "oom"]
    assert {kind.name for kind in shows} == {f"GPU memory runs out, {backend}" for backend in gpus.BACKENDS}
    assert all(kind.at_once is gpus.take_everything for kind in shows)


IN_USE = "error: GPU_IDS=0: GPU 0 is in use by pid 4711 (ALLOW_BUSY=1 measures beside it). Wait, type GPU_IDS= with others, or see `nvidia-smi`\n"


@pytest.mark.parametrize(
    ("code", "output", "rows", "wrong"),
    [
        (3, IN_USE, [], 0),
        (3, IN_USE.replace("is in use by pid 4711", "has 20.0 GiB in use"), [], 0),
        (0, "", [row()], 1),
        (1, IN_USE, [], 1),
        (3, "error: another reason\n", [], 1),
        (3, IN_USE * 2, [], 1),
    ],
    ids=["refused", "no pids", "measured", "another exit code", "another reason", "two lines"],
)
def test_a_gpu_in_use_is_refused_in_a_line_that_says_why(code: int, output: str, rows: list[Record], wrong: int) -> None:
    assert PreflightError.exit_code == 3
    assert len(gpus.refused(oracle.Ended(code, output, rows), World(None))) == wrong  # type: ignore[arg-type]


def test_the_words_that_the_oracle_looks_for_are_those_of_the_kit() -> None:
    marks = Path(conditions.__file__).read_text()
    assert "foreign load: others used GPU {index} when it began" in marks and "foreign load: others computed on GPU {gpu.index} during the run" in marks
    refusals = Path(machine_gpus.__file__).read_text()
    assert "is in use by pid" in refusals and "GiB in use" in refusals
    assert "the {job.kind} job ended with {status}: " in Path(engines.__file__).read_text()


def test_after_the_foreign_process_a_new_row_is_ok_and_not_marked() -> None:
    assert gpus.after_the_next([row()]) == []
    assert [category for category, _ in gpus.after_the_next([row(others=BEGAN)])] == [oracle.FALSE]
    assert [category for category, _ in gpus.after_the_next([row("oom")])] == [category for category, _ in gpus.after_the_next([])] == [oracle.STUCK]


def test_of_a_real_model_only_tracebacks_of_the_kit_count() -> None:
    quoted = 'error: the weights job ended with failed\nTraceback (most recent call last):\n  File "/kit/bench/__main__.py", line 9\n'
    own = quoted + f'  File "{ROOT}/scripts/__main__.py", line 9\n'
    through = f"{ROOT}/scripts/"
    assert oracle.tracebacks(quoted, through) == [] != oracle.tracebacks(own, through)
    assert oracle.tracebacks(quoted) != []


def test_each_kind_of_a_gpu_says_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [kind for kind in faults.KINDS if kind.engine == GPU]
    assert {kind.backend for kind in kinds} == {"", *gpus.BACKENDS} and all("GPU" in kind.name for kind in kinds)
    gpus.lacking.cache_clear()
    monkeypatch.setattr(machine_gpus, "given", list)
    assert {kind.lacking() for kind in kinds} == {"it needs a GPU"}
    monkeypatch.setattr(gpus, "lacking", lambda: "")
    monkeypatch.setattr(gpus.container, "connect", lambda: None)
    monkeypatch.setattr(gpus.build, "exists", lambda client, tag: "/int8:" in tag)
    assert [backend for backend in gpus.BACKENDS if not gpus.lacking_for(backend)()] == ["int8"]
    assert "make restore" in gpus.lacking_for("bminf")()


def test_a_gpu_that_others_use_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.lacking.cache_clear()
    monkeypatch.setattr(machine_gpus, "given", lambda: [machine_gpus.Gpu(0, "GPU-0", "a GPU", 1, "9.0")])
    monkeypatch.setattr(machine_gpus, "foreign_use", lambda gpu: "is in use by pid 1")
    monkeypatch.setattr(gpus.ctypes, "CDLL", lambda name: None)
    assert gpus.lacking() == "it needs a GPU that nobody uses"
    gpus.lacking.cache_clear()


MIB = 1 << 20


class Driver:
    """As much of libcuda as the foreign process asks for; no piece may be larger than `largest`."""

    def __init__(self, free: int, largest: int) -> None:
        self.free, self.largest, self.calls, self.pieces = free, largest, 0, []

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *arguments: 0

    def cuMemGetInfo_v2(self, free: object, total: object) -> int:  # noqa: N802
        free._obj.value = self.free  # type: ignore[attr-defined]
        return 0

    def cuMemAlloc_v2(self, address: object, count: ctypes.c_size_t) -> int:  # noqa: N802
        self.calls += 1
        if count.value > min(self.free, self.largest):
            return hog.OUT_OF_MEMORY
        self.free -= count.value
        self.pieces.append(count.value)
        address._obj.value = 1 << 40 | self.calls  # type: ignore[attr-defined]
        return 0


def test_the_foreign_process_takes_all_but_what_it_is_to_leave() -> None:
    driver = Driver(1000 * MIB, largest=300 * MIB)
    gpu = hog.Gpu(driver)
    held = hog.obey(gpu, f"all {64 * MIB}")
    assert 64 * MIB <= driver.free < 66 * MIB and sum(count for _, count in held) == sum(driver.pieces) == 1000 * MIB - driver.free
    driver.free += 500 * MIB
    hog.go_on(gpu, f"all {64 * MIB}", held)
    assert 64 * MIB <= driver.free < 66 * MIB, "what becomes free is taken too"


def test_the_foreign_process_holds_a_share() -> None:
    driver = Driver(1000 * MIB, largest=1000 * MIB)
    gpu = hog.Gpu(driver)
    held = hog.obey(gpu, "busy 0.25")
    assert driver.free == 750 * MIB
    driver.free += 500 * MIB
    hog.go_on(gpu, "busy 0.25", held)
    assert driver.free == 1250 * MIB, "no more than its share"


def test_a_driver_that_refuses_is_named() -> None:
    driver = Driver(1000 * MIB, largest=1000 * MIB)
    driver.cuDevicePrimaryCtxRetain = lambda *arguments: 100  # type: ignore[attr-defined]
    with pytest.raises(hog.CudaError, match="cuDevicePrimaryCtxRetain answers 100"):
        hog.Gpu(driver)


def started(folder: Path) -> subprocess.Popen[str]:
    """A foreign process where libcuda.so.1 is no library."""
    (folder / "libcuda.so.1").write_text("no library")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, hog.__file__, "GPU-0"], env=os.environ | {"LD_LIBRARY_PATH": str(folder)}, text=True, **pipes)


def test_the_foreign_process_ends_with_its_parent_and_says_where_there_is_no_driver(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert process.communicate(timeout=20) == ("", None) and process.returncode == 0, "its input ended"
    with started(tmp_path) as process:
        assert process.stdin and process.stdout
        print("hold 0.5", file=process.stdin, flush=True)
        assert process.stdout.readline().startswith("cannot: ") and process.wait(20) == 1


def test_a_lock_of_a_gpu_is_left_behind_only_where_somebody_holds_it(tmp_path: Path) -> None:
    place = Place(tmp_path / "place", ROOT, HOST, 1)
    place.locks.mkdir()
    (place.locks / "GPU-0.lock").touch()
    assert oracle.left(place) == []
    held = oracle.locks.take(place.locks / "GPU-0.lock")
    assert held and oracle.left(place) == [(oracle.LEFT, str(place.locks / "GPU-0.lock"))]
    held.close()


@pytest.mark.parametrize(("answers", "late"), [([False, False, True], False), ([False] * 1000, True)])
def test_a_disk_that_is_being_written_to_becomes_read_only_once_the_write_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[bool], late: bool
) -> None:
    monkeypatch.setattr(worlds, "_mount", lambda *arguments: None)
    monkeypatch.setattr(worlds, "_mounted", lambda *arguments: answers.pop(0))
    monkeypatch.setattr(worlds, "READ_ONLY_WITHIN_S", 0.3)
    disk = worlds.ReadOnly(Place(tmp_path / "place", ROOT, HOST, 1))
    disk.strike()
    assert disk.late is late


def test_a_lock_of_the_repository_that_nobody_frees_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "place", ROOT, HOST, 1)
    lock = tmp_path / "index.lock"
    monkeypatch.setattr(oracle, "GITS_LOCK", lock)
    monkeypatch.setattr(oracle, "GIT_ENDS_WITHIN_S", 0.2)
    assert oracle.left(place) == []
    lock.touch()
    assert oracle.left(place) == [(oracle.LEFT, str(lock))]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_campaign_that_is_stopped_leaves_no_folder(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(places: Path, kinds: object) -> None:
        assert places.is_dir() and places.is_relative_to(tmp_path)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(chaos.surroundings, "use", lambda variables: None)
    monkeypatch.setattr(chaos, "own_mounts", lambda: None)
    monkeypatch.setattr(chaos, "lacks", lambda kind: "")
    monkeypatch.setattr(chaos.campaign, "Campaign", stopped)
    with pytest.raises(Stopped):
        chaos.main()
    assert not list(tmp_path.iterdir())
