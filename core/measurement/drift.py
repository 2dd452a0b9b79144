"""Whether a device's anchor, a small fixed model that it measures regularly, has moved by more than its noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from edgefront.core.statistics import robust_std

REFERENCE, MIN_REFERENCE = 10, 3
"""The first so many latencies, of which there are at least so few, say what is usual, so that a slow drift is not
followed: their noise is that of all of them, their middle that of the first half, so that a move among them is seen.
"""
MOVED = 3
"""Latencies in a row that have to be off: one or two may have been disturbed."""
MIN_MOVE, SPREADS = math.log(1.15), 4.0


def drift(history_ms: Sequence[float]) -> str | None:
    """How the last `MOVED` of these latencies (ms, oldest first) differ from the usual one, as a sentence. None if they
    do not, all to one side by more than 15 % and four times the noise, or while too few are known.
    """
    logs = [math.log(value) for value in history_ms]
    usual, latest = logs[:-MOVED][:REFERENCE], logs[-MOVED:]
    if len(usual) < MIN_REFERENCE:
        return None
    middle = statistics.median(usual[: max(MIN_REFERENCE, len(usual) // 2)])
    most = max(MIN_MOVE, SPREADS * _noise(usual))
    if not (min(latest) - middle > most or middle - max(latest) > most):
        return None
    now = statistics.median(latest)
    return (
        f"its anchor takes {math.exp(now - middle):.2f} times as long as it did, {MOVED} times in a row: "
        f"{math.exp(now):.4g} ms, usually {math.exp(middle):.4g} ms"
    )


def _noise(logs: Sequence[float]) -> float:
    """Standard deviation of these logarithms, at least two, without what moves once or steadily: the lower of that of
    their distances from the middle and that of the steps from each to the next.
    """
    middle = statistics.median(logs)
    around = robust_std([value - middle for value in logs])
    steps = robust_std([after - before for before, after in pairwise(logs)])
    return min(around, steps / math.sqrt(2))
