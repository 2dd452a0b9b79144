"""When to ask a server again. What is worth another try, and for how long, is for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenacity import RetryCallState, wait_random_exponential

from edgefront.core.errors import EdgefrontError

_MAX_S = 3600.0


def pauses(base_s: float, cap_s: float) -> Callable[[RetryCallState], float]:
    """tenacity's `wait`: exponential back-off with full jitter, never shorter than the server's Retry-After.

    The n-th pause is uniform between 0 and min(cap, base·2ⁿ) seconds; an error's `retry_after_s` bounds it from below.
    """
    jitter = wait_random_exponential(multiplier=base_s, max=cap_s)

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.extra.get("retry_after_s") if isinstance(error, EdgefrontError) else None
        return max(jitter(state), asked) if isinstance(asked, (int, float)) else jitter(state)

    return pause


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds of a server's Retry-After, at most an hour; None without one, and for a date, which our server never
    sends.
    """
    try:
        return min(_MAX_S, max(0.0, float(headers["retry-after"])))
    except (KeyError, ValueError):
        return None
