"""The policy above the bare client: what is tried again, how soon, and for how long."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from edgefront.agents.server.client import retryable
from edgefront.core.errors import EdgefrontError

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with full jitter: the n-th pause is uniform between 0 and min(cap, base·2ⁿ) seconds.

    A server that says Retry-After is not asked sooner. No new try begins later than `total_s` after the first (None:
    it never gives up).
    """

    base_s: float = 0.5
    cap_s: float = 30.0
    total_s: float | None = None

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row (1 or more)."""
        bound = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 32))
        return random.uniform(0.0, bound)  # noqa: S311 - spreads agents out, guards nothing

    async def run(self, what: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call until it succeeds, and raise what is not worth another try, or the last error when time is up."""
        begun, failures = time.monotonic(), 0
        while True:
            try:
                answer = await call()
            except EdgefrontError as error:
                failures += 1
                if not retryable(error):
                    raise
                pause = max(self.pause_s(failures), float(error.extra.get("retry_after_s", 0.0)))
                away = time.monotonic() - begun
                if self.total_s is not None and away + pause > self.total_s:
                    raise
                _tell(what, error, failures, away, pause)
                await asyncio.sleep(pause)
            else:
                if failures:
                    _log.info("%s: the server is available again after %.0f s", what, time.monotonic() - begun)
                return answer


def _tell(what: str, error: EdgefrontError, failures: int, away_s: float, pause_s: float) -> None:
    # A line for the first failure, then for each doubling: an outage of a day is not a thousand lines.
    if failures & (failures - 1) == 0:
        _log.warning("%s: %s (try %d, for %.0f s now); again in %.1f s", what, error, failures, away_s, pause_s)


FOREVER = RetryPolicy()
"""Leases, reports, enrolment: the agent waits for its server as long as it takes."""
BRIEF = RetryPolicy(base_s=0.2, cap_s=2.0, total_s=8.0)
"""Words that lose their point when they come late: the start of a launch, giving back on the way out."""
