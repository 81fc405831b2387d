"""uv, which resolves the locks and makes the demo's environments: where it is, and whose certificates it trusts."""

import os
import shutil
import ssl
import sys
from pathlib import Path

from scripts.errors import KitError

#: Where pip and the library below it look for a file of certificates, the first that is set counts; uv looks at SSL_CERT_FILE alone.
NAMED_FOR_PIP = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def find() -> str:
    """uv of the environment that runs this, else the one on PATH."""
    beside_python = Path(sys.executable).with_name("uv")
    found = str(beside_python) if beside_python.exists() else shutil.which("uv")
    if not found:
        raise KitError("uv is missing: `make lock` runs in the tools' environment, so remove .venv and type `make lock` again")
    return found


def named_for_pip() -> str:
    """The file of certificates that the environment names for pip; "" where it names none."""
    return next((os.environ[name] for name in NAMED_FOR_PIP if os.environ.get(name)), "")


def trust() -> dict[str, str]:
    """Settings with which uv trusts what pip does: the certificates that the environment names, else this system's own.

    Without them it trusts those that it brings, which know nothing of a proxy's. A system that has none would leave it with nothing.
    """
    if named_for_pip():
        return {"SSL_CERT_FILE": named_for_pip()}
    system = ssl.get_default_verify_paths()  # SSL_CERT_FILE and SSL_CERT_DIR, where they are set and lead somewhere
    there = system.cafile or (system.capath and any(Path(system.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "1"} if there else {}
