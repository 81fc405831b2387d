"""Read hash-locked requirement files: one block per package, `name==version` first, its sha256 sums below."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

#: Name prefixes of packages that only a CUDA build of torch needs.
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")

_PACKAGE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")


def normalized(name: str) -> str:
    """A distribution's name as locks write it: `PyYAML` and `pyyaml` are one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def same_version(one: str, other: str) -> bool:
    """Does one pin choose the other? To pip 2.1 and 2.1.0 are one version, and a lock has the spelling of the index."""
    return re.sub(r"(\.0)+$", "", one) == re.sub(r"(\.0)+$", "", other)


def other_versions(locked: Mapping[str, str], requirements: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(name, locked version or "(absent)", pinned version) of each requirement, a `name==version`, that a lock does not meet."""
    for name, version in (requirement.split("==") for requirement in requirements):
        has = locked.get(normalized(name), "")
        if not same_version(has, version):
            yield name, has or "(absent)", version


@functools.lru_cache(maxsize=128)  # rendering looks up every advisory in each lock
def blocks(text: str) -> Mapping[str, str]:
    """Package name -> its block of lines, in the order of the file; comment lines belong to no block."""
    by_name: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        match = _PACKAGE.match(line)
        if match:
            name = normalized(match[1])
            by_name[name] = line
        elif line[:1].isspace() and line.strip() and name:
            by_name[name] += line
        else:
            name = ""
    return MappingProxyType(by_name)


def versions(text: str) -> dict[str, str]:
    """Package name -> locked version, without packages that are only for Windows or Emscripten."""
    return dict(_versions(text))


@functools.lru_cache(maxsize=128)  # as for the blocks
def _versions(text: str) -> Mapping[str, str]:
    locked = {}
    for name, block in blocks(text).items():
        match = _PACKAGE.match(block)
        if match and "sys_platform == 'win32'" not in block and "sys_platform == 'emscripten'" not in block:
            locked[name] = match[2]
    return MappingProxyType(locked)


def without_hashes(text: str) -> str:
    """`name==version ; markers`, one line per package."""
    return "".join(block.splitlines()[0].rstrip(" \\") + "\n" for block in blocks(text).values())


def header(text: str) -> str:
    """The comment lines of a lock."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))


def needs_cuda(name: str) -> bool:
    return name.startswith(CUDA_PREFIXES)


def cpu_only(text: str) -> str:
    """The lock for a CPU build of torch: torch as `+cpu`, and no package that only CUDA needs.

    The build's sha256 must be among torch's hashes. uv checks hashes by exact version, hence `+cpu` in the version.
    """
    kept = {name: block for name, block in blocks(text).items() if not needs_cuda(name)}
    kept["torch"] = _PACKAGE.sub(r"\g<0>+cpu", kept["torch"], count=1)
    return header(text) + "".join(kept.values())


def shared_layer(text: str, plain: str) -> str:
    """The packages that an image shares with its stack's plain image, byte for byte, without torch's; "" where any of them differs."""
    own = blocks(text)
    common = {name: block for name, block in blocks(plain).items() if name != "torch" and not needs_cuda(name)}
    return "".join(common.values()) if all(own.get(name) == block for name, block in common.items()) else ""


def torch_layer(text: str, not_torchs: set[str]) -> str:
    """torch and its CUDA packages: the part that all images of a stack share, byte for byte.

    `not_torchs` names CUDA packages that the backend pins itself, or that such a package needs; they belong to the backend's own layer.
    """
    kept = [block for name, block in blocks(text).items() if (name == "torch" or needs_cuda(name)) and name not in not_torchs]
    return "".join(kept)
