"""Another machine's clock, carried on by this one's."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

KEPT_S = 1.0
"""So long an answer is carried on before the clock is asked anew."""

SLEPT_S = 0.05
"""A difference between this machine's two clocks that says that it slept, or was set: the answer is then too old."""


class Clock:
    """What the other clock said last, and when. Threads may share it: each sees one answer or another, whole."""

    def __init__(self) -> None:
        self._said: tuple[datetime, float, float] | None = None

    def set(self, now: datetime) -> None:
        """It has just said this."""
        self._said = (now, time.monotonic(), time.time())

    def now(self) -> datetime | None:
        """What it says now; None if it has to be asked."""
        said = self._said
        if said is None:
            return None
        passed = time.monotonic() - said[1]
        if passed > KEPT_S or abs(time.time() - said[2] - passed) > SLEPT_S:
            return None
        return said[0] + timedelta(seconds=passed)
