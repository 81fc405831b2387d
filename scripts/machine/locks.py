"""Locks that die with their holder: one file each, held by flock.

The locks of one user's containers lie in one folder per user. That folder lies in /tmp: logind empties XDG_RUNTIME_DIR when the
user logs out, even during a run. The lock of a shared resource lies beside the resource, and is FOR_EVERYBODY. The GPUs of a machine
are shared by its users, so their locks lie in one folder for everybody.
"""

import contextlib
import errno
import fcntl
import os
import platform
import pwd
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from scripts import surroundings
from scripts.errors import PreflightError, shown

#: File modes of a lock: another user can only try a lock whose file that user may open.
FOR_THIS_USER, FOR_EVERYBODY = 0o600, 0o666

#: The folder of the locks of GPUs. It is sticky, as /tmp is: nobody removes or replaces the lock of another user.
GPUS = Path("/tmp/llm-repro-gpus")

#: Its mode.
SHARED_FOLDER = 0o1777

#: What the file of each lock begins with.
SIGNATURE = "pid "

#: The bytes read of a holder's name, which is shorter: the file of another user may hold anything.
HOLDER_BYTES = 200

#: Flags to open a file that another user may have made: do not follow a link, do not wait for a pipe.
NEVER_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK

#: A sweep holds each lock for a moment; `take` waits this long before it calls a lock held.
MOMENT_S = 0.1

#: Mount options of Lustre and NFS that keep locks within one node.
LOCAL = ("localflock", "nolock", "local_lock=all", "local_lock=flock")

#: A blank, a tab, a line feed or a backslash in a field of /proc/mounts (getmntent(3)).
ESCAPED = re.compile(r"\\(040|011|012|134)")


def folder() -> Path:
    """The lock folder of this user, made where it is missing. Raises PreflightError where it belongs to another user."""
    path = surroundings.current().locks
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(f"the folder of locks {path} cannot be made ({error.strerror}); type KIT_LOCKS=/another/folder") from error
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise PreflightError(f"{path} belongs to somebody else; remove it, or type KIT_LOCKS=/another/folder")
    return path


def gpu_folder() -> Path:
    """The folder of the locks of GPUs, made where it is missing: KIT_LOCKS where it is typed, else one for all users. Raises PreflightError."""
    if surroundings.current().text("KIT_LOCKS"):
        return folder()
    if not GPUS.is_dir():
        made = Path(tempfile.mkdtemp(prefix=f".{GPUS.name}-", dir=GPUS.parent))
        made.chmod(SHARED_FOLDER)  # before it has its name: another user may need it at once
        try:
            made.rename(GPUS)
        except OSError:
            made.rmdir()  # another process was faster
    if not _is_shared():
        raise PreflightError(
            f"{GPUS}, where every user's runs lock their GPUs, is no folder of mode {SHARED_FOLDER:o}; remove it, or type KIT_LOCKS=/another/folder"
        )
    return GPUS


def _is_shared() -> bool:
    """Is GPUS a folder in which every user may make locks and nobody may remove another user's? A link does not count: it may lead to any folder."""
    try:
        mode = GPUS.lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(mode) and stat.S_IMODE(mode) & SHARED_FOLDER == SHARED_FOLDER


def take(path: Path, mode: int = FOR_THIS_USER) -> TextIO | None:
    """The open file of a lock, held until the file is closed; None where another process holds it.

    The file names its holder, for people. Raises OSError where the file cannot be made or its disk has no locks.
    """
    descriptor = _tried(path, mode, fcntl.LOCK_EX)
    return None if descriptor is None else _signed(descriptor)


def _tried(path: Path, mode: int, kind: int) -> int | None:
    """The descriptor of a lock that is held alone (LOCK_EX) or beside others (LOCK_SH); None where other processes prevent that for MOMENT_S."""
    deadline = time.monotonic() + MOMENT_S
    while True:
        descriptor = _open(path, mode)
        with contextlib.ExitStack() as closing:
            closing.callback(os.close, descriptor)
            if _hold(descriptor, path, kind):
                closing.pop_all()
                return descriptor
        if time.monotonic() > deadline:
            return None
        time.sleep(MOMENT_S / 10)


@contextlib.contextmanager
def held(path: Path, mode: int = FOR_EVERYBODY, why: str = "") -> Iterator[None]:
    """Wait for a lock and hold it within the block; its file is removed afterwards. Where another process holds it, `why` is told once."""
    while (lock := take(path, mode)) is None:
        why = _told(why, path)
        time.sleep(MOMENT_S)
    with lock:
        try:
            yield
        finally:
            remove(path)


@contextlib.contextmanager
def joined(path: Path, why: str = "") -> Iterator[None]:
    """Wait until no process holds a lock alone, then hold it beside others within the block; `taken_over` removes its file once nobody holds it."""
    while (descriptor := _tried(path, FOR_EVERYBODY, fcntl.LOCK_SH)) is None:
        why = _told(why, path)
        time.sleep(MOMENT_S)
    try:
        yield
    finally:
        os.close(descriptor)


def _told(why: str, path: Path) -> str:
    """Say why this process waits for a lock, unless `why` is ""; returns "", so that the caller says it only once."""
    if why:
        print(f"  {why} ({shown(holder(path))}); waiting for its end", file=sys.stderr, flush=True)
    return ""


@contextlib.contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a lock beside others within the block, so that `take` cannot take it.

    The block runs without the lock where the disk has no such locks, or where another process keeps the lock for longer than a moment.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            if (descriptor := _tried(path, FOR_EVERYBODY, fcntl.LOCK_SH)) is not None:
                held.callback(os.close, descriptor)
        yield


def refuse_local(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Raise PreflightError where the locks of a shared folder hold on this node alone: two nodes would then measure one run."""
    lines = mounts.read_text(errors="replace").splitlines()
    by_place = {Path(fields[1]): fields for fields in ([ESCAPED.sub(_unescaped, field) for field in line.split()] for line in lines)}
    real = Path(os.path.realpath(path))  # a home folder often has links to the shared disk
    fields = next((by_place[place] for place in (real, *real.parents) if place in by_place), None)
    local = sorted(set(LOCAL) & set(fields[3].split(","))) if fields else []
    if fields and local:
        raise PreflightError(
            f"{path} lies on {fields[1]} ({fields[2]}, {local[0]}), whose locks hold on one node alone; "
            "type RUNS= and MODELS= on a file system with locks for all nodes"
        )


def _unescaped(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))


def remove(path: Path) -> None:
    """Remove the file of a lock that this process holds. A process that waits for it notices, and makes a new file."""
    with contextlib.suppress(OSError):  # another user's file in a folder like /tmp
        path.unlink()


def holder(path: Path) -> str:
    """The holder of a lock that could not be taken, in words."""
    signed = b""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | NEVER_WAIT)
        try:
            signed = os.read(descriptor, HOLDER_BYTES)
        finally:
            os.close(descriptor)
    return " ".join(signed.decode("utf-8", errors="replace").split()) or "another process"


@contextlib.contextmanager
def taken_over(path: Path, mode: int = FOR_THIS_USER) -> Iterator[bool]:
    """Take over the lock of a dead process: it is held within the block, and its file is removed afterwards. False where a living one holds it."""
    lock = take(path, mode)
    if not lock:
        yield False
        return
    with lock:
        yield True
        remove(path)


def sweep() -> None:
    """Remove the locks that no living process holds. Other users' locks stay, and can be taken. Files that no holder has signed stay too:
    KIT_LOCKS may name a folder with a Cargo.lock."""
    of_gpus = GPUS.glob("*.lock") if _is_shared() else ()
    for path in (*folder().glob("*.lock"), *of_gpus):
        if holder(path).startswith(SIGNATURE):
            with contextlib.suppress(OSError), taken_over(path):
                pass


def _open(path: Path, mode: int) -> int:
    """A descriptor of a lock's file, made where it is missing. Raises OSError for a link, and for anything but a regular file with one name."""
    descriptor = _opened(path, mode)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:  # a second name may be that of any file, which `_signed` would overwrite
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file with one name", str(path))
    return descriptor


def _opened(path: Path, mode: int) -> int:
    while True:
        try:
            return os.open(path, os.O_RDWR | NEVER_WAIT)
        except PermissionError:
            return os.open(path, os.O_RDONLY | NEVER_WAIT)  # flock needs no permission to write
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)  # whatever the umask says
            return descriptor


def _hold(descriptor: int, path: Path, kind: int) -> bool:
    """Try to hold a lock; False where another process holds it or its holder has just removed the file."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False


def _signed(descriptor: int) -> TextIO:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    with contextlib.suppress(OSError):  # opened for reading only
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{SIGNATURE}{os.getpid()} of {user} on {platform.node()}".encode(), 0)
    return os.fdopen(descriptor, encoding="utf-8")
