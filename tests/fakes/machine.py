"""A machine with simulated GPUs: child processes that load the simulated driver (tests/fakes/nvml.c) as they would the real one."""

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


class Machine:
    """A machine with simulated GPUs; `ask` runs Python lines on it that set `answer`."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.used, self.broken = folder / "used", folder / "broken"
        hidden = ("XDG_RUNTIME_DIR", "ALLOW_BUSY", "LD_LIBRARY_PATH")
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment = kept | {
            "LD_LIBRARY_PATH": str(library),
            "KIT_LOCKS": str(folder / "locks"),
            "FAKE_NVML_USED": str(self.used),
            "FAKE_NVML_BROKEN": str(self.broken),
            "PYTHONPATH": str(ROOT),
        }

    def start(self, lines: str, gpus: int = 8, **settings: str) -> subprocess.Popen:
        code = PREAMBLE.format("\n".join("    " + line for line in lines.splitlines()))
        environment = self.environment | {"FAKE_NVML_GPUS": str(gpus)} | settings
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes)

    def ask(self, lines: str, gpus: int = 8, **settings: str) -> object:
        output, _ = self.start(lines, gpus, **settings).communicate(timeout=60)
        return json.loads(output)
