"""The folder of a model: one writer at a time, and room on its disk."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from scripts.errors import KitError, PreflightError
from scripts.machine import locks, permissions

#: Errors of the folder, not of the kit.
OF_THE_FOLDER = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)


def make(root: Path) -> None:
    """Make the models' folder where it is missing. Raises KitError where that is impossible."""
    try:
        permissions.make(root)
    except OSError as error:
        raise not_written(root, error) from error


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within the block this process alone writes in a folder; others wait. Raises KitError where the folder cannot be written or is full."""
    try:
        permissions.make(folder)
        with locks.held(folder / ".lock", why=f"another process writes in {folder}"):
            yield
    except OSError as error:
        if error.errno not in OF_THE_FOLDER:
            raise
        if error.filename and not _is_around(Path(error.filename), folder):
            raise KitError(
                f"{error.filename} cannot be read ({error.strerror}); make it readable, or type MODEL_PATH= or HF_HOME= of another folder"
            ) from error
        raise not_written(folder, error) from error


def _is_around(path: Path, folder: Path) -> bool:
    """Does a path lie in a folder, or the folder in it?"""
    return path.is_relative_to(folder) or folder.is_relative_to(path)


def not_written(folder: Path, error: OSError) -> KitError:
    return KitError(f"the models' folder {folder} cannot be written ({error.strerror or error}); type MODELS=/another/folder")


def room_for(folder: Path, needed_bytes: int) -> None:
    """Raise PreflightError where a folder's disk has less than `needed_bytes` free."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        have = f"{needed_bytes / 1e9:.3g} GB are still to come, {free_bytes / 1e9:.3g} GB are free"
        raise PreflightError(f"{folder}: {have}; type MODELS=/another/disk")
