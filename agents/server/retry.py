"""The policy above the bare client: what is tried again, how soon, and for how long."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, stop_never

from edgefront.agents.server.client import retryable
from edgefront.core.retry import pauses

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RetryPolicy:
    """Pauses of `core.retry`. No new try begins later than `total_s` after the first (None: it never gives up)."""

    base_s: float = 0.5
    cap_s: float = 30.0
    total_s: float | None = None

    async def run(self, what: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call until it succeeds, and raise what is not worth another try, or the last error when time is up."""

        def tell(state: RetryCallState) -> None:
            # A line for the first failure, then for each doubling: an outage of a day is not a thousand lines.
            failures = state.attempt_number
            if failures & (failures - 1) == 0:
                error = state.outcome.exception() if state.outcome else None
                pause_s = state.next_action.sleep if state.next_action else 0.0
                away_s = time.monotonic() - begun
                _log.warning(
                    "%s: %s (attempt %d, failing for %.0f s); next attempt in %.1f s",
                    what,
                    error,
                    failures,
                    away_s,
                    pause_s,
                )

        async def attempt() -> Answer:  # tenacity awaits coroutine functions only, and `call` may be a lambda
            return await call()

        begun = time.monotonic()
        retrying = AsyncRetrying(
            retry=retry_if_exception(retryable),
            wait=pauses(self.base_s, self.cap_s),
            stop=stop_never if self.total_s is None else stop_before_delay(self.total_s),
            before_sleep=tell,
            reraise=True,
        )
        answer: Answer = await retrying(attempt)
        if retrying.statistics["attempt_number"] > 1:
            _log.info("%s: the server is available again after %.0f s", what, time.monotonic() - begun)
        return answer


FOREVER = RetryPolicy()
"""Leases, reports, enrolment: the agent waits for its server as long as it takes."""
BRIEF = RetryPolicy(base_s=0.2, cap_s=2.0, total_s=8.0)
"""Words that lose their point when they come late: the start of a launch, giving back on the way out."""
