"""The digests of base images: asked of the registry by `make lock` where one answers, and written into docker/pins.toml.

A digest that is there is never replaced, for it is a pin; who wants the tag's present image empties it and types `make lock render`.
"""

import re
import subprocess

from scripts.pins import Pins

#: Seconds for one answer of a registry.
PATIENCE_S = 30

_BASE = re.compile(r'^(base = \{ version = "(?P<reference>[^"]+)".*digest = )""', re.MULTILINE)


def without_digest(text: str) -> list[str]:
    """The base images of a pins.toml that have no digest yet."""
    return sorted({match["reference"] for match in _BASE.finditer(text)})


def ask(reference: str) -> str:
    """The digest that a registry gives for an image's tag; "" where none answers."""
    command = ["docker", "buildx", "imagetools", "inspect", reference, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = done.stdout.strip()
    return found if done.returncode == 0 and re.fullmatch(r"sha256:[0-9a-f]{64}", found) else ""


def with_digests(text: str, digests: dict[str, str]) -> str:
    """A pins.toml with the digests that were found put where there was none."""
    return _BASE.sub(lambda match: f'{match[1]}"{digests.get(match["reference"], "")}"', text)


def record(loaded: Pins) -> list[str]:
    """Ask for every digest that is missing and write those found; what to tell, one line each."""
    path = loaded.root / "docker/pins.toml"
    text = path.read_text(encoding="utf-8")
    digests: dict[str, str] = {}
    for reference in without_digest(text):
        digests[reference] = ask(reference)
        if not digests[reference]:
            break  # what is true of one is true of all: no registry can be reached
    found = {reference: digest for reference, digest in digests.items() if digest}
    if found:
        path.write_text(with_digests(text, found), encoding="utf-8")
    lines = [f"{reference}: {digest} recorded in docker/pins.toml" for reference, digest in found.items()]
    missing = [reference for reference in without_digest(text) if reference not in found]
    return lines + ([f"no registry tells the digest of {', '.join(missing)}: these bases are pinned by tag alone"] if missing else [])
