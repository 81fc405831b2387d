"""What a command says that a signal stops: Ctrl-C and SIGTERM while it imports its modules, while a job runs, and while the interpreter ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import INTERRUPTED
from scripts.errors import Stopped, run_command
from scripts.machine import signals
from tests.chaos.place import BOUND_S, HOST, Command, Place

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_answered_in_one_line_with_what_to_type_and_the_exit_code_of_an_interrupted_command(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run([sys.executable, "-m", "scripts", "images"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, f"{INTERRUPTED}\n")


def test_a_second_one_at_the_end_of_the_interpreter_shows_no_traceback(tmp_path: Path) -> None:
    at_end = "import atexit, os, signal, time\natexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(5)))\n"
    (tmp_path / "sitecustomize.py").write_text("import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + at_end)
    done = subprocess.run(
        [sys.executable, "-m", "scripts", "--version"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_one_that_python_would_drop_in_an_import_ends_the_command_too(tmp_path: Path) -> None:
    """An exception of a weak reference's callback is printed and dropped, as one of the import system's own callbacks."""
    dropped = "import os, signal, weakref\nclass Gone: pass\none = Gone()\n"
    dropped += "kept = weakref.ref(one, lambda _: (os.kill(os.getpid(), signal.SIGINT), [0 for _ in range(100_000)]))\ndel one\n"
    (tmp_path / "sitecustomize.py").write_text("import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n")
    (tmp_path / "click.py").write_text(dropped)
    done = subprocess.run([sys.executable, "-m", "scripts", "images"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, f"{INTERRUPTED}\n")


BY_SIGTERM = "stopped by SIGTERM; stored files stay; type the same command again"
BY_SIGHUP = "stopped by SIGHUP; stored files stay; type the same command again"


@pytest.fixture
def stopped_in_its_job(tmp_path: Path):
    """Start a command whose job takes long, and stop it once the job runs; gives the exit code and the lines of its output."""
    place = Place(tmp_path / "place", ROOT, HOST, 1)
    place.teach("measure: pause_s=60")

    def stop(send, make: bool = False) -> tuple[int | None, list[str]]:
        command: Command = place.start(make=make)
        assert place.until("the job", command), command.text()
        send(command)
        return command.wait(BOUND_S[HOST]), command.text().splitlines()

    yield stop
    assert not place.processes(), "no process is left"


@pytest.mark.parametrize(("number", "told"), [(signal.SIGTERM, BY_SIGTERM), (signal.SIGHUP, BY_SIGHUP), (signal.SIGINT, INTERRUPTED)])
def test_a_signal_during_a_job_is_named_with_what_is_kept_and_what_to_type(number: int, told: str, stopped_in_its_job) -> None:
    code, lines = stopped_in_its_job(lambda command: command.signal(number, group=False))
    assert code == 128 + number and [line for line in lines if line.endswith("type the same command again")] == [told]


@pytest.mark.slow
@pytest.mark.parametrize("group", [True, False], ids=["the group of make", "make alone"])
def test_make_that_gets_sigterm_hands_it_on_and_the_command_tells_it_once(group: bool, stopped_in_its_job) -> None:
    _, lines = stopped_in_its_job(lambda command: command.signal(signal.SIGTERM, group), make=True)
    assert lines.count(BY_SIGTERM) == 1 and any(line.endswith("Error 143") for line in lines) and "Traceback" not in "".join(lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_another_signal_while_modules_are_imported_is_named_too(number: int, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\nfor _ in range(100_000): pass\n")
    (tmp_path / "sitecustomize.py").write_text(f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)\n")
    done = subprocess.run([sys.executable, "-m", "scripts", "images"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + number, f"stopped by {number.name}; stored files stay; type the same command again\n")


@pytest.mark.parametrize(("number", "told"), [(signal.SIGTERM, BY_SIGTERM), (signal.SIGHUP, BY_SIGHUP), (signal.SIGINT, INTERRUPTED)])
def test_a_signal_to_a_command_that_measures_nothing_is_named_once_its_modules_are_there(number: int, told: str) -> None:
    program = f"""
import os, signal, time
from scripts.errors import run_command
from scripts.machine import signals
signal.signal({int(number)}, signal.SIG_DFL)
signals.importing()
signals.imported()
try:
    run_command(lambda: (os.kill(os.getpid(), {int(number)}), time.sleep(5)))
finally:
    print("released")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "released\n", f"{told}\n")


def test_a_command_that_releases_nothing_is_stopped_with_the_same_line(capsys) -> None:
    with pytest.raises(Stopped) as stopped:
        run_command(lambda: signals._stop(signal.SIGTERM, None))
    assert stopped.value.code == 143 and capsys.readouterr().err == BY_SIGTERM + "\n"


def test_sigterm_to_a_command_and_to_its_group_does_not_stop_what_the_first_one_cleans_up() -> None:
    """As `timeout` and make send it: both at once, or the second a moment later."""
    cleaned = []
    with pytest.raises(Stopped), signals.raised():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            cleaned.append("all")
    assert cleaned == ["all"]


def test_a_closed_terminal_gets_no_line_and_the_exit_code_is_that_of_the_signal(monkeypatch) -> None:
    with open("/dev/full", "w") as gone:  # as a closed terminal, it takes nothing
        monkeypatch.setattr(sys, "stderr", gone)
        with pytest.raises(Stopped) as stopped:
            run_command(lambda: signals._stop(signal.SIGHUP, None))
    assert stopped.value.code == 129
