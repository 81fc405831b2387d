"""make lock: resolve docker/pins.toml into requirement files with hashes. Needs the network; all files or none are written.

A version that a lock already has stays where it fits the pins: an index may learn of a release weeks after its date, so `exclude_newer`
alone would not give the same lock every day. The lock of a new image prefers the versions of its stack's plain image, so that the two
share layers. Remove both locks to resolve both from nothing.
"""

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from scripts import pins, surroundings
from scripts.errors import KitError, UsageError
from scripts.names import nearest
from scripts.pins import Image, Pin, Pins, base_digests, requirement_files, uv
from scripts.units import counted

#: Wheels for this platform run on every Linux with glibc 2.28 or newer, and so on every base image.
PLATFORM = "x86_64-manylinux_2_28"

#: Variables of uv that do not change a lock.
HARMLESS = ("UV_CACHE_DIR", "UV_DEFAULT_INDEX")


@dataclasses.dataclass(frozen=True)
class Request:
    """One lock to write. A `universal` lock holds markers and serves every platform and every Python from `python` on.

    `beside` are locks that go into the same environment: this lock keeps to their versions. `like` is the lock whose versions are
    preferred while `path` does not exist. `backends` are the backends of the lock, () for the tools' own locks.
    """

    path: Path
    requirements: tuple[str, ...]
    python: str
    universal: bool
    exclude_newer: str
    extra_hashes: tuple[tuple[str, str], ...] = ()
    beside: tuple[Path, ...] = ()
    like: Path | None = None
    backends: tuple[str, ...] = ()

    @property
    def preferred(self) -> Path | None:
        """The lock whose versions stay where they fit."""
        return next((path for path in (self.path, self.like) if path and path.exists()), None)


def requests(loaded: Pins) -> list[Request]:
    """Every lock that pins.toml asks for."""
    listed = _host_requests(loaded)
    for image in loaded.images():
        plain = loaded.plain(image.stack)
        like = plain.folder / "requirements.txt" if plain else None
        listed.append(dataclasses.replace(_request(image, "requirements.txt", image.pins), like=like))
        if image.compile_pins:
            also = ("torch", "setuptools", "numpy")
            needed = {name: image.pins[name] for name in also if name in image.pins}
            listed.append(_request(image, "compile.txt", needed | image.compile_pins))
    for name, images in loaded.environments().items():
        table = loaded.stacks[images[0].stack]
        hashes = tuple(("torch", digest) for digest in table.get("cpu_wheels", {}).values())
        path = images[0].folder / "requirements.txt"
        requirements, backends = _requirements(loaded.environment_pins(name)), tuple(image.backend for image in images)
        listed.append(Request(path, requirements, images[0].python, True, table["exclude_newer"], hashes, backends=backends))
    return listed


def _host_requests(loaded: Pins) -> list[Request]:
    """The groups of the tools' environment, each with the locks before it as `beside`."""
    paths, python = [loaded.host_lock(group) for group in loaded.host_pins], loaded.host["python"].removeprefix(">=")
    return [
        Request(path, _requirements(group_pins), python, True, loaded.host["exclude_newer"], beside=tuple(paths[:number]))
        for number, (path, group_pins) in enumerate(zip(paths, loaded.host_pins.values(), strict=True))
    ]


def _request(image: Image, name: str, pins: dict[str, Pin]) -> Request:
    return Request(image.folder / name, _requirements(pins), image.python, False, image.exclude_newer, backends=(image.backend,))


def _requirements(pins: dict[str, Pin]) -> tuple[str, ...]:
    return tuple(sorted(f"{pin.name}=={pin.version}" for pin in pins.values()))


def resolve(request: Request, beside: Mapping[Path, str] = MappingProxyType({})) -> str:
    """The text of a lock, resolved by uv. `beside` has the texts of the locks that it keeps to. Raises KitError with uv's message."""
    with tempfile.TemporaryDirectory() as folder:
        output, constraints = Path(folder, "lock.txt"), Path(folder, "constraints.txt")
        if request.preferred:
            output.write_text(requirement_files.without_hashes(request.preferred.read_text(encoding="utf-8")), encoding="utf-8")
        constraints.write_text("".join(requirement_files.without_hashes(beside[path]) for path in request.beside), encoding="utf-8")
        _compile(request, output, constraints)
        return header(request) + _with_extra_hashes(output.read_text(encoding="utf-8"), request.extra_hashes)


def resolve_all(requested: list[Request]) -> dict[Path, str]:
    """{path: text of its lock} of all requests. Images of one stack often need the same packages: uv gets each question once."""
    questions = {_question(request): request for request in requested if not request.beside}
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = dict(zip(questions, pool.map(resolve, questions.values()), strict=True))
    texts = {request.path: answers[_question(request)] for request in requested if not request.beside}
    for request in requested:
        if request.beside:
            texts[request.path] = resolve(request, texts)
    return texts


def _question(request: Request) -> Request:
    """The request without its path and purpose: uv answers equal questions alike."""
    return dataclasses.replace(request, path=Path(), like=None, backends=())


def _compile(request: Request, output: Path, constraints: Path) -> None:
    """Run `uv pip compile` into a file. uv prefers the versions that the file already has, and takes every hash from the index."""
    command = [
        *(uv.find(), "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate", "--no-emit-index-url"),
        *("--generate-hashes", "--python-version", request.python),
        # A whole timestamp: uv reads a bare date in the time zone of the machine.
        *("--exclude-newer", f"{request.exclude_newer}T23:59:59Z"),
        *(("--universal", "--fork-strategy", "fewest") if request.universal else ("--python-platform", PLATFORM)),
        *("--constraints", str(constraints), "--output-file", str(output), "-"),
    ]
    # Local wheel folders and options would make a lock that is valid only on this machine.
    kept = {name: text for name, text in surroundings.current().variables.items() if not name.startswith(("UV_", "PIP_")) or name in HARMLESS}
    environment = kept | {"UV_PYTHON_DOWNLOADS": "never"} | uv.trust()
    done = subprocess.run(command, input="\n".join(request.requirements), env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        next_step = "Look at the network and type the same again." if "Failed to fetch" in done.stderr else "Change docker/pins.toml."
        raise KitError(f"{request.path} cannot be locked: {done.stderr.strip()}\nNothing was written. {next_step}")


def header(request: Request) -> str:
    """The comment lines of a lock: for which Python, platform and date it was resolved."""
    scope = f"Python >= {request.python}, every platform" if request.universal else f"Python {request.python}, {PLATFORM}"
    return f"# GENERATED by `make lock` from docker/pins.toml; do not edit.\n# {scope}, nothing newer than {request.exclude_newer}.\n"


def _with_extra_hashes(text: str, extra: tuple[tuple[str, str], ...]) -> str:
    """Add sha256 sums of files that the index does not list, such as CPU builds, to the blocks of their packages."""
    blocks = dict(requirement_files.blocks(text))
    for name, digest in extra:
        if f"sha256:{digest}" not in blocks[name]:
            blocks[name] = blocks[name].rstrip("\n") + f" \\\n    --hash=sha256:{digest}\n"
    return "".join(blocks.values())


def changes(old: str, new: str) -> list[str]:
    """The differences between two locks, one line per package."""
    before, after = requirement_files.blocks(old), requirement_files.blocks(new)
    lines = []
    for name in sorted(before.keys() | after.keys()):
        was, now = _version(before.get(name)), _version(after.get(name))
        if was != now:
            lines.append(f"  {name} {was} -> {now}")
        elif before[name] != after[name]:
            lines.append(f"  {name} {now}: other hashes or markers")
    return lines or ([] if old == new else ["  comments only"])


def _version(block: str | None) -> str:
    return block.split("==")[1].split()[0] if block else "(absent)"


def differing(texts: dict[Path, str]) -> list[Path]:
    """The files that are missing, or have another text than this."""
    return [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def write_all(texts: dict[Path, str]) -> None:
    """Write all files or none: each goes to a temporary file first, and then all are moved into place."""
    staged: list[tuple[Path, Path]] = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            staged.append((Path(name), path))
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
    except OSError as error:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
        raise KitError(f"cannot write {error.filename}: {error.strerror}. Nothing was changed.") from error
    for temporary, path in staged:
        temporary.replace(path)


def of_backend(loaded: Pins, backend: str) -> list[Request]:
    """The locks that hold a backend's packages; raises UsageError with the known backends."""
    if backend not in loaded.backends:
        raise UsageError(f"BACKEND is {backend!r}, allowed are {', '.join(loaded.backends)}; try BACKEND={nearest(backend, loaded.backends)}")
    return [request for request in requests(loaded) if backend in request.backends]


def lock(backend: str | None = None) -> None:
    """Resolve every lock, or those of one backend, write the changed ones (all or none) and print the changes. Raises KitError."""
    loaded = pins.load()
    texts = resolve_all(of_backend(loaded, backend) if backend else requests(loaded))
    for path, text in texts.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = changes(old, text)
        print(f"{path.relative_to(loaded.root)}: {'unchanged' if not lines else counted(len(lines), 'change') if old else 'new'}")
        print("".join(f"{line}\n" for line in lines if old), end="")
    write_all({path: texts[path] for path in differing(texts)})
    for line in base_digests.record(loaded):
        print(line)
