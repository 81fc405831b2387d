"""The digests of base images: `make lock` asks the registry for missing ones and writes them into docker/pins.toml.

A digest is a pin, so it is never replaced. To pin the tag's present image, empty the digest and type `make lock render`.
"""

import re
import subprocess

from bench.job import write_whole
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
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    digest = done.stdout.strip()
    return digest if done.returncode == 0 and re.fullmatch(r"sha256:[0-9a-f]{64}", digest) else ""


def with_digests(text: str, digests: dict[str, str]) -> str:
    """The text of pins.toml with these digests in place of empty ones."""
    return _BASE.sub(lambda match: f'{match[1]}"{digests.get(match["reference"], "")}"', text)


def record(loaded: Pins) -> list[str]:
    """Ask for every missing digest and write the answers into pins.toml; returns lines for the user."""
    path = loaded.root / "docker/pins.toml"
    text = path.read_text(encoding="utf-8")
    digests: dict[str, str] = {}
    for reference in without_digest(text):
        digests[reference] = ask(reference)
        if not digests[reference]:
            break  # no registry answers for one image, so none answers for the others
    answered = {reference: digest for reference, digest in digests.items() if digest}
    if answered:
        write_whole(path, with_digests(text, answered))
    lines = [f"{reference}: {digest} recorded in docker/pins.toml" for reference, digest in answered.items()]
    missing = [reference for reference in without_digest(text) if reference not in answered]
    return lines + ([f"no registry gives the digest of {', '.join(missing)}: these bases are pinned only by their tag"] if missing else [])
