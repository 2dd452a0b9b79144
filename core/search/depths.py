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

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.states import Goal
from edgefront.core.search.interface import Times
from edgefront.core.search.problem import Problem

MOST_DEPTHS = 5
"""Depths that are measured at most before the search, where the best model within limits is wanted."""
MOST_AT_END = 8
"""And after it: further launches may have moved a depth across a limit."""
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


def next_depths(
    measured: Sequence[Depth], every: Sequence[Architecture], problem: Problem, most: int = MOST_DEPTHS
) -> Sequence[Architecture]:
    """The depths to measure next, of `every` by rising depth; none where those that were measured say enough, or are
    `most`. All at once unless the best within limits is wanted.
    """
    if problem.goal != Goal.BEST_WITHIN_LIMITS:
        return () if measured else every
    if not measured:
        return [every[place] for place in sorted({0, min(SECOND, len(every) - 1)})]
    between, guess = _bracket(measured, every, problem)
    if not between or len(measured) >= most:
        return ()
    wanted = (between[0] + between[-1]) // 2 if guess is None else guess
    return [every[min(between, key=lambda place: (abs(place - wanted), place))]]


def predicted_within(measured: Sequence[Depth], every: Sequence[Architecture], problem: Problem) -> Architecture | None:
    """The deepest unmeasured one, deeper than all measured ones within the limits, that is predicted to be within them.
    None where there is none, or fewer than two measured depths say nothing of it.
    """
    between, guess = _bracket(measured, every, problem)
    within = [place for place in between if guess is not None and place <= guess]
    return every[within[-1]] if within else None


def _bracket(
    measured: Sequence[Depth], every: Sequence[Architecture], problem: Problem
) -> tuple[list[int], int | None]:
    """The unmeasured depths between the deepest measured one within the limits and the first beyond them, and where the
    measured costs, continued linearly, say that the deepest one within the limits is.
    """
    places = {len(architecture.blocks): place for place, architecture in enumerate(every)}
    known = {places[depth.blocks]: depth.shares(problem) for depth in measured if depth.blocks in places}
    beyond = [places[depth.blocks] for depth in measured if depth.infeasible and depth.blocks in places]
    beyond += [place for place, shares in known.items() if shares is not None and max(shares, default=0.0) > 1.0]
    low = max((place for place, shares in known.items() if shares is not None and place not in beyond), default=-1)
    high = min((place for place in beyond if place > low), default=len(every))
    rows = {place: shares for place, shares in known.items() if shares is not None}
    guess = _deepest_within(rows, low, high, len(every)) if len(rows) > 1 else None
    return [place for place in range(low + 1, high) if place not in known], guess


def _deepest_within(rows: Mapping[int, Sequence[float]], low: int, high: int, count: int) -> int:
    """Where a line through the two measured places nearest to the limits says that the last one within them is."""
    first, second = sorted(sorted(rows, key=lambda place: (min(abs(place - low), abs(place - high)), place))[:2])
    last = count - 1
    for at, then in zip(rows[first], rows[second], strict=True):
        slope = (then - at) / (second - first)
        if slope > 0:
            last = min(last, first + math.floor((1.0 - at) / slope + 1e-9))
    return int(np.clip(last, 0, count - 1))
