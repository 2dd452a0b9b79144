"""Whether a device's anchor, a small fixed model that it measures regularly, has moved by more than its noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

REFERENCE = 10
"""The first so many latencies say what is usual, so that a slow drift is not followed."""
LEAST_REFERENCE = 3
LEAST_MOVE = math.log(1.15)
SPREADS = 4.0
_TO_DEVIATION = 1.4826


def drift(history_ms: Sequence[float]) -> str | None:
    """How the latest of these latencies (ms, oldest first) differs from the usual one, as a sentence; None if it does
    not, by more than 15 % and four times their spread, or while too few are known.
    """
    if not history_ms:
        return None
    *before, latest = [math.log(value) for value in history_ms]
    usual = before[:REFERENCE]
    if len(usual) < LEAST_REFERENCE:
        return None
    middle = statistics.median(usual)
    spread = _TO_DEVIATION * statistics.median(abs(value - middle) for value in usual)
    if abs(latest - middle) <= max(LEAST_MOVE, SPREADS * spread):
        return None
    return (
        f"the device's anchor takes {math.exp(latest - middle):.2f} times as long as it did: "
        f"{math.exp(latest):.4g} ms, usually {math.exp(middle):.4g} ms"
    )
