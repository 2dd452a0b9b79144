"""Work that takes longer than an instant: in threads of its own, and bounded for each owner.

Planning a job, asking a predictor or building a model computes for up to seconds and holds no database connection
meanwhile. A few threads do it, so that short requests always find one; of these an owner gets all but one, so that
nobody waits for one who asks for much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import Response
from pydantic import BaseModel

from edgefront.api.http.concurrency import Queues
from edgefront.api.http.file_responses import send_view
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
        self._queues = Queues()

    async def run(self, owner: str, work: Callable[[], Result]) -> Result:
        """The result of `work`, which is called in a thread; `TooManyRequests` if the owner has as much under way."""
        with self.under_way(owner):
            async with self._queues.turn(owner, self._of_owner):
                return await anyio.to_thread.run_sync(work, limiter=self.limiter)

    @contextmanager
    def under_way(self, owner: str) -> Iterator[None]:
        """Counts as one of the owner's until it ends; `TooManyRequests` if there are as many as one may have."""
        if self._accepted[owner] >= self._each:
            raise TooManyRequests(
                f"{self._each} requests of {owner!r} that take seconds are under way, as many as one owner may have: "
                "send the next when one of them is answered",
                retry_after_s=RETRY_AFTER_S,
            )
        self._accepted[owner] += 1
        try:
            yield
        finally:
            self._accepted[owner] -= 1
            if not self._accepted[owner]:
                del self._accepted[owner]

    async def answer(self, owner: str, work: Callable[[], BaseModel]) -> Response:
        """What `work` returns as JSON, which is made in the same thread: to encode a large answer takes long too."""
        return await self.run(owner, lambda: send_view(work()))
