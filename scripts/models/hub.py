"""Ask the hub, through its own client, for the files of a commit and for one file.

The client resumes a download within one process; the partial file that this module keeps lets a later process resume it.
The token stays in this process, and no message of this module contains it.
"""

import contextlib
import errno
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from bench.reasons import first_line
from scripts import surroundings
from scripts.errors import KitError, UsageError
from scripts.models.byte_progress import ByteProgress
from scripts.pins.models import ModelFile, is_commit

#: Seconds between tries where the hub is busy or broken.
WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0)

#: Where models come from unless HF_ENDPOINT names a mirror.
HUB = "https://huggingface.co"

#: HTTP statuses that pass: too many requests, and errors of the server.
PASSING = (408, 429, 500, 502, 503, 504)

#: The longest wait that the hub may order.
LONGEST_WAIT_S = 300.0

#: The longest name of a file or a folder: file systems take 255 bytes, and the kit's own endings need some of them.
LONGEST_NAME_BYTES = 240

Answer = TypeVar("Answer")


class CannotFetch(KitError):
    """The hub did not give the requested files."""


def files_of(name: str, revision: str) -> tuple[str, tuple[ModelFile, ...]]:
    """(commit, all its files) of a model's branch or commit. Raises CannotFetch, also where the hub answers with another commit."""
    from huggingface_hub import HfApi

    endpoint, token = surroundings.current().hub_endpoint or None, _token() or False

    def answer() -> tuple[str, tuple[ModelFile, ...]]:
        info = HfApi(endpoint=endpoint, token=token).model_info(name, revision=revision, files_metadata=True, timeout=30)
        return str(info.sha), tuple(_file_of(sibling) for sibling in info.siblings or ())

    commit, listed = _patiently(name, answer)
    if not is_commit(commit) or (is_commit(revision) and commit != revision):
        raise CannotFetch(f"{name}: the hub answered with commit {commit!r:.60}, allowed is {_allowed(revision)}; type HF_ENDPOINT= of another mirror")
    return commit, listed


def _allowed(revision: str) -> str:
    return f"the pinned {revision}" if is_commit(revision) else "40 hex digits"


def _token() -> str:
    """HF_TOKEN. Raises UsageError for a token that no HTTP header can carry: the client would quote the token in its own error."""
    token = surroundings.current().hub_token
    if not re.fullmatch("[!-~]*", token):
        raise UsageError("HF_TOKEN has a space, a line break or another character that no token has; type HF_TOKEN=hf_… with letters and digits alone")
    return token


def _file_of(sibling: Any) -> ModelFile:
    """A file as the hub lists it. ValueError for a name or a size that no file here can have."""
    name, size_bytes = sibling.rfilename, sibling.size or 0
    if not isinstance(name, str) or not name.isprintable() or max(len(part.encode()) for part in name.split("/")) > LONGEST_NAME_BYTES:
        raise ValueError(f"it lists a file with the name {name!r:.80}")
    if type(size_bytes) is not int or size_bytes < 0:
        raise ValueError(f"it lists {name:.80} with {size_bytes!r:.20} bytes")
    digest = f"sha256:{sibling.lfs.sha256}" if sibling.lfs else f"git:{sibling.blob_id}"
    return ModelFile(name, size_bytes, digest)


def download(name: str, commit: str, file: ModelFile, path: Path) -> None:
    """Fetch a file to `path`, continuing where an earlier try ended; `path` appears when all bytes have arrived. Raises CannotFetch."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils.tqdm import disable_progress_bars

    part, token = part_of(path), _token()
    url = hf_hub_url(name, file.name, revision=commit, endpoint=surroundings.current().hub_endpoint or None)
    headers = {"authorization": f"Bearer {token}"} if token else {}  # the client drops it where the hub redirects to another host
    disable_progress_bars()  # the kit shows its own

    def fetch_remaining() -> None:
        if part.exists() and part.stat().st_size > file.size_bytes:
            part.unlink()
        with part.open("ab", buffering=0) as stream:
            done_bytes = stream.seek(0, 2)
            with ByteProgress(f"fetching {file.name}", file.size_bytes, done_bytes) as progress:
                counted: Any = _Counted(stream, progress, file)
                http_get(url, counted, resume_size=done_bytes, headers=headers, expected_size=file.size_bytes, displayed_filename=file.name)

    _patiently(name, fetch_remaining)
    part.rename(path)


def part_of(path: Path) -> Path:
    """The path of a file until all its bytes have arrived."""
    return path.with_name(f".{path.name}.part")


class _Counted:
    """A file for writing that counts its bytes into a progress, and takes no more bytes than the hub lists: a response may have no end."""

    def __init__(self, stream: BinaryIO | Any, progress: ByteProgress, file: ModelFile) -> None:
        self.stream, self.progress, self.file = stream, progress, file

    def write(self, chunk: bytes) -> None:
        if self.tell() + len(chunk) > self.file.size_bytes:
            raise ValueError(f"it sends more than the {self.file.size_bytes:,} bytes of {self.file.name}")
        view = memoryview(chunk)
        while view:
            written = self.stream.write(view)
            self.progress.add(written)
            view = view[written:]

    def tell(self) -> int:
        return int(self.stream.tell())

    def seek(self, place: int) -> int:
        return int(self.stream.seek(place))

    def truncate(self) -> int:
        self.progress.add(self.tell() - self.progress.done_bytes)
        return int(self.stream.truncate())


def _patiently(name: str, request: Callable[[], Answer]) -> Answer:
    """The answer of `request`, tried again while the hub is busy; every failure becomes one line with the next command."""
    with _one_line(name):
        for wait_s in WAITS_S:
            try:
                return request()
            except Exception as error:
                wait_s = _wait_of(error, wait_s)
            print(f"  {name}: the hub is busy, trying again in {wait_s:.0f} s", file=sys.stderr, flush=True)
            time.sleep(wait_s)
        return request()


def _wait_of(error: Exception, usual_s: float) -> float:
    """Seconds to wait before another try; raises the error again where waiting cannot help."""
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(error, HfHubHTTPError) or error.response is None or error.response.status_code not in PASSING:
        raise error
    ordered = error.response.headers.get("Retry-After", "")
    return min(float(ordered), LONGEST_WAIT_S) if ordered.isdecimal() else usual_s


@contextlib.contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn every error of the hub's client and of the libraries below it into one line without the token."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except RevisionNotFoundError as error:
        raise CannotFetch(f"{name}: the hub no longer has the pinned commit; type MODEL_PATH=/folder of a copy, or WEIGHTS=random") from error
    except (GatedRepoError, RepositoryNotFoundError) as error:
        raise CannotFetch(_refused(name)) from error
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            raise CannotFetch(_refused(name)) from error
        raise CannotFetch(_failed(name, error)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the disk is full: scripts/models/place.py names its folder
        raise CannotFetch(_failed(name, error)) from error
    except Exception as error:
        raise CannotFetch(_failed(name, error)) from error


def _refused(name: str) -> str:
    known = "with a token of an account that accepted its licence" if surroundings.current().hub_token else "after accepting its licence on the hub"
    return f"{name} is gated or unknown to the hub; {known} type the same again with HF_TOKEN=…"


def _failed(name: str, error: Exception) -> str:
    cause = first_line(error)
    token = surroundings.current().hub_token
    cause = cause.replace(token, "HF_TOKEN") if token else cause
    words = f"{name} cannot be fetched from {surroundings.current().hub_endpoint or HUB} ({cause})"
    words = re.sub(r"//[^/\s]*@", "//…@", words)  # the password of a mirror's or a proxy's address
    return f"{words}; type the same again once it answers, or HF_ENDPOINT=https://… of a mirror, or WEIGHTS=random"
