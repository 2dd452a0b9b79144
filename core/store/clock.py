"""The database's clock, extrapolated by this machine's."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

KEPT_S = 1.0
"""Seconds for which an answer is extrapolated before the clock is queried again."""

SLEPT_S = 0.05
"""A difference in seconds between this machine's monotonic and wall clock that means that it slept or was set: the
answer is then too old."""


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
