"""What `make instrument-…` stores, of guests that answer, fail, lie, and are stopped. The guest is a script in place of an interpreter with torch."""

import dataclasses
import errno
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

import pytest

from bench.instruments import fitting
from scripts.commands import instrument as command
from scripts.errors import KitError, NothingRuns, PreflightError, UsageError
from scripts.machine import removal, signals, temporary_folders
from scripts.paths import ROOT
from scripts.pins import Image
from scripts.run import host_facts, instruments, measurement, plan, runner
from scripts.run.engines import host
from scripts.run.options import Options

ANSWER = """echo '{"error": 0.5}' > "$4"\n"""


@pytest.fixture
def examine(tmp_path, monkeypatch):
    """Examines a case by a script: $4 is the place of its answer. Results lie in tmp_path/instruments."""
    monkeypatch.setattr(measurement, "with_checkpoint", lambda job, engine, work, on_line: job)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def run(script, name="layers", **settings):
        python = tmp_path / "python"
        python.write_text(f'#!/bin/bash\nif [ "$1" = -c ]; then exit 0; fi\n{script}\n')
        python.chmod(0o755)
        fixed = {"engine": "host", "device": "cpu", "scale": "tiny", "weights": "random", "stack": "current", "cases": ("layer-parallel",)}
        asked = Options(**fixed | {"python_host": str(python), "folder": tmp_path / "runs", "models": tmp_path / "models"} | settings)
        return instruments.examine(name, plan.plan(["layer-parallel"], asked, every=False)[0], asked)

    yield run
    assert not list((tmp_path / "tmp").iterdir()), "its folder goes, however it ends"


def stored(tmp_path):
    return [json.loads(path.read_text()) for path in sorted((tmp_path / "instruments").glob("*-[0-9][0-9].json"))]


def test_an_answer_is_stored_with_the_end_of_its_process(examine, tmp_path, monkeypatch):
    monkeypatch.setattr(host_facts, "between_gpus", lambda engine: {"NCCL_P2P_DISABLE": "1"})
    path = examine(ANSWER)
    (told,) = stored(tmp_path)
    assert (told["status"], told["reason"], told["found"]) == ("ok", "", {"error": 0.5})
    assert told["host"]["between_gpus"] == {"NCCL_P2P_DISABLE": "1"} and told["host"]["wall_s"] > 0
    assert path.name.startswith("layers-inference-tools.layer-parallel.published.") and told["job"]["id"] == path.name[:-8]
    assert path.read_text() == json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("exit 7", "failed", "ended with exit code 7"),
        ("kill -9 $$", "failed", r"ended with exit code 137 \(SIGKILL\)"),
        ("sleep 30", "timeout", "was stopped after 1 s; type TIMEOUT_S=2 for more"),
    ],
)
def test_what_was_found_before_a_failure_is_stored_and_says_so(examine, tmp_path, script, status, reason, capsys):
    with pytest.raises(KitError, match=f"layers on inference-tools/layer-parallel .* {reason}; its findings so far are in .*-01.json$"):
        examine(ANSWER + script, timeout_s=1)
    (told,) = stored(tmp_path)
    assert told["status"] == status and re.fullmatch(reason, told["reason"]) and told["found"] == {"error": 0.5}
    assert "note: " not in capsys.readouterr().err, "the error names the file"


def test_findings_that_cannot_be_written_are_kept_elsewhere_with_the_line_that_brings_them_in(examine, tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(instruments, "write_whole", full)
    with pytest.raises(KitError, match=r"cannot write .*-01.json: No space left on device; the result is kept at .*, bring it in with: (.*)") as told:
        examine(ANSWER)
    subprocess.run(["sh", "-c", str(told.value).partition("bring it in with: ")[2]], check=True)
    shutil.rmtree(next((tmp_path / "tmp").iterdir()))
    assert [reading["found"] for reading in stored(tmp_path)] == [{"error": 0.5}]


def test_an_end_for_lack_of_memory_is_told(examine, tmp_path, monkeypatch):
    run = host.run

    def out_of_memory(*arguments):
        return dataclasses.replace(run(*arguments), oom_killed=True)

    monkeypatch.setattr(host, "run", out_of_memory)
    with pytest.raises(KitError, match="killed by the kernel: it needed more host memory than there was; its findings so far are in"):
        examine(ANSWER + "exit 137")
    assert stored(tmp_path)[0]["status"] == "oom"
    assert examine(ANSWER).exists(), "a child may have been killed in a process that ended well"


@pytest.mark.parametrize(
    ("script", "why", "kept"),
    [
        ("true", "ended with exit code 0 and wrote no answer$", False),
        ("exit 3", "ended with exit code 3 and wrote no answer$", False),
        ('ln -s /etc/passwd "$4"', "its answer is refused: result.json is a symbolic link; a regular file is allowed$", False),
        ('mkfifo "$4"', "its answer is refused: result.json is a pipe; a regular file is allowed$", False),
        ('mkdir "$4"', "its answer is refused: result.json is a folder; a regular file is allowed$", False),
        ('truncate -s 100M "$4"', "its answer is refused: result.json has 104,857,600 bytes; 67,108,864 are allowed$", False),
        ("""echo '{"error": NaN}' > "$4\"""", "its answer is refused: damaged result.json: JSON is malformed.*; it stays as .*-01.rejected.json$", True),
        ("""echo '[1]' > "$4\"""", "its answer is refused: result.json holds no object; it stays as .*-01.rejected.json$", True),
        ("""printf '{"a":%.0s' {1..99} > "$4\"""", "its answer is refused: .*; it stays as .*-01.rejected.json$", True),
        (': > "$4"', "its answer is refused: damaged result.json: .*; it stays as .*-01.rejected.json$", True),
    ],
)
def test_an_answer_that_is_none_is_an_error_and_stays_where_it_can(examine, tmp_path, script, why, kept):
    with pytest.raises(KitError, match=why):
        examine(script)
    assert not stored(tmp_path) and len(list((tmp_path / "instruments").iterdir())) == kept


def test_what_it_says_is_shown_in_at_most_fifteen_lines_that_a_terminal_can_show(examine, capsys):
    examine(ANSWER + "echo first; for i in {1..99}; do echo; printf '\\033[2J%s\\n' $i; done; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo '@{}'")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15 and "?[2J99" in lines and "first" not in lines and len(lines[-1]) == 2000 and all(line.isprintable() for line in lines)


def test_a_silent_instrument_prints_nothing(examine, capsys):
    examine(ANSWER)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("ctrl_c_is_heard")
@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_what_was_found_before_the_command_was_stopped_is_stored(examine, tmp_path, capsys, number, error):
    mark = tmp_path / "answered"

    def stop():
        while not mark.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    with pytest.raises(error), signals.raised():
        thread.start()
        examine(ANSWER + f"touch {mark}; sleep 30")
    thread.join()
    (told,) = stored(tmp_path)
    assert (told["status"], told["reason"], told["found"]) == ("failed", "did not end: the command was stopped", {"error": 0.5})
    assert "wall_s" not in told["host"] and "note: the findings of layers so far are in" in capsys.readouterr().err


@pytest.mark.usefixtures("ctrl_c_is_heard")
@pytest.mark.parametrize(("script", "status", "reason"), [("", "ok", ""), ("exit 7", "failed", "ended with exit code 7")])
def test_an_instrument_that_had_ended_says_how_though_the_command_is_stopped_while_its_place_is_removed(
    examine, tmp_path, monkeypatch, capsys, script, status, reason
):
    def remove(folder):
        os.kill(os.getpid(), signal.SIGINT)
        removal.remove(folder)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt), signals.raised():
        run = host.run

        def stopped(*arguments):
            patched.setattr(temporary_folders, "removal", types.SimpleNamespace(remove=remove))
            try:
                return run(*arguments)
            finally:
                patched.setattr(temporary_folders, "removal", removal)

        patched.setattr(host, "run", stopped)
        examine(ANSWER + script)
    (told,) = stored(tmp_path)
    assert (told["status"], told["reason"], told["found"]) == (status, reason, {"error": 0.5}) and told["host"]["wall_s"] >= 0
    assert "note: the findings of layers are in" in capsys.readouterr().err


def test_what_was_found_before_the_engine_failed_is_stored(examine, tmp_path, monkeypatch):
    run = host.run

    def dies(*arguments):
        run(*arguments)
        raise KitError("Docker\nis gone")

    monkeypatch.setattr(host, "run", dies)
    with pytest.raises(KitError, match="^Docker\nis gone$"):
        examine(ANSWER)
    (told,) = stored(tmp_path)
    assert (told["status"], told["reason"]) == ("failed", "did not end: Docker is gone")


def test_of_two_commands_at_once_each_keeps_its_reading(examine, tmp_path, monkeypatch):
    store, write = instruments._store, instruments.write_whole

    def in_two_threads(*arguments):
        other = threading.Thread(target=store, args=arguments)
        other.start()
        ended = store(*arguments)
        other.join()
        return ended

    def slowly(path, text):
        time.sleep(0.3)
        write(path, text)

    monkeypatch.setattr(instruments, "_store", in_two_threads)
    monkeypatch.setattr(instruments, "write_whole", slowly)
    examine(ANSWER)
    assert len(stored(tmp_path)) == 2


def test_earlier_readings_and_refused_answers_stay(examine, tmp_path):
    for _ in range(2):
        examine(ANSWER)
        with pytest.raises(KitError):
            examine("""echo '[]' > "$4\"""")
    assert sorted(re.sub(r".*-", "", path.name) for path in (tmp_path / "instruments").iterdir()) == [
        "01.json",
        "01.rejected.json",
        "02.json",
        "02.rejected.json",
    ]


def test_a_case_without_a_model_is_refused(tmp_path):
    asked = Options(article="calibration", engine="host", device="cpu", scale="tiny", weights="random", stack="current", folder=tmp_path / "runs")
    planned = next(one for one in plan.plan(["transformers"], asked, every=False) if one.case.name == "empty")
    with pytest.raises(UsageError, match="CASES is 'empty', which loads no model; an instrument needs"):
        instruments.examine("layers", planned, asked)
    assert not (tmp_path / "instruments").exists()


def test_a_case_that_the_instrument_does_not_examine_is_refused_before_weights_are_made(examine, tmp_path, monkeypatch):
    monkeypatch.setattr(measurement, "with_checkpoint", lambda *_: pytest.fail("weights were made"))
    with pytest.raises(UsageError, match="collectives does not examine inference-tools/layer-parallel .*; take a job of deepspeed on at least 2 GPUs$"):
        examine(ANSWER, name="collectives")
    assert not (tmp_path / "instruments").exists()


def test_a_command_removes_what_a_killed_one_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folders.made(temporary_folders.OF_INSTRUMENTS) as living:
        dead = tmp_path / f"{temporary_folders.OF_INSTRUMENTS}dead"
        dead.mkdir()
        (dead / ".lock").write_text(f"pid 1 of nobody on {platform.node()}")
        settings = {"ENGINE": "host", "DEVICE": "cpu", "SCALE": "tiny", "WEIGHTS": "random", "CASES": "layer-parallel", "TMPDIR": str(tmp_path)}
        places = {"RUNS": str(tmp_path / "runs"), "MODELS": str(tmp_path / "models"), "STACK": "current", "DOCKER_HOST": "unix:///of/nobody"}
        done = subprocess.run(
            [sys.executable, "-m", "scripts", "instrument", "layers"], cwd=ROOT, env=os.environ | settings | places, capture_output=True, text=True
        )
        assert done.returncode == 3 and "has no torch" in done.stderr
        assert not dead.exists() and Path(living).exists()


@pytest.mark.parametrize(
    ("ends", "sizes", "tried", "code"),
    [
        ([None, None], (1, 8), 2, 0),
        ([PreflightError("too little memory"), None], (1, 8), 2, 3),
        ([PreflightError("too little memory"), KitError("it failed\x1b[2J")], (1, 8), 2, 3),
        ([KitError("it failed")], (8,), 1, KitError),
        ([KitError("it failed")], None, 1, KitError),
        ([UsageError("RUNS is wrong"), None], (1, 8), 1, UsageError),
        ([NothingRuns("no Docker"), None], (1, 8), 1, NothingRuns),
    ],
)
def test_a_batch_that_fails_stops_the_others_only_where_none_can_start(monkeypatch, capsys, ends, sizes, tried, code):
    batches = []

    def examine(name, planned, asked):
        batches.append(planned.batch_size)
        if error := ends[len(batches) - 1]:
            raise error
        return Path("/of/its/own.json")

    monkeypatch.setattr(instruments, "examine", examine)
    asked = Options(cases=("deepspeed",), stack="hopper", batch_sizes=sizes)
    (planned,) = plan.plan(["deepspeed"], asked, every=False)
    if isinstance(code, int):
        assert command._examine("layers", planned, asked) == code
        failed = sum(error is not None for error in ends)
        told = capsys.readouterr()
        assert "\x1b" not in told.err
        assert (told.err.count("  error: "), told.out.count("  /of/its/own.json\n")) == (failed, len(ends) - failed)
    else:
        with pytest.raises(code) as raised:
            command._examine("layers", planned, asked)
        assert type(raised.value) is code and "error: " not in capsys.readouterr().err
    assert batches == list(sizes or (None,))[:tried]


@pytest.mark.parametrize(("typed", "refused"), [("", True), ("/of/mine", False)])
def test_a_lock_counts_where_it_says_what_runs(monkeypatch, typed, refused):
    def other_lock(image):
        raise KitError("another lock")

    monkeypatch.setattr(Image, "refuse_other_lock", other_lock)
    monkeypatch.setattr(command.rounds, "sweep", lambda asked: None)
    monkeypatch.setattr(command, "_examine", lambda name, planned, asked: 0)
    asked = Options(cases=("layer-parallel",), engine="host", python_host=typed)
    if refused:
        with pytest.raises(KitError, match="another lock"):
            command.of("layers", asked)
    else:
        assert command.of("layers", asked) == 0


def test_how_the_gpus_were_told_to_exchange_data_is_stored_without_a_path(monkeypatch):
    for name, value in {"NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_TOPO_FILE": "/home/me/topology.xml", "OTHER": "1"}.items():
        monkeypatch.setenv(name, value)

    def told(engine, gpus=("a GPU",)):
        return {name: value for name, value in host_facts.between_gpus(types.SimpleNamespace(name=engine, gpus=gpus)).items() if name.startswith(("NCCL", "O"))}

    assert told("docker") == {"NCCL_P2P_DISABLE": "1"}
    assert told("host") == {"NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_TOPO_FILE": "a path"}
    assert told("host", gpus=()) == {}


def test_what_can_be_refused_is_refused_before_the_weights_are_made(examine, tmp_path, monkeypatch):
    monkeypatch.setattr(measurement, "with_checkpoint", lambda *arguments: pytest.fail("weights were made"))
    monkeypatch.setenv("KIT_COMMIT", "of nobody")
    with pytest.raises(UsageError, match="KIT_COMMIT is 'of nobody'"):
        examine(ANSWER)
    monkeypatch.delenv("KIT_COMMIT")
    monkeypatch.setattr(runner, "refuse_impossible", lambda planned, job, engine, folder: (_ for _ in ()).throw(PreflightError(f"no room in {folder}")))
    with pytest.raises(PreflightError, match=f"no room in {tmp_path}/instruments"):
        examine(ANSWER)


@pytest.mark.parametrize("name", fitting.WITHOUT_WEIGHTS)
def test_an_instrument_that_reads_no_checkpoint_waits_for_none(examine, monkeypatch, name):
    assert 'model["path"]' not in (ROOT / f"bench/instruments/{name}.py").read_text(encoding="utf-8")
    monkeypatch.setattr(measurement, "with_checkpoint", lambda *arguments: pytest.fail("weights were made"))
    monkeypatch.setattr(fitting, "refusal", lambda instrument, job: "")
    assert examine(ANSWER, name=name).exists()


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_a_signal_while_a_reading_is_stored_waits(examine, tmp_path, monkeypatch):
    write = instruments.write_whole

    def stopped(path, text):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        write(path, text)

    monkeypatch.setattr(instruments, "write_whole", stopped)
    with pytest.raises(KeyboardInterrupt), signals.raised():
        examine(ANSWER)
    assert [told["status"] for told in stored(tmp_path)] == ["ok"]


@pytest.mark.parametrize("function", ["read", "keep"])
def test_a_disk_that_does_not_give_an_answer_back_is_an_error_of_one_line(examine, monkeypatch, function):
    def broken(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(instruments.door, function, broken)
    with pytest.raises(KitError, match="and its answer is refused: "):
        examine("echo '[]' > \"$4\"")


def test_the_instruments_that_examine_a_case_are_those_that_take_a_job_in_the_docs():
    table = re.findall(
        r"^\| `(?:python -m bench\.instruments\.(?=\w+ JOB )|make instrument-)(\w+)", (ROOT / "docs/method.md").read_text(encoding="utf-8"), re.M
    )
    assert sorted(table) == list(instruments.names())


def test_a_stack_without_an_image_of_the_case_is_told_in_one_line(monkeypatch, capsys):
    with pytest.raises(UsageError, match="2023-02.*compiled"):
        command.of("layers", Options(cases=("compiled",), stack="2023-02"))
    assert capsys.readouterr().err == ""
