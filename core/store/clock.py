"""The database's clock, extrapolated with this machine's clock. Stored times stay comparable after a clock is set back.

Code that waits until a stored time checks `over`. A stored time further ahead than any wait was stored before the clock
was set back, so `over` reports that wait as finished.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_

KEPT_S = 1.0
"""Seconds for which a database time is extrapolated before the clock is queried again."""

SLEPT_S = 0.05
"""Difference in seconds between this machine's monotonic and wall clock above which the database's clock is queried
again, because the machine slept or its clock was set."""

MAX_TTL = timedelta(hours=1)
"""Maximum extension of a lease (settings `leases.ttl_s`, `training.ttl_s`)."""
MARGIN = timedelta(seconds=10)
"""Upper bound of the difference between the clocks of two processes."""


def over(end: Any, now: datetime, longest: timedelta) -> ColumnElement[bool]:
    """SQL condition that a wait with a stored end is over. `longest` is the maximum duration of the wait."""
    return or_(end <= now, end > now + longest + MARGIN)


def is_ahead(stored: datetime, now: datetime) -> bool:
    """Whether a stored past time is ahead of the clock, because the clock was set back since."""
    return stored > now + MARGIN


def between(column: Any, start: datetime, now: datetime) -> ColumnElement[bool]:
    """SQL condition that a stored time is after `start` and not ahead of the clock."""
    return and_(column > start, column <= now + MARGIN)


def elapsed_s(since: datetime, now: datetime) -> float:
    """Seconds since a stored time; infinite for a time ahead of the clock."""
    seconds = (now - since).total_seconds()
    return seconds if seconds > -MARGIN.total_seconds() else float("inf")


class Clock:
    """The latest time read from the database's clock, and the time of this reading. Thread-safe."""

    def __init__(self) -> None:
        self._read: tuple[datetime, float, float] | None = None

    def set(self, now: datetime) -> None:
        """Stores a time that was read from the database's clock."""
        self._read = (now, time.monotonic(), time.time())

    def now(self) -> datetime | None:
        """Returns the extrapolated time; None if the clock must be queried."""
        read = self._read
        if read is None:
            return None
        passed = time.monotonic() - read[1]
        if passed > KEPT_S or abs(time.time() - read[2] - passed) > SLEPT_S:
            return None
        return read[0] + timedelta(seconds=passed)
