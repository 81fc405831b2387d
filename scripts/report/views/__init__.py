"""The tables and sections of the report: one figure per file."""

from scripts.report.view import View
from scripts.report.views import (
    around,
    energy,
    fusion,
    kv_cache,
    limits,
    memory,
    padding,
    parts,
    rate,
    scaling,
    schedules,
    texts,
    times,
    token_table,
    token_times,
    workload,
)

#: The figures of a group's section, in order.
VIEWS: tuple[View, ...] = (
    texts.VIEW,
    rate.VIEW,
    workload.VIEW,
    padding.VIEW,
    token_table.VIEW,
    times.VIEW,
    around.VIEW,
    memory.VIEW,
    limits.VIEW,
    token_times.VIEW,
    energy.VIEW,
    fusion.VIEW,
    schedules.VIEW,
    kv_cache.VIEW,
    scaling.VIEW,
    parts.VIEW,
)
