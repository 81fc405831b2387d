"""Which files of a commit the kit uses, and whether a file on the disk is the commit's."""

import fnmatch
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from scripts.errors import KitError
from scripts.models.byte_progress import ByteProgress
from scripts.pins.models import ModelFile

#: Files that loading reads beside the weights: configuration and tokenizer.
BESIDE = ("*.json", "*.model", "*.txt", "*.jinja")

#: The suffix of a wrong file: it is kept for inspection and never loaded.
WRONG = ".wrong"

_CHUNK_BYTES = 8 << 20


def is_weights(name: str) -> bool:
    return name.endswith(".safetensors") or fnmatch.fnmatch(name, "pytorch_model*.bin")


def used(name: str, files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """The files that loading needs, sorted: only files at the top level, and weights in one format, safetensors before pickles.

    Raises KitError where there are no weights.
    """
    top = {file.name: file for file in files if "/" not in file.name and not file.name.startswith(".") and file.name.isprintable()}
    safetensors = {name for name in top if name.endswith(".safetensors")}
    weights = safetensors or {name for name in top if is_weights(name)}
    if not weights:
        raise KitError(f"{name} has no *.safetensors and no pytorch_model*.bin; type MODEL_PATH=/folder of its weights, or WEIGHTS=random")
    other_index = "pytorch_model*.index.json" if safetensors else "*.safetensors.index.json"
    beside = {name for name in top if any(fnmatch.fnmatch(name, pattern) for pattern in BESIDE) and not fnmatch.fnmatch(name, other_index)}
    return tuple(top[name] for name in sorted(weights | beside))


def loaded(names: set[str], folder: Path) -> set[str]:
    """The weight files that a loader opens in a folder with the files `names`: one file where there is one, else those of the index.

    Raises ValueError where neither names them.
    """
    pickled = not any(name.endswith(".safetensors") for name in names)
    single = "pytorch_model.bin" if pickled else "model.safetensors"
    if single in names:
        return {single}
    index = f"{single}.index.json"
    try:
        shards = {str(shard) for shard in json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"there is no {single}, and {index} cannot be read ({type(error).__name__})") from error
    missing = sorted(shards - names)
    if missing or not shards:
        raise ValueError(f"{index} names {missing[0] if missing else 'no file'!r:.80}, which is not there")
    return shards


def digest_of(path: Path, kind: str = "sha256") -> str:
    """ "sha256:…", or for `kind` "git" the id of a git blob with this content; shows its progress."""
    size_bytes = path.stat().st_size
    hasher = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % size_bytes)
    with path.open("rb") as stream, ByteProgress(f"checking {path.name}", size_bytes) as progress:
        while chunk := stream.read(_CHUNK_BYTES):
            hasher.update(chunk)
            progress.add(len(chunk))
    return f"{kind}:{hasher.hexdigest()}"


def difference(path: Path, file: ModelFile) -> str:
    """How a file on the disk differs from the file that the commit names, in words; "" where they are the same."""
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes:
        return f"{file.name} has {size_bytes:,} bytes, the commit's has {file.size_bytes:,}"
    digest = digest_of(path, file.digest.partition(":")[0])
    return "" if digest == file.digest else f"{file.name} has {_short(digest)}, the commit's has {_short(file.digest)}"


def _short(digest: str) -> str:
    kind, _, digits = digest.partition(":")
    return f"{kind} {digits[:16]}…"


def weights_sha256(files: Iterable[ModelFile]) -> str:
    """64 hex digits over the names and digests of all weight files."""
    return files_sha256(file for file in files if is_weights(file.name))


def files_sha256(files: Iterable[ModelFile]) -> str:
    """64 hex digits over the names and digests of all files."""
    lines = sorted(f"{file.digest}  {file.name}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
