"""Runs of a machine whose clock was ahead: each stays the latest of its row, whatever is measured after it.

The note goes to whoever makes a report, and into no page: the same runs give the same report on any day.
"""

import datetime
from collections.abc import Sequence

from scripts.results.store import Record
from scripts.units import counted

#: The clocks of two machines may differ by so much, and a result may come to the other machine at once.
LEEWAY = datetime.timedelta(hours=1)


def note(records: Sequence[Record], now: datetime.datetime) -> str:
    """A line on the runs that began later than `now`, which has a time zone; "" where there are none."""
    ahead = sorted((record.host["started_at"], record.id) for record in records if _began(record) > now + LEEWAY)
    if not ahead:
        return ""
    began, first = ahead[0]
    others = f", and {counted(len(ahead) - 1, 'other run')} in the future too" if len(ahead) > 1 else ""
    told = f"note: {first} began at {began}{others}, and the time is now {now:%Y-%m-%dT%H:%M:%SZ}"
    told += ": this run stays the latest of its row, whatever is measured after it"
    return f"{told}; set the wrong clock, move the folder of each such run away, and measure again"


def _began(record: Record) -> datetime.datetime:
    return datetime.datetime.fromisoformat(record.host["started_at"])
