"""What the agent does again: requests, how soon and for how long, and the steps of its loops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, stop_never

from edgefront.agents.server.client import retryable
from edgefront.core.errors import EdgefrontError
from edgefront.core.http_client import pauses

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RetryPolicy:
    """Pauses of `core.http_client`. No attempt starts later than `total_s` after the first (None: unlimited)."""

    base_s: float = 0.5
    cap_s: float = 30.0
    total_s: float | None = None

    async def run(self, what: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Calls until it succeeds; raises permanent errors at once, or the last error when the time is up."""

        def log_failure(state: RetryCallState) -> None:
            # Logs the first failure, then at each doubling of the count, so that a long outage does not flood the log.
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
            before_sleep=log_failure,
            reraise=True,
        )
        answer: Answer = await retrying(attempt)
        if retrying.statistics["attempt_number"] > 1:
            _log.info("%s: the server is available again after %.0f s", what, time.monotonic() - begun)
        return answer


async def repeat(what: str, step: Callable[[], Awaitable[None]]) -> NoReturn:
    """Takes this step for ever. Errors of the server end it; any other is logged, and the next step follows a pause: an
    agent goes on after what nobody has foreseen.
    """
    while True:
        try:
            await step()
        except EdgefrontError:
            raise
        except Exception:
            _log.exception("%s failed; trying again in %.0f s", what, AFTER_FAILURE_S)
            await asyncio.sleep(AFTER_FAILURE_S)


AFTER_FAILURE_S = 5.0
FOREVER = RetryPolicy()
"""For leases, reports and enrolment: the agent waits for its server indefinitely."""
BRIEF = RetryPolicy(base_s=0.2, cap_s=2.0, total_s=8.0)
"""For requests that are useless when late: the start of a launch, returning launches at the end."""
