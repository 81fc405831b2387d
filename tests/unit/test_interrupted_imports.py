"""Ctrl-C in the first tenths of a second of a command, while it imports its modules."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_answered_in_one_word_and_the_exit_code_of_an_interrupted_command(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run([sys.executable, "-m", "scripts", "images"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
