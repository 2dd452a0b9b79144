"""Work that takes longer than an instant: in threads of its own, and bounded for each owner.

Planning a job, asking a predictor or building a model computes for up to seconds and holds no database connection
meanwhile. A few threads do it, so that short requests always find one; of these an owner gets all but one, so that
nobody waits for one who asks for much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from edgefront.core.errors import TooManyRequests

RETRY_AFTER_S = 2.0

Result = TypeVar("Result")


class SlowWork:
    """Runs slow work of requests. Used from the event loop only.

    Args:
        threads: how much runs at once. each: how much of one owner runs or waits at once; more is refused.
    """

    def __init__(self, threads: int, each: int) -> None:
        self.limiter = anyio.CapacityLimiter(threads)
        self._of_owner = max(1, threads - 1)
        self._each = each
        self._accepted: Counter[str] = Counter()
        self._running: dict[str, anyio.CapacityLimiter] = {}

    async def run(self, owner: str, work: Callable[[], Result]) -> Result:
        """The result of `work`, which is called in a thread; `TooManyRequests` if the owner has as much under way."""
        if self._accepted[owner] >= self._each:
            raise TooManyRequests(
                f"{self._each} requests of {owner!r} that take seconds are under way, as many as one owner may have: "
                "send the next when one of them is answered",
                retry_after_s=RETRY_AFTER_S,
            )
        self._accepted[owner] += 1
        running = self._running.setdefault(owner, anyio.CapacityLimiter(self._of_owner))
        try:
            async with running:
                return await anyio.to_thread.run_sync(work, limiter=self.limiter)
        finally:
            self._accepted[owner] -= 1
            if not self._accepted[owner]:
                del self._accepted[owner], self._running[owner]
