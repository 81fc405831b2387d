"""The host engine: a job as a child process that is never left behind."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest

from scripts import pins, surroundings
from scripts.containers import container, process, restrictions
from scripts.errors import KitError, PreflightError, UsageError
from scripts.machine import temporary_folders
from scripts.run import engines, host_facts
from scripts.run.engines import host
from scripts.run.options import Options
from tests.samples import a_result

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(sys.executable)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder of temporary files of each test's own, because a killed runner leaves some; its path is short, as that of TMPDIR is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def run(code, timeout_s=20, gpu_uuids=()):
    lines = []
    return host.run(PYTHON, ["-c", code], ROOT, list(gpu_uuids), timeout_s, lines.append), lines


def test_output_comes_line_by_line_with_the_exit_code():
    outcome, lines = run("import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)")
    assert (outcome.exit_code, outcome.timed_out, sorted(lines)) == (3, False, ["one", "two"])


def test_a_clock_that_is_set_back_does_not_change_how_long_a_job_ran(monkeypatch):
    now = iter([5000.0])
    monkeypatch.setattr(process.time, "time", lambda: next(now, 100.0))
    outcome, _ = run("pass")
    assert outcome.started_at == 5000.0 and 0 < outcome.finished_at - outcome.started_at < 20


def test_a_result_says_when_its_job_started_and_after_how_many_seconds_it_ended():
    ended = process.Outcome(0, False, False, 1_700_000_000.1234, 1_700_000_012.5)
    assert host_facts.when(ended) == {"started_at": "2023-11-14T22:13:20Z", "began": 1_700_000_000.123, "wall_s": 12.377}


def test_a_job_sees_the_chosen_gpus_and_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    _, lines = run(
        "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('HF_TOKEN'), os.environ['HF_HUB_OFFLINE'])", gpu_uuids=["GPU-a", "GPU-b"]
    )
    assert lines == ["GPU-a,GPU-b None 1"]


def test_a_job_gets_the_machine_s_settings_between_gpus(monkeypatch):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("NCCL_VERSION", "2.28.3-1")  # that of the machine's own NCCL
    told = "import os; print([(name, value) for name, value in os.environ.items() if name.startswith('NCCL_')])"
    assert run(told, gpu_uuids=["GPU-a"])[1] == ["[('NCCL_NVLS_ENABLE', '0')]"] and run(told, gpu_uuids=[])[1] == ["[]"]


def test_a_container_gets_the_number_of_threads_on_a_cpu_and_the_settings_between_gpus_on_these(monkeypatch, tmp_path):
    gpu = types.SimpleNamespace(uuid="GPU-a")
    of_machine = surroundings.Surroundings({"OMP_NUM_THREADS": "1", "NCCL_NVLS_ENABLE": "0", "HF_TOKEN": "a-secret"})
    monkeypatch.setattr(surroundings, "current", lambda: of_machine)
    on_cpu, on_gpu = ({word for word in restrictions.environment({}, gpus) if word.startswith(("OMP_", "NCCL_", "HF_T"))} for gpus in ([], [gpu]))
    assert (on_cpu, on_gpu) == ({"OMP_NUM_THREADS=1"}, {"NCCL_NVLS_ENABLE=0"})
    job = [container._of_job({"SecurityOptions": ["name=rootless"]}, restrictions.Folders(tmp_path, tmp_path), gpus)["environment"] for gpus in ([], [gpu])]
    assert [sorted(set(one) - set(restrictions.ENVIRONMENT)) for one in job] == [["OMP_NUM_THREADS"], ["NCCL_NVLS_ENABLE"]]


def test_what_a_job_imports_is_compiled_once_and_kept(tmp_path):
    (tmp_path / "imported.py").write_text("")
    run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import imported")
    assert list(tmp_path.glob("__pycache__/imported.*.pyc"))


def test_a_job_that_takes_too_long_is_stopped_with_its_children():
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print(p.pid, flush=True); p.wait()"
    outcome, lines = run(code, timeout_s=1)
    assert outcome.timed_out and outcome.finished_at - outcome.started_at < 10
    assert not alive(int(lines[0]))


def alive(pid):
    for _ in range(50):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return False
        except (FileNotFoundError, ProcessLookupError):  # ESRCH: it went between open and read
            return False
        time.sleep(0.1)
    return True


def test_a_killed_runner_takes_its_job_with_it():
    runner = a_runner_of("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    job = int(runner.stdout.readline())
    assert os.path.exists(f"/proc/{job}")
    runner.kill()
    runner.wait()
    assert not alive(job)


#: A job that leaves a temporary file, tells its folder and then takes a minute.
LEAVES_A_FILE = "import os, tempfile, time; os.close(tempfile.mkstemp()[0]); print(os.getpid(), tempfile.gettempdir(), flush=True); time.sleep(60)"


def test_the_temporary_files_of_a_job_go_with_it_also_where_it_is_killed():
    outcome, (line,) = run(LEAVES_A_FILE, timeout_s=1)
    folder = Path(line.split()[1])
    assert outcome.timed_out and folder.name.startswith(temporary_folders.OF_HOST) and not folder.exists()


#: A job that makes a socket as vLLM does, in its folder of temporary files.
MAKES_A_SOCKET = """
import socket, tempfile, uuid
socket.socket(socket.AF_UNIX).bind(f"{tempfile.gettempdir()}/{uuid.uuid4()}")
print(tempfile.gettempdir())
"""


@pytest.mark.parametrize(("length", "own"), [(46, True), (47, False), (70, False)])
def test_below_a_long_folder_of_temporary_files_sockets_have_room(temporary, monkeypatch, length, own):
    folder = f"{temporary}/".ljust(length, "x")
    os.mkdir(folder)
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    outcome, lines = run(MAKES_A_SOCKET)
    assert outcome.exit_code == 0, lines
    assert (lines[0] != folder) is own and Path(lines[0]).is_relative_to(folder)


def test_the_temporary_files_of_a_killed_runners_job_go_with_the_next_command():
    runner = a_runner_of(LEAVES_A_FILE)
    pid, folder = runner.stdout.readline().split()
    runner.kill()
    runner.wait()
    assert not alive(int(pid)) and Path(folder).exists()
    temporary_folders.sweep()
    assert not Path(folder).exists()


#: A job that does all that keeps a process alive: a session of its own, a parent that is gone, no ear for SIGTERM, the output held open.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for rank in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(1, b"%d\\n" % os.getpid())  # whole, beside the other's
            time.sleep(60)
        os._exit(0)
"""


def pids_of(lines):
    return [int(line) for line in lines if line.isdigit()]


def test_a_time_limit_ends_ranks_with_sessions_and_parents_of_their_own():
    outcome, lines = run(STUBBORN + "time.sleep(60)", timeout_s=1)
    assert outcome.timed_out and outcome.finished_at - outcome.started_at < 10
    assert len(pids_of(lines)) == 2 and not any(alive(pid) for pid in pids_of(lines))


def test_a_daemon_that_holds_the_output_makes_no_timeout_of_a_finished_job():
    outcome, lines = run(STUBBORN + "time.sleep(1); print('done', flush=True)", timeout_s=20)
    assert not outcome.timed_out and outcome.exit_code == 0 and "done" in lines
    assert outcome.finished_at - outcome.started_at < 10
    assert not any(alive(pid) for pid in pids_of(lines))


def test_a_runner_that_is_held_up_after_a_look_still_reads_the_last_words_of_its_job(monkeypatch):
    looking = select.select

    def held_up(*asked):
        found = looking(*asked)
        if not found[0]:
            time.sleep(1)  # meanwhile the job says its last words and ends
        return found

    monkeypatch.setattr(process.select, "select", held_up)
    outcome, lines = run("import time; time.sleep(0.6); print('last words', flush=True)")
    assert (outcome.exit_code, lines) == (0, ["last words"])


def a_runner_of(job):
    """A process that runs a job by the host engine and shows its output."""
    code = f"from pathlib import Path; from scripts.run.engines import host; import sys; host.run(Path(sys.executable), ['-c', {job!r}], Path('.'), [], 60, lambda line: print(line, flush=True))"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_killed_runner_takes_ranks_with_sessions_of_their_own_with_it():
    runner = a_runner_of(STUBBORN + "time.sleep(60)")
    ranks = [int(runner.stdout.readline()) for _ in range(2)]
    runner.kill()
    runner.wait()
    assert not any(alive(rank) for rank in ranks)


def test_a_rank_ends_with_its_launcher_although_its_session_is_its_own():
    rank = f"import os, sys, time; sys.path.insert(0, {str(ROOT)!r}); from bench.measuring import ranks; ranks.die_with_parent(); print(os.getpid(), flush=True); time.sleep(60)"
    launching = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {rank!r}], start_new_session=True).wait()"
    launcher = subprocess.Popen([sys.executable, "-c", launching], stdout=subprocess.PIPE, text=True)
    pid = int(launcher.stdout.readline())
    launcher.kill()
    launcher.wait()
    assert not alive(pid)


def test_a_job_that_a_signal_ends_after_its_output_shows_the_signal():
    outcome, lines = run("import os, signal; print('done', flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    assert (lines, outcome.exit_code, outcome.timed_out) == (["done"], 128 + signal.SIGSEGV, False)


def test_signals_that_the_runner_survives_are_not_ignored_by_the_job():
    outcome, _ = run("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert outcome.exit_code == 128 + signal.SIGTERM


def test_ctrl_c_in_the_terminal_reaches_the_kit_and_not_the_job():
    outcome, lines = run("import os; print(os.getsid(0), os.getpgid(0))")
    session, group = map(int, lines[0].split())
    assert outcome.exit_code == 0 and session != os.getsid(0) and group != os.getpgid(0)


def test_a_job_that_kills_its_warden_ends_with_exit_code_137():
    outcome, _ = run("import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)")
    assert (outcome.exit_code, outcome.timed_out) == (137, False)


def test_a_job_that_closes_its_output_and_goes_on_is_waited_for():
    outcome, lines = run("import os, time; print('done', flush=True); os.close(1); os.close(2); time.sleep(1); os._exit(7)")
    assert (lines, outcome.exit_code, outcome.timed_out) == (["done"], 7, False)


def test_a_line_without_an_end_fills_no_memory():
    outcome, (line,) = run("import sys; [sys.stdout.write('x' * 1000000) for _ in range(50)]")
    assert outcome.exit_code == 0 and len(line) < 100_000
    assert line.startswith("xxx") and line.endswith("(49,934,464 more bytes of this line are left out)")


#: The interpreter of the kit's tools, which has no torch, as a user in the clone types it.
TOOLS = Path(".venv/bin/python")


def test_an_interpreter_that_is_not_there_is_named():
    with pytest.raises(KitError, match="/no/python does not start"):
        host.run(Path("/no/python"), ["-c", ""], ROOT, [], 5, print)


def test_each_backend_may_have_an_interpreter_of_its_own(tmp_path):
    for backend in ("int8", "bminf"):
        image = pins.load().image(backend, "current")
        asked = Options(engine="host", python_host=str(tmp_path / "{backend}" / "python"))
        with pytest.raises(KitError, match=f"{tmp_path}/{backend}/python', which does not start"):
            engines.host.HostEngine(image, [], asked).prepare()


def test_an_interpreter_without_the_libraries_is_told_before_anything_runs(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {PYTHON} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(PreflightError, match="has no torch and transformers"):
        host.must_have_torch(bare, PreflightError)


def test_the_path_of_an_interpreter_is_taken_from_the_kit_s_folder_and_a_bare_name_from_path(monkeypatch):
    monkeypatch.chdir("/")
    with pytest.raises(PreflightError, match=f"^{TOOLS} has no torch and transformers"):
        host.must_have_torch(TOOLS, PreflightError)
    with pytest.raises(PreflightError, match="PYTHON_HOST is 'python-of-mine', which does not start"):
        host.must_have_torch(Path("python-of-mine"), PreflightError)
    monkeypatch.setenv("PATH", str(ROOT / TOOLS.parent))
    with pytest.raises(PreflightError, match="^python has no torch and transformers"):
        host.must_have_torch(Path("python"), PreflightError)


@pytest.mark.parametrize("told", [{}, {"packages": None}, {"packages": {}}])
@pytest.mark.parametrize("stack", ["demo", "current"])
def test_a_guest_that_names_no_packages_is_not_taken_for_one_as_pinned(told, stack):
    engine = object.__new__(host.HostEngine)
    engine.image = pins.load().image("transformers", stack)
    assert engine.differences(a_result(environment=told)) == ["the guest names no packages"]
    assert engine.differences(None) == []


def test_an_interpreter_beside_a_stack_that_brings_its_own_is_refused():
    engine = object.__new__(host.HostEngine)
    engine.image, engine.asked = pins.load().image("transformers", "demo"), Options(engine="host", python_host="/usr/bin/python3")
    with pytest.raises(UsageError, match="PYTHON_HOST is '/usr/bin/python3' with STACK=demo, which brings its own interpreter; leave one of them out"):
        engine.prepare()


def test_differences_from_the_pins_are_listed_one_a_line():
    locked = {"torch": "2.11.0", "transformers": "5.17.0", "bminf": "2.0.1"}
    assert host.differences({"torch": "2.11.0+cpu", "transformers": "5.16.0"}, locked) == [
        "transformers: pinned 5.17.0, found 5.16.0",
        "bminf: pinned 2.0.1, not installed",
    ]
