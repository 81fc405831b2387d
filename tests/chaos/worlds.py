"""What surrounds a command: a small disk, a read-only disk, little memory, another clock. Each says what it needs, and heals before the next command."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.chaos.place import ROOT, Place, soon

MIB = 1 << 20

#: The smallest disk that the kit accepts has 64 MiB free.
DISK_BYTES = 80 * MIB

#: Enough for a runner and a guest, too little for a guest that eats.
MEMORY_BYTES = 400 * MIB

#: A disk that is still written to after so long does not become read-only any more.
READ_ONLY_WITHIN_S = 5.0

CGROUP_1, CGROUP_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class World:
    """An ordinary machine. `late`: its fault took until the command had ended."""

    late = False

    def __init__(self, place: Place) -> None:
        self.place = place

    def before(self) -> None:
        """In the process that becomes the command."""

    def strike(self) -> None:
        """The fault itself."""

    def heal(self) -> None:
        """As the user repairs it before the next command."""

    def end(self) -> None:
        """Nothing of it is left on this machine."""


def no_mounts() -> str:
    """Why this machine cannot mount, or ""; the campaign mounts in a namespace of its own."""
    return "" if os.geteuid() == 0 and shutil.which("unshare") and os.environ.get("CHAOS_OWN_MOUNTS") else "it needs root, to mount small disks"


class SmallDisk(World):
    """Results on a disk of their own, which fills up."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        _mount("-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", str(place.runs))

    def strike(self) -> None:
        with contextlib.suppress(OSError), (self.place.runs / ".filler").open("wb", buffering=0) as stream:
            while stream.write(b"\0" * MIB):
                pass
        with contextlib.suppress(OSError), (self.place.runs / ".filler").open("ab", buffering=0) as stream:
            while stream.write(b"\0"):
                pass

    def heal(self) -> None:
        (self.place.runs / ".filler").unlink(missing_ok=True)

    def end(self) -> None:
        _unmount(self.place.runs)


class ReadOnly(World):
    """Results on a disk that can be read only, from a moment on: what is open for writing stays so, all else is refused."""

    def strike(self) -> None:
        _mount("--bind", str(self.place.runs), str(self.place.runs))
        # The kernel refuses while a file of the new mount is open for writing; the kit's writes are short.
        self.late = not soon(lambda: _mounted("-o", "remount,bind,ro", str(self.place.runs)), READ_ONLY_WITHIN_S)

    def heal(self) -> None:
        _unmount(self.place.runs)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _mounted(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode == 0


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)


def no_memory_limit() -> str:
    usable = os.geteuid() == 0 and (CGROUP_1.is_dir() or "memory" in _text(CGROUP_2 / "cgroup.subtree_control"))
    return "" if usable else "it needs root and cgroups that limit memory"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class LittleMemory(World):
    """Runner and guest have little memory together, so that the kernel ends whoever takes most."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        version_1 = CGROUP_1.is_dir()
        self.group = (CGROUP_1 if version_1 else CGROUP_2) / f"chaos-{os.getpid()}-{place.folder.name}"
        self.group.mkdir()
        (self.group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(MEMORY_BYTES))

    def before(self) -> None:
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def heal(self) -> None:
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.group.rmdir()
                return
            self.place.end_processes()


def compiler() -> str:
    return shutil.which(os.environ.get("CC", "cc")) or ""


def no_clock() -> str:
    return "" if compiler() else "it needs a C compiler, for a clock that can be set"


def compile_clock(folder: Path) -> None:
    """Make the library that shifts a process's clock (tests/fakes/clock.c); OtherClock finds it in this folder."""
    OtherClock.shim = folder / "clock.so"
    subprocess.run([compiler(), "-shared", "-fPIC", "-o", OtherClock.shim, ROOT / "tests/fakes/clock.c", "-ldl"], check=True)


class OtherClock(World):
    """The clock of runner and guest is set at a moment; the monotonic clock goes on."""

    shim = Path("clock.so")

    def __init__(self, place: Place, shift_s: int) -> None:
        super().__init__(place)
        self.shift_s, self.file = shift_s, place.guest / "clock"
        settings = {"LD_PRELOAD": str(self.shim), "FAKE_CLOCK": str(self.file)}
        place.more |= settings
        place.write_interpreter(settings)

    def strike(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"{self.shift_s}\n")
        new.replace(self.file)


WorldOf = Callable[[Place], World]
