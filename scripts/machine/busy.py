"""The share of a window in which at least one kernel ran on a GPU, by NVML's utilisation.

A row with a small share waits for its host, so it compares hosts. A large share says less: a kernel that waits for another GPU counts as well. Codes:

    ok           the number counts
    no-reading   this driver or this GPU does not tell it
    too-short    fewer than LEAST_SAMPLES samples lie in the window, later than REACHES_BACK_S after its begin

NVML tells the share of a period that ended with the sample and began up to a second before it
(https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html).
"""

import statistics
from collections.abc import Sequence
from typing import Any

REACHES_BACK_S = 1.0
LEAST_SAMPLES = 5


def of_window(readings: Sequence[tuple[float, float | None]], began: float, ended: float) -> dict[str, Any]:
    """{code, samples} of a window in seconds since the epoch, and {share} from 0 to 1 where it counts; `readings` are (moment, per cent)."""
    known = [(moment, percent) for moment, percent in readings if percent is not None]
    within = [percent for moment, percent in known if began + REACHES_BACK_S <= moment <= ended]
    if not known:
        return {"code": "no-reading", "samples": 0}
    if len(within) < LEAST_SAMPLES:
        return {"code": "too-short", "samples": len(within)}
    return {"code": "ok", "samples": len(within), "share": statistics.fmean(within) / 100}
