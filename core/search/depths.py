"""Which depths of the stock model are measured, where the best model within limits is wanted.

Wanted is the deepest one within the limits. The shallowest and the fifth say what a layer costs; from there on the next
is where the costs that were measured, continued linearly, meet a limit, until two neighbours lie on its two sides.
Deeper ones are slower and larger, so few launches find it among thirty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgefront.core.search.interface import Times
from edgefront.core.search.problem import Problem
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import Goal

MOST_DEPTHS = 5
"""Depths that are measured at most, where the best model within limits is wanted."""
SECOND = 4
"""Place of the depth that is measured beside the shallowest: so many layers more say what one costs."""


@dataclass(frozen=True)
class Depth:
    """What is known of one depth after its launches; None: it was not measured."""

    blocks: int
    """Number of the model's blocks, which names the depth."""
    latency_ms: float | None = None
    memory_bytes: int | None = None
    times_ms: Times = field(default_factory=dict)
    """Times of a generation."""
    infeasible: bool = False
    """The device cannot run it."""

    def shares(self, problem: Problem) -> list[float] | None:
        """What it takes of each limit, as a share of that; None if it was not measured."""
        if self.latency_ms is None or self.memory_bytes is None:
            return None
        taken: list[tuple[float, float | None]] = [
            (self.latency_ms, problem.latency_ms),
            (float(self.memory_bytes), problem.memory_bytes),
        ]
        taken += [(self.times_ms.get(name, math.inf), limit) for name, limit in problem.times_ms.items()]
        return [value / limit for value, limit in taken if limit is not None]


def next_depths(measured: Sequence[Depth], every: Sequence[Architecture], problem: Problem) -> Sequence[Architecture]:
    """The depths to measure next, of `every` by rising depth; none where those that were measured say enough. All at
    once unless the best within limits is wanted.
    """
    if problem.goal != Goal.BEST_WITHIN_LIMITS:
        return () if measured else every
    if not measured:
        return [every[place] for place in sorted({0, min(SECOND, len(every) - 1)})]
    places = {len(architecture.blocks): place for place, architecture in enumerate(every)}
    known = {places[depth.blocks]: depth.shares(problem) for depth in measured}
    beyond = [place for place, shares in known.items() if shares is not None and max(shares, default=0.0) > 1.0]
    beyond += [places[depth.blocks] for depth in measured if depth.infeasible]
    high = min(beyond, default=len(every))
    low = max((place for place, shares in known.items() if shares is not None and place < high), default=-1)
    between = [place for place in range(low + 1, high) if place not in known]
    if not between or len(known) >= MOST_DEPTHS:
        return ()
    rows = {place: shares for place, shares in known.items() if shares is not None}
    guess = _deepest_within(rows, low, high, len(every)) if len(rows) > 1 else (low + high) // 2
    return [every[min(between, key=lambda place: (abs(place - guess), place))]]


def _deepest_within(rows: Mapping[int, Sequence[float]], low: int, high: int, count: int) -> int:
    """Where a line through the two measured places nearest to the limits says that the last one within them is."""
    first, second = sorted(sorted(rows, key=lambda place: (min(abs(place - low), abs(place - high)), place))[:2])
    last = count - 1
    for at, then in zip(rows[first], rows[second], strict=True):
        slope = (then - at) / (second - first)
        if slope > 0:
            last = min(last, first + math.floor((1.0 - at) / slope + 1e-9))
    return int(np.clip(last, 0, count - 1))
