"""The shape of docker/pins.toml: every key that the code reads, at any depth, and no other.

A text that becomes a part of a path must be a name: the pins of a bundle come from somebody else, and must lead to no file outside it.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from scripts import toml_tables
from scripts.errors import KitError
from scripts.names import NAME, nearest, slug
from scripts.toml_tables import Table

Name = Annotated[str, msgspec.Meta(pattern=NAME)]

#: A name that Docker also allows for an image, and that a module's file can have.
BACKEND = r"[a-z0-9]+(-[a-z0-9]+)*"

#: What runs a stack, and where the compiler of an image comes from: docker/Dockerfile.template has a section for each.
ENGINES, COMPILERS = ("docker", "host"), ("debian", "wheels", "copied")


class Pin(Table):
    """scripts/pins/model.py checks that all three are given."""

    version: str = ""
    origin: str = ""
    why: str = ""


class Base(Pin):
    digest: Annotated[str, msgspec.Meta(pattern=r"^(sha256:[0-9a-f]{64})?\Z")] = ""


class Sizes(Table):
    """The sizes of an installation in MB, shown to the user before it begins."""

    download_mb: int
    disk_mb: int


class Group(Sizes):
    """A group of the tools' environment."""

    summary: str


class Host(Table):
    summary: str
    python: str
    exclude_newer: str
    groups: dict[Name, Group]
    pins: dict[Name, dict[str, Pin]]


class Stack(Table):
    summary: str
    engine: str
    python: Pin
    cuda: str
    arch_list: list[str]
    exclude_newer: str
    pins: dict[str, Pin]
    base: Base | None = None
    port_of: str = ""
    environments: dict[str, Sizes] = {}
    cpu_wheels: dict[str, str] = {}


class Shared(Table):
    pins: dict[str, Pin]


class Compile(Table):
    """The compiling stage of an image; `compiled_with` are the system packages of the compiler, `environment` its variables."""

    why: str
    source: str
    compiler: str
    packages: list[str]
    environment: dict[str, str]
    cuda_home: str
    nvcc: str
    pins: dict[str, Pin] = {}
    base: Base | None = None
    compiled_with: dict[str, str] = {}
    copied: list[str] = []
    patches: list[Name] = []


class Options(Table):
    """One backend on one stack."""

    pins: dict[str, Pin] = {}
    shared: str = ""
    same_as: str = ""
    environment: Name = "common"
    python: list[str] = []
    cuda_on_library_path: str = ""
    added_files: dict[str, Name] = {}
    compile: Compile | None = None
    debian: dict[str, Pin] = {}


class Model(Table):
    """scripts/pins/models.py checks the commit, and that all three are given."""

    commit: str = ""
    origin: str = ""
    why: str = ""


class Tables(Table):
    host: Host
    stack: dict[Name, Stack]
    backend: dict[Name, dict[str, Any]]
    shared: dict[str, Shared] = {}
    models: dict[str, Model] = {}


class Backend(Table):
    """The keys of a backend beside its tables for stacks that need more than the stack's own pins."""

    summary: str
    stacks: list[Name]


def check(tables: Mapping[str, Any], file: str = "docker/pins.toml") -> None:
    """Raise KitError for the first key of pins.toml that no code reads, and for a value of a wrong type."""
    toml_tables.check(tables, Tables, file)
    for name, table in tables["stack"].items():
        place = f"{file}, [stack.{name}]"
        _refuse_other(place, "engine", table["engine"], ENGINES)
        if table["engine"] == "docker" and not table.get("base"):
            raise KitError(f"{place}: there is no base, and the images of a stack with the engine docker are built on one")
    for name, table in tables["backend"].items():
        place = f"backend.{name}"
        own = {key: value for key, value in table.items() if not isinstance(value, dict)}
        toml_tables.check(own, Backend, file, place)
        if not re.fullmatch(BACKEND, name):
            raise KitError(f"{file}, [{place}]: a backend's name has small letters, digits and '-', because an image is named after it; write {slug(name)!r}")
        for stack in table["stacks"]:
            if stack not in tables["stack"]:
                near, known = nearest(stack, tables["stack"]), ", ".join(tables["stack"])
                raise KitError(f"{file}, [{place}]: stacks names {stack!r}, allowed are {known}; write {near!r}")
            if table["stacks"].count(stack) > 1:
                raise KitError(f"{file}, [{place}]: stacks names {stack!r} twice; write each stack once")
        for stack in set(table) - set(own):
            if stack not in table["stacks"]:
                raise toml_tables.unknown(file, place, stack, [*Backend.__struct_fields__, *table["stacks"]])
            toml_tables.check(table[stack], Options, file, f"{place}.{stack}")
            if "compile" in table[stack]:
                _check_compile(table[stack]["compile"], table[stack].get("pins", {}), f"{file}, [{place}.{stack}.compile]")


def _check_compile(table: Mapping[str, Any], pins: Mapping[str, Any], place: str) -> None:
    """Raise KitError for a compiling stage that docker/Dockerfile.template has no section for; `pins` are those of the image beside its stack's."""
    _refuse_other(place, "compiler", table["compiler"], COMPILERS)
    _refuse_other(place, "source", table["source"], tuple(pins))
    lacking = [key for key in ("base", "copied") if not table.get(key)]
    if table["compiler"] == "copied" and lacking:
        raise KitError(f"{place}: there is no {lacking[0]}, and a copied compiler needs its base image and the packages that are copied")


def _refuse_other(place: str, key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        write = f"; write {nearest(value, allowed)!r}" if allowed else ""
        raise KitError(f"{place}: {key} is {value!r:.60}, allowed are {', '.join(allowed) or 'pins of its own, of which there is none'}{write}")
