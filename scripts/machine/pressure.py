"""How long tasks of this machine waited for memory or for a core: the kernel's pressure stall information.

https://docs.kernel.org/accounting/psi.html: `total` of the line `some` is the time in µs in which at least one task waited.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

FOLDER = Path("/proc/pressure")

#: What is read; the kernel has a file for each.
KINDS = ("memory", "cpu")


def waited_us(kind: str, folder: Path) -> int | None:
    """µs since the machine started in which some task waited; None where the kernel does not give it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        some = next((line for line in (folder / kind).read_text().splitlines() if line.startswith("some ")), "")
        return int(some.rpartition("total=")[2])
    return None


class Watch:
    """Looks at the pressure as long as a `with` block lasts, from a thread of this process; a look reads two small files."""

    def __init__(self, folder: Path = FOLDER, *, interval_s: float) -> None:
        self._folder, self._interval_s = folder, interval_s
        self._looks: list[tuple[float, dict[str, int | None]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pressure", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        self._looks.append((time.time(), {kind: waited_us(kind, self._folder) for kind in KINDS}))

    def shares(self, window: Sequence[float] | None) -> dict[str, float | None]:
        """{kind: share of the time in which some task waited}, between the looks around a window of seconds since the epoch; None for the whole block."""
        began, ended = window or (self._looks[0][0], self._looks[-1][0])
        first = max((look for look in self._looks if look[0] <= began), key=lambda look: look[0], default=self._looks[0])
        last = min((look for look in self._looks if look[0] >= ended), key=lambda look: look[0], default=self._looks[-1])
        return {kind: _share(first[1][kind], last[1][kind], last[0] - first[0]) for kind in KINDS}


def _share(before_us: int | None, after_us: int | None, seconds: float) -> float | None:
    if before_us is None or after_us is None or seconds <= 0:
        return None
    return round(max(0, after_us - before_us) / 1e6 / seconds, 4)
