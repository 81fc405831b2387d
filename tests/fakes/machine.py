"""A machine with simulated GPUs: child processes that load the simulated driver (tests/fakes/nvml.c) as they would the real one."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PREAMBLE = """
import json, os, sys, time
from scripts import surroundings
from scripts.machine import gpus, locks
from scripts.errors import KitError
surroundings.use(os.environ)
answer = None
try:
{}
except KitError as error:
    answer = {{"exit_code": error.exit_code, "error": str(error)}}
print(json.dumps(answer))
"""

#: A process that has imported these modules and, for each line of its input, forks a child with that line's folder, variables, and program.
NURSERY = """
import importlib, json, os, sys, tempfile, time, traceback
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    asked = json.loads(line)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            for number, file in enumerate((open(os.devnull), output, errors)):
                os.dup2(file.fileno(), number)
            tempfile.tempdir = None
            os.chdir(asked["folder"])
            os.environ.clear()
            os.environ.update(asked["environment"])
            try:
                exec(asked["code"], {"__name__": "__main__"})
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        output.seek(0), errors.seek(0)
        print(json.dumps([output.read(), errors.read()]), flush=True)
"""


@functools.cache
def nursery(driver: Path, modules: tuple[str, ...]) -> subprocess.Popen:
    """It finds the simulated driver where a process looks for it as it starts, and ends with this process, which holds its input."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", NURSERY, "scripts.machine.gpus", "scripts.machine.locks", *modules]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Machine:
    """A machine with simulated GPUs; `ask` runs Python lines on it that set `answer`, in a process of their own that need not import `modules` anew."""

    def __init__(self, driver: Path, folder: Path, *modules: str) -> None:
        self.driver, self.modules = driver, modules
        self.used, self.broken = folder / "used", folder / "broken"
        hidden = ("XDG_RUNTIME_DIR", "ALLOW_BUSY", "LD_LIBRARY_PATH")
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment = kept | {
            "LD_LIBRARY_PATH": str(driver),
            "KIT_LOCKS": str(folder / "locks"),
            "FAKE_NVML_USED": str(self.used),
            "FAKE_NVML_BROKEN": str(self.broken),
            "PYTHONPATH": str(ROOT),
        }

    def start(self, lines: str, gpus: int = 8, **settings: str) -> subprocess.Popen:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", self._program(lines)], env=self._variables(gpus, settings), **pipes)

    def ask(self, lines: str, gpus: int = 8, **settings: str) -> object:
        asked = {"folder": os.getcwd(), "environment": self._variables(gpus, settings), "code": self._program(lines)}
        process = nursery(self.driver, self.modules)
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        output, errors = json.loads(process.stdout.readline())
        os.write(2, errors.encode())
        return json.loads(output)

    def _program(self, lines: str) -> str:
        return PREAMBLE.format("\n".join("    " + line for line in lines.splitlines()))

    def _variables(self, gpus: int, settings: dict[str, str]) -> dict[str, str]:
        return self.environment | {"FAKE_NVML_GPUS": str(gpus)} | settings
