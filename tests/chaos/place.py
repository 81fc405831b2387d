"""The folders in which a fault happens, and whole commands of the kit in them."""

import contextlib
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.run import run_folders
from tests.chaos import guest

if TYPE_CHECKING:
    from tests.chaos.containers import OwnEngine

ROOT = Path(__file__).resolve().parents[2]

#: Where a command runs its jobs: the fake guest in an interpreter in name or in containers, real tiny models in the demo's environments, or those on a
#: GPU in the kit's own images.
HOST, DOCKER, REAL, GPU = "host", "docker", "real", "gpu"

#: Seconds after which a command counts as hung. With a fake guest it takes two to five, with a real model twenty, on a machine without other work.
BOUND_S = {HOST: 90.0, DOCKER: 90.0, REAL: 300.0, GPU: 300.0}

#: Seconds that the kit gives a job; only guests that hang take them.
TIMEOUT_S = {HOST: 8, DOCKER: 20, REAL: 120, GPU: 120}

#: Where a run of the fake guest is, told from the files that the kit makes: a fault comes shortly after such a moment.
MOMENTS = {
    "start": "",
    "a helping job": "models/.work-*/job.json",
    "its folder": "runs/*/.lock",
    "its question": "runs/*/job.json",
    "the job": f"runs/*/{run_folders.WORK}/job.json",
    "the answer": f"runs/*/{run_folders.WORK}/result.json",
    "the result": "runs/*/result.json",
}

BACKENDS = {1: "transformers", 2: "tensor-parallel"}


class Command:
    """A running command of the kit, whose output goes to files."""

    def __init__(self, arguments: list[str], cwd: Path, environment: Mapping[str, str], output: Path, before: Callable[[], None], terminal: bool) -> None:
        self.output, self.master, self.closing = output, -1, threading.Event()
        self.began = time.monotonic()
        if terminal:
            self.master, slave = pty.openpty()

            def prepare() -> None:
                os.login_tty(slave)
                before()

            self.process = subprocess.Popen(arguments, cwd=cwd, env=environment, preexec_fn=prepare)
            os.close(slave)
            self.reader = threading.Thread(target=self._read, daemon=True)
            self.reader.start()
        else:
            with output.open("wb") as stream:
                self.process = subprocess.Popen(
                    arguments, cwd=cwd, env=environment, preexec_fn=before, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
                )

    def _read(self) -> None:
        """What the terminal shows; a read that waits would keep the terminal open after its window is closed."""
        with self.output.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while not self.closing.is_set():
                if select.select([self.master], [], [], 0.02)[0]:
                    stream.write(os.read(self.master, 65536))

    def close_terminal(self) -> None:
        """As a closed window or a lost connection does."""
        if self.master >= 0:
            self.closing.set()
            self.reader.join()
            os.close(self.master)
            self.master = -1

    def signal(self, number: int, group: bool) -> None:
        """To the kit alone, or to the whole group as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number) if group else os.kill(self.process.pid, number)

    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, bound_s: float) -> int | None:
        """The exit code; None where it did not end in time and was ended."""
        try:
            return self.process.wait(bound_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL, group=True)
            self.process.wait()
            return None
        finally:
            self.close_terminal()

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""


class Place:
    """A folder with results, models and locks of its own. All its commands get the settings `more`, the one with the fault those of `first` too."""

    def __init__(self, folder: Path, kit: Path, engine: str, ranks: int, more: Mapping[str, str] | None = None, backend: str = "") -> None:
        self.folder, self.kit, self.engine, self.ranks, self.backend = folder, kit, engine, ranks, backend or BACKENDS[ranks]
        self.runs, self.models, self.locks, self.tmp = (folder / name for name in ("runs", "models", "locks", "tmp"))
        for made in (self.runs, self.models, self.tmp):
            made.mkdir(parents=True)
        folder.chmod(0o755)
        self.models.chmod(0o755)
        self.guest = folder / "guest"
        self.guest.mkdir()
        self.more: dict[str, str] = dict(more or {})
        self.first: dict[str, str] = {}
        self.write_interpreter({})
        self._own_engine: OwnEngine | None = None

    @property
    def own_engine(self) -> "OwnEngine | None":
        """The engine of this place alone, which a fault may restart."""
        return self._own_engine

    @own_engine.setter
    def own_engine(self, engine: "OwnEngine | None") -> None:
        self._own_engine = engine
        if engine:
            self.more["DOCKER_HOST"] = engine.host

    def write_interpreter(self, exports: Mapping[str, str]) -> None:
        """The interpreter in name that ENGINE=host starts, with these variables."""
        python = self.guest / "python3"
        given = {"GUEST_FOLDER": str(self.guest), "GUEST_PYTHON": str(python)} | dict(exports)
        lines = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
        python.write_text("\n".join(["#!/bin/sh", *lines, f'exec {shlex.quote(sys.executable)} -I -S {shlex.quote(guest.__file__)} "$@"', ""]))
        python.chmod(0o755)

    @property
    def manners_file(self) -> Path:
        """Where the guest looks for its manners; a container sees the models' folder."""
        return (self.models if self.engine == DOCKER else self.guest) / guest.MANNERS

    @property
    def manners(self) -> dict[str, dict[str, str]]:
        return guest.parse_manners(self.manners_file.read_text()) if self.manners_file.exists() else {}

    def teach(self, text: str) -> None:
        self.manners_file.write_text(text + "\n")

    def unteach(self) -> None:
        self.manners_file.unlink(missing_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """What the command of this place sees; TMPDIR also marks each of its processes."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "DOCKER_HOST") if name in os.environ}
        typed = {
            "STACK": "current",
            "ENGINE": "docker" if self.engine in (DOCKER, GPU) else "host",
            "DEVICE": "cuda" if self.engine == GPU else "cpu",
            "SCALE": "tiny",
            "WEIGHTS": "random",
            "GPUS": str(self.ranks),
            "VARIANT": "controlled",
            "TIMEOUT_S": str(TIMEOUT_S[self.engine]),
            "KIT_LOCKS": str(self.locks),
            "RUNS": str(self.runs),
            "MODELS": str(self.models),
            "TMPDIR": str(self.tmp),
        }
        if self.engine == HOST:
            typed["PYTHON_HOST"] = str(self.guest / "python3")
        if self.engine == REAL:
            typed |= {"STACK": "demo", "ARTICLE": "demo", "CASES": f"bloom-{BACKENDS[self.ranks]}", "TIMED_RUNS": "2", "OMP_NUM_THREADS": "1"}
        if self.engine == GPU:
            typed |= {"CASES": self.backend, "TIMED_RUNS": "3"}
        return kept | typed | self.more

    def start(self, make: bool = False, terminal: bool = False, before: Callable[[], None] = lambda: None, **more: str) -> Command:
        """`make bench-…` or the verb itself, as a person starts it who hears Ctrl-C."""
        arguments = ["make", "--no-print-directory", f"bench-{self.backend}"] if make else [sys.executable, "-m", "scripts", "bench", self.backend]

        def prepare() -> None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            before()

        number = len(list(self.folder.glob("output-*")))
        return Command(arguments, self.kit, self.environment | more, self.folder / f"output-{number}", prepare, terminal)

    def until(self, moment: str, command: Command) -> bool:
        """Wait for a moment of the command's run; False where it ended before."""
        pattern = MOMENTS[moment]
        before = self._there(pattern)
        while command.running() and time.monotonic() - command.began < BOUND_S[self.engine]:
            if not pattern or self._there(pattern) - before:
                return True
            time.sleep(0.002)
        return False

    def _there(self, pattern: str) -> set[Path]:
        """The paths of a pattern, those within a run that is there already not among them."""
        return set(self.folder.glob(pattern)) if pattern else set()

    def processes(self) -> list[int]:
        """The pids of all processes of this place's commands, by the TMPDIR in their environment."""
        mark = f"TMPDIR={self.tmp}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0") and not _is_dead(path.parent):
                    found.append(int(path.parent.name))
        return found

    def end_processes(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_dead(process: Path) -> bool:
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")


def soon(condition: Callable[[], object], within_s: float) -> bool:
    """Does it become true in time?"""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def removed_at_end(folder: Path) -> Iterator[Path]:
    """A folder that is gone afterwards, whatever lies in it."""
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
