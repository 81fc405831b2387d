"""uv, which resolves the locks and fills the kit's environments: its path, its settings and the certificates that it trusts."""

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

#: {pip's name of a setting: uv's variable}. pip separates several values by blanks or line ends.
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
    """The user's settings of pip, from its files and PIP_…, as variables of uv; variables that the user has set for uv stay."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, errors="replace")
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():  # "global.index-url='https://…'", "install.…", then ":env:.…": a later line counts
        key, _, value = line.partition("=")
        name = OF_PIP.get(key.rpartition(".")[2].replace("_", "-"))
        if name:
            settings[name] = _joined(name, ast.literal_eval(value))
    if "UV_INDEX" in settings:
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as in pip: a version may come from any index; its hash is locked
    return {name: value for name, value in settings.items() if name not in surroundings.current().variables}


def _joined(name: str, value: str) -> str:
    return ("," if name == "UV_FIND_LINKS" else " ").join(value.split())


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """One line that says what failed (uv's first line) and why (its last line)."""
    lines = [line.strip().removeprefix("error: ").removeprefix("cause: ") for line in done.stderr.splitlines() if line.strip()]
    if not lines:
        return f"the installer ended with {done.returncode}"
    return lines[0] if len(lines) < 2 else f"{lines[0]} ({lines[-1]})"


def find() -> str:
    """The path of uv: in the running environment, else on PATH. Raises KitError."""
    beside_python = Path(sys.executable).with_name("uv")
    path = str(beside_python) if beside_python.exists() else shutil.which("uv")
    if not path:
        raise KitError("uv is missing: the tools in .venv are gone; type rm -rf .venv and the same make command again, which makes them anew")
    return path


def trust() -> dict[str, str]:
    """Settings with which uv trusts the same certificates as pip: those that the environment names, else this system's own.

    By default uv trusts only the certificates that it brings, which lack a proxy's. A system without certificates keeps that default.
    """
    named = surroundings.current().certificates
    if named:
        return {"SSL_CERT_FILE": named}
    system = ssl.get_default_verify_paths()  # follows SSL_CERT_FILE and SSL_CERT_DIR where they exist
    has_certificates = system.cafile or (system.capath and any(Path(system.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "1"} if has_certificates else {}
