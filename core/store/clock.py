"""The database's clock, extrapolated by this machine's; and stored times, after that clock was set back.

Whatever waits for a stored time compares by `over`: a time further ahead than it can have been set is from
before the clock was set back. Otherwise the wait would last as long as the clock was moved.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_

KEPT_S = 1.0
"""Seconds for which an answer is extrapolated before the clock is queried again."""

SLEPT_S = 0.05
"""A difference in seconds between this machine's monotonic and wall clock that means that it slept or was set: the
answer is then too old."""

MAX_TTL = timedelta(hours=1)
"""The most that a lease is extended at once (settings `leases.ttl_s`, `training.ttl_s`)."""
MARGIN = timedelta(seconds=10)
"""The clocks of two processes differ by less."""


def over(end: Any, now: datetime, longest: timedelta) -> ColumnElement[bool]:
    """Whether a wait that was stored by its end is over. `longest`: the most that an end is ever ahead."""
    return or_(end <= now, end > now + longest + MARGIN)


def is_ahead(stored: datetime, now: datetime) -> bool:
    """Whether a stored time of the past is ahead of the clock, which was set back since."""
    return stored > now + MARGIN


def between(column: Any, start: datetime, now: datetime) -> ColumnElement[bool]:
    """Whether a stored time is later than `start`, and not ahead of the clock."""
    return and_(column > start, column <= now + MARGIN)


def elapsed_s(since: datetime, now: datetime) -> float:
    """Seconds since a stored time; infinitely many since one that is ahead of the clock."""
    seconds = (now - since).total_seconds()
    return seconds if seconds > -MARGIN.total_seconds() else float("inf")


class Clock:
    """The last answer of the other clock, and when it came. Thread-safe: each thread sees a consistent answer."""

    def __init__(self) -> None:
        self._said: tuple[datetime, float, float] | None = None

    def set(self, now: datetime) -> None:
        """Stores a new answer."""
        self._said = (now, time.monotonic(), time.time())

    def now(self) -> datetime | None:
        """The extrapolated time; None if the clock has to be queried."""
        said = self._said
        if said is None:
            return None
        passed = time.monotonic() - said[1]
        if passed > KEPT_S or abs(time.time() - said[2] - passed) > SLEPT_S:
            return None
        return said[0] + timedelta(seconds=passed)
