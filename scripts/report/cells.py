"""What several tables and plots show of a row, as words and numbers; "—" is a number that does not exist."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from scripts import stats
from scripts.report.text import Markdown
from scripts.units import GIB, counted
from scripts.verdicts.row import Row
from scripts.verdicts.row_groups import Group

Told = TypeVar("Told", bound=Hashable)

NONE = "—"
MARK = "†"
#: Beside the number of a row's runs, or a ratio of the row, where all of its runs were disturbed; the page of its setting gives the reasons.
DISTURBED = "disturbed"
DISTURBED_NOTE = Markdown(
    f"- *{DISTURBED}*: the machine was disturbed in each run of the row, so its time judges nothing and none of its runs counts; "
    "the setting's page gives the reason."
)


def gib(size_bytes: float | None, decimals: int = 2) -> str:
    return NONE if size_bytes is None else f"{size_bytes / GIB:.{decimals}f}"


def decimal(value: float | None, decimals: int) -> str:
    return NONE if value is None else f"{value:.{decimals}f}"


def significant(value: float | None) -> str:
    return NONE if value is None else stats.significant(value)


def percent(share: float | None) -> str:
    return NONE if share is None else stats.percent(share)


def beside(*parts: str) -> str:
    """Numbers of one cell, as "8.00 / 9.00"; one dash where there is none at all."""
    return NONE if set(parts) <= {NONE} else " / ".join(parts)


def mean_std(summary: stats.Summary) -> str:
    places = stats.decimals_of(summary)
    return stats.number(summary.mean, places) + (f" ± {stats.number(summary.std, places)}" if summary.n > 1 else "")


def published_mean_std(published: Mapping[str, Any]) -> str:
    """The article's own digits: both numbers with as many decimals as the longer of them has."""
    numbers = [published[name] for name in ("mean_ms", "std_ms") if name in published]
    places = max(len(str(value).partition(".")[2]) for value in numbers)
    return " ± ".join(f"{value:.{places}f}" for value in numbers)


def tokens(count: int) -> str:
    return counted(count, "new token")


def _device(of: str) -> str:
    return "CPU device" if of == "cpu" else "GPU"


def devices(group: Group) -> str:
    return f"{_device(group.key.device)}s"


def status(row: Row) -> Markdown:
    if row.status != "ok":
        return Markdown("**{}**").format(row.status)
    if not row.check:
        return Markdown("ok" if row.measured_without_calls or row.is_calibration else "ok, output not checked")
    return Markdown("ok" if row.output_is_right else "ran, **output FAILED**")


def runs(count: str, row: Row, new_tokens: int | None = None) -> str:
    """ "5", or "5, disturbed" where no run of the row, or none with calls of so many new tokens, is undisturbed."""
    return count if row.undisturbed(new_tokens) else f"{count}, {DISTURBED}"


def case(row: Row) -> str:
    """The case, marked where its environment differs from the pins: the note below the group's tables says where the differences are listed."""
    return row.name + (f" {MARK}" if row.differences else "")


def judged_case(row: Row) -> Markdown:
    """The case, marked where its output failed its check: for tables without a status column, whose numbers a reader would else compare."""
    return Markdown("{}, **output FAILED**" if row.output_is_wrong else "{}").format(case(row))


def on(row: Row) -> str:
    """ "deepspeed b8 on 2 GPUs": how lists name a row."""
    return f"{row.name} on {counted(row.count, _device(row.record.job.device))}"


def alike(told: Iterable[tuple[Told, Row]]) -> dict[Told, list[str]]:
    """{a fact: the rows that it is about, named as in lists}, in the order of the rows; empty facts are left out."""
    rows_of: dict[Told, list[str]] = {}
    for one, row in told:
        if one:
            rows_of.setdefault(one, []).append(on(row))
    return rows_of
