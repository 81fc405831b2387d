"""Ctrl-C in the first and in the last tenths of a second of a command: while it imports its modules, and while the interpreter ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts import INTERRUPTED

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
