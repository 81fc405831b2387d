"""What an error quotes may come from others: it is shown without characters that move the cursor or colour the line, whatever its bytes are."""

import errno
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import paths, pins
from scripts.errors import KitError, run_command
from scripts.images import archive, build, offline
from scripts.machine import installs
from scripts.pins import base_digests, resolve, uv
from scripts.run import host_facts
from scripts.run.engines import demo_environments
from scripts.run.slurm import client


def test_an_error_shows_lines_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise KitError("a\x1b[2J\rb\u202ec\x9b\n  d")

    with pytest.raises(SystemExit) as ended:
        run_command(fail)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: a?[2J?b?c?\n  d\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT, errno.ENOSPC])
def test_a_disk_that_takes_nothing_more_is_one_line_with_the_file(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise OSError(number, os.strerror(number), "/runs/a\x1b[2J/job.json")

    with pytest.raises(SystemExit) as ended:
        run_command(command)
    said = capsys.readouterr().err
    assert ended.value.code == 1 and said.startswith("error: ") and "/runs/a?[2J/job.json" in said and "type the same again" in said and said.count("\n") == 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_file_that_this_user_may_not_touch_is_one_line(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise PermissionError(number, "Permission denied", "/kit/.venv.lock")

    with pytest.raises(SystemExit) as ended:
        run_command(command)
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (3, 1) and said.startswith("error: /kit/.venv.lock: Permission denied; type ")


def test_a_reader_that_has_enough_ends_a_command_without_a_word() -> None:
    command = "import sys\nfrom scripts.errors import run_command\nsys.stdin.read()\nrun_command(lambda: print('line\\n' * 10))"
    piped = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", command], cwd=paths.ROOT, **piped) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.close()  # only now the command prints
        assert (process.stderr.read(), process.wait()) == (b"", 1)


def test_a_command_whose_output_is_closed_ends_as_it_did(tmp_path: Path) -> None:
    command = "from scripts.errors import run_command\nrun_command(lambda: 0)"
    done = subprocess.run(["sh", "-c", '"$0" -c "$1" >&-', sys.executable, command], cwd=paths.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("lambda: print('a result')", 1),
        ("lambda: print('a note', file=sys.stderr)", 1),
        ("lambda: errors._say('a note')", 0),
        ("lambda: fail(errors.UsageError('what'))", 2),
        ("lambda: fail(errors.PreflightError('what'))", 3),
        ("lambda: fail(errors.Stopped(15))", 143),
    ],
)
def test_an_output_that_cannot_be_written_leaves_the_exit_code_as_it_is(command: str, exit_code: int) -> None:
    program = f"import sys\nfrom scripts import errors\ndef fail(error): raise error\nerrors.run_command({command})"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", program], cwd=paths.ROOT, env=buffered, stdout=full, stderr=full)
    assert done.returncode == exit_code


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program that says a word in Latin-1 and fails, under the names of those that the kit starts."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("docker", "git", "squeue", "uv"):
        (tmp_path / name).write_text("#!/bin/sh\nprintf 'caf\\351\\n'; printf 'caf\\351\\n' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(uv, "find", lambda: str(tmp_path / "uv"))
    monkeypatch.setattr(uv, "settings_of_pip", uv.settings_of_pip.__wrapped__)
    monkeypatch.setattr(build, "require_buildx", lambda: None)
    return str(tmp_path / "uv")


def _told(action: Callable[[], object]) -> str:
    """What a call gives, or its error of the kit's."""
    try:
        return str(action())
    except KitError as error:
        return str(error)


def _keep_tools(program: str, folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "executable", program)
        return offline.keep_tools(pins.load(), folder)


def _output_of(exit_code: int) -> str:
    container = types.SimpleNamespace(
        start=lambda: None, wait=lambda timeout: {"StatusCode": exit_code}, logs=lambda **_: b"caf\xe9", remove=lambda force: None
    )
    docker = types.SimpleNamespace(containers=types.SimpleNamespace(create=lambda *_, **__: container))
    return build.output_of(docker, "a:b", ["ls"])


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda program, folder: installs.run("a", [program], os.environ), "caf\ufffd"),
        (lambda program, folder: archive.fetch_wheels(pins.load(), "current", folder), "caf\ufffd"),
        (_keep_tools, "caf\ufffd"),
        (lambda program, folder: offline.keep_kit(folder), "caf\ufffd"),
        (lambda program, folder: _output_of(0), "caf\ufffd"),
        (lambda program, folder: _output_of(1), "caf\ufffd"),
        (lambda program, folder: client.queue(["a"]), "caf\ufffd"),
        (lambda program, folder: resolve.resolve(resolve.requests(pins.load())[0]), "caf\ufffd"),
        (lambda program, folder: demo_environments._uv("python", "find"), "caf\ufffd"),
        (lambda program, folder: uv.settings_of_pip(program), "{}"),
        (lambda program, folder: base_digests.ask("python:3.8"), ""),
        (lambda program, folder: host_facts._git("status"), ""),
    ],
    ids=["installer", "wheels", "tools", "kit", "image", "failing image", "SLURM", "lock", "demo", "pip", "registry", "git"],
)
def test_what_another_program_says_in_other_bytes_than_utf_8_is_told_and_is_no_traceback(program: str, tmp_path: Path, call: Callable, word: str) -> None:
    assert word in _told(lambda: call(program, tmp_path / "folder"))


def test_a_terminal_without_a_character_shows_another_one() -> None:
    told = "from scripts.errors import run_command\nrun_command(lambda: print('5 \u00b1 1 \u2014 ok'))"
    for program in (["-c", told], ["-m", "scripts.commands.targets", "a" * 80]):
        done = subprocess.run([sys.executable, *program], cwd=paths.ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr and ("5 ? 1 ? ok" in done.stdout or "a?" in done.stdout), done
