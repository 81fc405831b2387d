"""axe-core, which finds text without contrast: a file of one version, fetched by `python -m tests.site.axe` and never shipped."""

import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path

VERSION = "4.14.1"
URL = f"https://registry.npmjs.org/axe-core/-/axe-core-{VERSION}.tgz"
SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
FETCH = ".venv/bin/python -m tests.site.axe"

#: Beside the tools, so that `make clean` removes it.
PATH = Path(__file__).resolve().parents[2] / ".venv" / f"axe-core-{VERSION}.min.js"


def fetch() -> None:
    """Write PATH where it is not there; exits with the reason for another content than that of SHA256."""
    if PATH.exists():
        return
    with urllib.request.urlopen(URL, timeout=60) as answer:
        packed = answer.read()
    if (digest := hashlib.sha256(packed).hexdigest()) != SHA256:
        sys.exit(f"error: {URL} has the sha256 {digest}, not {SHA256}; look at what was released before you change the pin in tests/site/axe.py")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        partial = PATH.with_suffix(".partial")
        partial.write_bytes(script.read())
    partial.replace(PATH)


if __name__ == "__main__":
    fetch()
