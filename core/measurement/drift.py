"""Whether a device's anchor, a small fixed model that it measures regularly, has moved by more than its noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from edgefront.core.measurement.provider import PROCESSOR
from edgefront.core.statistics import robust_std

REFERENCE = 10
"""The first so many latencies say what is usual, so that a slow drift is not followed: their noise is that of all of
them, their middle that of the first half, so that a move among them is seen too. Where they scatter too much, the
latest so many say it.
"""
MIN_REFERENCE = 3
MIN_MOVE = math.log(1.15)
SPREADS = 4.0
MAX_NOISE = 0.25
"""Relative noise beyond which an anchor says nothing: it would have to move by a factor of 2.7 to be seen."""


def drift(history_ms: Sequence[float]) -> str | None:
    """How the latest of these latencies (ms, oldest first) differs from the usual one, as a sentence; None if it does
    not, by more than 15 % and four times their noise, or while too few are known. An anchor whose noise is too much to
    say anything is one that differs.
    """
    logs = [math.log(value) for value in history_ms]
    usual = logs[:-1][:REFERENCE]
    if len(usual) < MIN_REFERENCE:
        return None
    noise = _noise(logs[: REFERENCE + 1])
    if noise > MAX_NOISE:
        usual, noise = logs[:-1][-REFERENCE:], _noise(logs[-REFERENCE - 1 :])
    if noise > MAX_NOISE:
        low, high = (math.exp(bound) for bound in (min(usual), max(usual)))
        return f"the device's anchor varies too much: from {low:.4g} to {high:.4g} ms"
    latest, middle = logs[-1], statistics.median(usual[: max(MIN_REFERENCE, len(usual) // 2)])
    if abs(latest - middle) <= max(MIN_MOVE, SPREADS * _noise(usual)):
        return None
    return (
        f"the device's anchor takes {math.exp(latest - middle):.2f} times as long as it did: "
        f"{math.exp(latest):.4g} ms, usually {math.exp(middle):.4g} ms"
    )


def in_words(drifts: Mapping[str, str] | None) -> str | None:
    """How a device's anchor has moved on its processor and its accelerators, as a sentence; None if it has not.

    `drifts`: what `drift` said, by `Provider.hardware`.
    """
    texts = [
        text if hardware == PROCESSOR else f"on {hardware} {text}" for hardware, text in sorted((drifts or {}).items())
    ]
    return "; ".join(texts) or None


def _noise(logs: Sequence[float]) -> float:
    """Standard deviation of these logarithms, at least two, without what moves once or steadily: the lower of that of
    their distances from the middle and that of the steps from each to the next.
    """
    middle = statistics.median(logs)
    around = robust_std([value - middle for value in logs])
    steps = robust_std([after - before for before, after in pairwise(logs)])
    return min(around, steps / math.sqrt(2))
