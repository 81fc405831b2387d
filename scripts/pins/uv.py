"""uv, which resolves the locks and makes the demo's environments: where it is, and whose certificates it trusts."""

import ast
import functools
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

from scripts import surroundings
from scripts.errors import KitError

#: uv reads no files of settings. One retry: the default of three waits 15 s for an index that cannot be reached.
SETTINGS = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "UV_HTTP_RETRIES": "1"}

#: What pip calls a setting, and uv's name for it. Several values stand with blanks or line ends between them.
OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_OFFLINE",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
}


@functools.cache
def settings_of_pip(python: str) -> dict[str, str]:
    """The user's settings of pip, from its files and PIP_…, as uv's; what the user has set for uv itself stays."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():  # "global.index-url='https://…'", "install.…", then ":env:.…": a later one counts
        key, _, value = line.partition("=")
        name = OF_PIP.get(key.rpartition(".")[2].replace("_", "-"))
        if name:
            found[name] = _joined(name, ast.literal_eval(value))
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip: a version may come from any index, and its hash is locked
    return {name: value for name, value in found.items() if name not in surroundings.current().variables}


def _joined(name: str, value: str) -> str:
    return ("," if name == "UV_FIND_LINKS" else " ").join(value.split())


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """What went wrong, as one line: uv's first line says what, its last one why."""
    lines = [line.strip().removeprefix("error: ").removeprefix("cause: ") for line in done.stderr.splitlines() if line.strip()]
    if not lines:
        return f"the installer ended with {done.returncode}"
    return lines[0] if len(lines) < 2 else f"{lines[0]} ({lines[-1]})"


def find() -> str:
    """uv of the environment that runs this, else the one on PATH."""
    beside_python = Path(sys.executable).with_name("uv")
    found = str(beside_python) if beside_python.exists() else shutil.which("uv")
    if not found:
        raise KitError("uv is missing: `make lock` runs in the tools' environment, so remove .venv and type `make lock` again")
    return found


def trust() -> dict[str, str]:
    """Settings with which uv trusts what pip does: the certificates that the environment names, else this system's own.

    Without them it trusts those that it brings, which know nothing of a proxy's. A system that has none would leave it with nothing.
    """
    named = surroundings.current().certificates
    if named:
        return {"SSL_CERT_FILE": named}
    system = ssl.get_default_verify_paths()  # SSL_CERT_FILE and SSL_CERT_DIR, where they are set and lead somewhere
    there = system.cafile or (system.capath and any(Path(system.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "1"} if there else {}
