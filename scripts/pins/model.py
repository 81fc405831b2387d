"""The pins of docker/pins.toml: the versions that each image holds, and the tag that names exactly these versions."""

import dataclasses
import functools
import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.errors import KitError, UsageError
from scripts.names import nearest
from scripts.paths import ROOT
from scripts.pins import requirement_files

ORIGINS = ("stated", "derived", "chosen")

#: The files in an image's folder that decide its content. `pins_id` is a hash over those that exist, its patches and docker/build.
INPUTS = ("Dockerfile", "requirements.txt", "torch.txt", "shared.txt", "compile.txt", "source.txt")


@dataclasses.dataclass(frozen=True)
class Pin:
    """One version with its reason. `origin` is stated, derived or chosen."""

    name: str
    version: str
    origin: str
    why: str


@dataclasses.dataclass(frozen=True)
class Image:
    """One backend on one stack: a Docker image, or with `engine` "host" an environment on this machine.

    folder       where its Dockerfile and locks lie
    environment  name of the environment for `engine` "host", otherwise ""
    arch_list    GPU architectures of its torch, as "sm_86"
    options      the other keys of [backend.B.S] in pins.toml: cuda_on_library_path, added_files, compile, debian, python
    rendered     {path: text} of files that are about to be written; it counts in place of the text on the disk
    """

    backend: str
    stack: str
    engine: str
    environment: str
    folder: Path
    base: str
    python: str
    cuda: str
    arch_list: tuple[str, ...]
    exclude_newer: str
    pins: dict[str, Pin]
    options: dict[str, Any]

    rendered: Mapping[Path, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def kernels_arch_list(self) -> tuple[str, ...]:
        """GPU architectures of the kernels that are compiled for the image, as "sm_86"; () where it has none of its own."""
        listed = self.options.get("compile", {}).get("environment", {}).get("TORCH_CUDA_ARCH_LIST", "")
        return tuple(f"sm_{part.replace('.', '')}" for part in listed.split(";") if part)

    @property
    def pins_id(self) -> str:
        """12 hex digits over everything that decides the image's content."""
        digest = hashlib.sha256(self.base.encode())
        inputs = [(name, self.folder / name) for name in INPUTS] + [(f"patches/{path.name}", path) for path in self.patches]
        for name, path in inputs + [(f"build/{path.name}", path) for path in sorted(self.build_scripts.glob("*.*"))]:
            content = self.rendered[path].encode() if path in self.rendered else path.read_bytes() if path.exists() else None
            if content is not None:
                digest.update(f"\0{name}\0".encode() + content)
        return digest.hexdigest()[:12]

    @property
    def name(self) -> str:
        """ "deepspeed:current"."""
        return f"{self.backend}:{self.stack}"

    @property
    def tag(self) -> str:
        return f"llm-repro/{self.backend}:{self.stack}-{self.pins_id}"

    @property
    def patches_folder(self) -> Path:
        return self.folder.parents[1] / "patches"

    @property
    def patches(self) -> list[Path]:
        """The files of docker/patches that the build uses, whether they exist or not."""
        names = [*self.options.get("compile", {}).get("patches", []), *self.options.get("added_files", {}).values()]
        return [self.patches_folder / name for name in names]

    @property
    def build_scripts(self) -> Path:
        """The folder of scripts that every Dockerfile runs."""
        return self.folder.parents[1] / "build"

    @property
    def compile_pins(self) -> dict[str, Pin]:
        """The pins of the compiling stage beside torch; empty where the image compiles nothing."""
        table = self.options.get("compile", {}).get("pins", {})
        return _pins(table, f"backend.{self.backend}.{self.stack}.compile") if table else {}

    @property
    def debian_pins(self) -> dict[str, Pin]:
        """The Debian packages that the running image needs beside those of its base."""
        return _pins(self.options.get("debian", {}), f"backend.{self.backend}.{self.stack}.debian")

    def lock_text(self) -> str:
        path = self.folder / "requirements.txt"
        if not path.exists():
            raise KitError(f"{self._place(path)} is missing: type make lock BACKEND={self.backend}, then make render")
        return path.read_text(encoding="utf-8")

    def locked(self) -> dict[str, str]:
        """Every package of the image with its version."""
        return requirement_files.versions(self.lock_text())

    def refuse_other_lock(self) -> None:
        """Raise KitError where the lock is missing or is not that of the pins: what would run is not what pins.toml says."""
        for name, has, version in requirement_files.other_versions(self.locked(), (f"{pin.name}=={pin.version}" for pin in self.pins.values())):
            place, next_command = self._place(self.folder / "requirements.txt"), f"type make lock BACKEND={self.backend}, then make render"
            raise KitError(f"{place} has {name} {has}, docker/pins.toml {version}; {next_command}")

    def _place(self, path: Path) -> str:
        """A file below its docker folder, as errors name it."""
        return path.relative_to(self.folder.parents[2]).as_posix()


@dataclasses.dataclass(frozen=True)
class Pins:
    """The tables of pins.toml, and the images that follow from them; `rendered` as in Image."""

    root: Path
    host: dict[str, Any]
    stacks: dict[str, dict[str, Any]]
    shared: dict[str, dict[str, Any]]
    backends: dict[str, dict[str, Any]]
    rendered: Mapping[Path, str] = dataclasses.field(default_factory=dict, repr=False)

    def image(self, backend: str, stack: str, typed: str = "") -> Image:
        """The image of a backend on a stack; raises UsageError with the allowed names. `typed` is the value of STACK: `article` stands for a stack."""
        if backend not in self.backends:
            meant = nearest(backend, self.backends)
            raise UsageError(f"there is no backend {backend!r}, allowed are {', '.join(self.backends)}; try {meant}; `make` alone lists the targets")
        if stack not in self.stacks:
            meant = nearest(stack, ("current", *self.stacks))
            raise UsageError(f"STACK is {stack!r}, allowed are {', '.join(self.stacks)}; try STACK={meant}")
        if stack not in self.backends[backend]["stacks"]:
            allowed = ", ".join(self.backends[backend]["stacks"])
            if typed == "article":
                raise UsageError(f"STACK=article means {stack} here; {backend} has {allowed}; type STACK={allowed.partition(',')[0]}")
            raise UsageError(f"STACK is {stack!r}, {backend} has {allowed}; try STACK={allowed.partition(',')[0]}")
        return _image(self, backend, stack)

    @functools.cached_property
    def _every(self) -> list[Image]:
        """What each backend has on each of its stacks, in the order of pins.toml; `make render` asks for it a thousand times."""
        return [self.image(backend, stack) for backend, table in self.backends.items() for stack in table["stacks"]]

    def images(self, stack: str | None = None) -> list[Image]:
        """All Docker images, or those of one stack, in the order of pins.toml."""
        return [image for image in self._every if image.engine == "docker" and stack in (None, image.stack)]

    def plain(self, stack: str) -> Image | None:
        """The first image that holds a stack's own pins and nothing else."""
        return next((image for image in self.images(stack) if not image.options), None)

    def environments(self) -> dict[str, list[Image]]:
        """Name of a host environment -> the backends that run in it."""
        by_name: dict[str, list[Image]] = {}
        for image in self._every:
            if image.engine == "host":
                by_name.setdefault(image.environment, []).append(image)
        return by_name

    def environment_pins(self, name: str) -> dict[str, Pin]:
        """The merged pins of all backends in a host environment; raises KitError where two backends pin different versions."""
        merged: dict[str, Pin] = {}
        for image in self.environments()[name]:
            for pin in image.pins.values():
                first = merged.setdefault(pin.name, pin)
                if first.version != pin.version:
                    raise KitError(
                        f"docker/pins.toml: {image.backend} pins {pin.name} {pin.version} in the environment {name!r}, "
                        f"which has {first.version}: give {image.backend} an `environment` of its own"
                    )
        return merged

    @property
    def host_pins(self) -> dict[str, dict[str, Pin]]:
        """{group of the tools' environment: its pins}, in the order in which they are locked."""
        return {group: _pins(table, f"host.pins.{group}") for group, table in self.host["pins"].items()}

    def host_lock(self, group: str) -> Path:
        """The lock of a group of the tools' environment."""
        return self.root / "scripts" / "requirements" / f"{group}.txt"


def load(root: Path = ROOT, keys_checked: bool = True) -> Pins:
    """Read docker/pins.toml; raises KitError with the place of a mistake.

    The check for unknown keys needs a library, so code that runs before the tools are installed skips it with `keys_checked=False`.
    """
    path = root / "docker" / "pins.toml"
    try:
        return _pins_of(root, path.read_text(encoding="utf-8"), keys_checked)
    except FileNotFoundError as error:
        raise KitError(f"{path} is missing: restore it with `git checkout docker/pins.toml`") from error
    except tomllib.TOMLDecodeError as error:
        raise KitError(f"docker/pins.toml: not TOML: {error}") from error
    except KeyError as error:
        raise KitError(f"docker/pins.toml: a table lacks the key {error}") from error


@functools.lru_cache(maxsize=8)  # a command asks for the pins at many places, and no place changes them
def _pins_of(root: Path, text: str, keys_checked: bool) -> Pins:
    tables = tomllib.loads(text)
    if keys_checked:
        from scripts.pins import shapes

        shapes.check(tables)
    pins = Pins(root, tables["host"], tables["stack"], tables.get("shared", {}), tables["backend"])
    pins.images(), pins.environments(), pins.host_pins  # reads every table once, so that a mistake shows now
    return pins


def _image(pins: Pins, backend: str, stack: str) -> Image:
    table, options = pins.stacks[stack], _options(pins, backend, stack)
    _pins({name: table[name] for name in ("python", "base") if name in table}, f"stack.{stack}")
    merged = _pins(table["pins"], f"stack.{stack}")
    if "shared" in options:
        merged |= _pins(pins.shared[options["shared"]]["pins"], f"shared.{options['shared']}")
    merged |= _pins(options.get("pins", {}), f"backend.{backend}.{stack}")
    compiled = options.get("compile", {})
    _pins({"base": compiled["base"]} if "base" in compiled else {}, f"backend.{backend}.{stack}.compile")
    _pins(options.get("debian", {}), f"backend.{backend}.{stack}.debian")
    on_host = table["engine"] == "host"
    environment = options.get("environment", "common") if on_host else ""
    if environment and environment not in table.get("environments", {}):
        known = f"allowed are {', '.join(table.get('environments', {}))}; add it to [stack.{stack}.environments] with its download_mb and disk_mb"
        raise KitError(f"docker/pins.toml, [backend.{backend}.{stack}]: environment is {environment!r}, {known}")
    return Image(
        backend=backend,
        stack=stack,
        engine=table["engine"],
        environment=environment,
        folder=pins.root / "docker" / (f"{stack}/{environment}" if on_host else f"{backend}/{stack}"),
        base=reference(table.get("base", {})),
        python=table["python"]["version"],
        cuda=table["cuda"],
        arch_list=tuple(table["arch_list"]),
        exclude_newer=table["exclude_newer"],
        pins=merged,
        options=options,
        rendered=pins.rendered,
    )


def _options(pins: Pins, backend: str, stack: str) -> dict[str, Any]:
    """The table [backend.B.S], or with `same_as` the table of another backend on the same stack."""
    options: dict[str, Any] = pins.backends[backend].get(stack, {})
    source = options.get("same_as")
    if source is None:
        return options
    other = pins.backends.get(source, {})
    of_other: dict[str, Any] = other.get(stack, {})
    if len(options) > 1 or stack not in other.get("stacks", ()) or "same_as" in of_other:
        place = f"[backend.{backend}.{stack}]"
        raise KitError(f"docker/pins.toml, {place}: same_as is {source!r}, allowed are a backend that has this stack without same_as, and no other key here")
    return of_other


def reference(base: dict[str, str]) -> str:
    """A base image as a Dockerfile names it; "" for an empty table."""
    return base.get("version", "") + (f"@{base['digest']}" if base.get("digest") else "")


def _pins(table: dict[str, dict[str, str]], place: str) -> dict[str, Pin]:
    pins = {}
    for name, pin in table.items():
        if pin.get("origin") not in (*ORIGINS, None, ""):
            allowed, near = ", ".join(ORIGINS), nearest(str(pin["origin"]), ORIGINS)
            raise KitError(f"docker/pins.toml, [{place}]: the origin of {name} is {str(pin['origin'])!r:.60}, allowed are {allowed}; try {near}")
        if not all(pin.get(key) for key in ("version", "origin", "why")):
            raise KitError(f"docker/pins.toml, [{place}]: {name} needs a version, an origin ({', '.join(ORIGINS)}) and a why")
        if re.search(r"[<>=!*,;\s]", pin["version"]):
            raise KitError(f"docker/pins.toml, [{place}]: the version of {name} is {pin['version']!r}, allowed is one version, such as 1.2.3")
        pins[name] = Pin(name, pin["version"], pin["origin"], pin["why"])
    return pins
