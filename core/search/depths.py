"""Root search for the deepest stock model within the limits, by few measurements because cost rises with depth.

1. Measure the shallowest and the fifth depth. The two measurements give the cost of a layer.
2. Extrapolate linearly from the two measured depths nearest to the limits. Measure the deepest depth that is predicted
   to be within the limits.
3. Stop when two neighbouring depths bracket the limits, or after `MAX_DEPTHS` depths.
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

MAX_DEPTHS = 5
"""Maximum number of measured depths before a search for the best model within limits."""
MAX_DEPTHS_AT_END = 8
"""Maximum number of measured depths after the search, when repeated launches may have moved a depth across a limit."""
SECOND = 4
"""Index of the second depth to measure, after the shallowest (index 0)."""


@dataclass(frozen=True)
class Depth:
    """Measured figures of the stock model with a certain number of blocks; None for a figure that is not measured."""

    blocks: int
    """Number of blocks; identifies the depth."""
    latency_ms: float | None = None
    memory_bytes: int | None = None
    times_ms: Times = field(default_factory=dict)
    """Times of a text generation, in ms, by name."""
    infeasible: bool = False
    """Whether the device cannot run the stock model with this depth."""

    def shares(self, problem: Problem) -> list[float] | None:
        """Each limited figure divided by its limit; None if the depth is not measured."""
        if self.latency_ms is None or self.memory_bytes is None:
            return None
        taken: list[tuple[float, float | None]] = [
            (self.latency_ms, problem.latency_ms),
            (float(self.memory_bytes), problem.memory_bytes),
        ]
        taken += [(self.times_ms.get(name, math.inf), limit) for name, limit in problem.times_ms.items()]
        return [value / limit for value, limit in taken if limit is not None]


def next_depths(
    measured: Sequence[Depth], stock: Sequence[Architecture], problem: Problem, most: int = MAX_DEPTHS
) -> Sequence[Architecture]:
    """Returns the stock models to measure next, a part of `stock` (in order of depth). Returns all that are unmeasured
    unless the goal is the best model within limits. Empty when the search has converged or `most` depths are measured.
    """
    if problem.goal != Goal.BEST_WITHIN_LIMITS:
        measured_blocks = {depth.blocks for depth in measured}
        return [model for model in stock if len(model.blocks) not in measured_blocks]
    if not measured:
        return [stock[index] for index in sorted({0, min(SECOND, len(stock) - 1)})]
    between, guess = _bracket(measured, stock, problem)
    if not between or len(measured) >= most:
        return ()
    wanted = (between[0] + between[-1]) // 2 if guess is None else guess
    return [stock[min(between, key=lambda index: (abs(index - wanted), index))]]


def predicted_within(measured: Sequence[Depth], stock: Sequence[Architecture], problem: Problem) -> Architecture | None:
    """Returns the deepest unmeasured stock model predicted to be within the limits, if deeper than every measured stock
    model within the limits. Otherwise, or with fewer than two measured depths, returns None.
    """
    between, guess = _bracket(measured, stock, problem)
    within = [index for index in between if guess is not None and index <= guess]
    return stock[within[-1]] if within else None


def _bracket(
    measured: Sequence[Depth], stock: Sequence[Architecture], problem: Problem
) -> tuple[list[int], int | None]:
    """Returns a pair: the indices of the unmeasured depths between the deepest measured depth within the limits and the
    first measured depth beyond the limits; and the predicted index of the deepest depth within the limits, or None.
    """
    indices = {len(architecture.blocks): index for index, architecture in enumerate(stock)}
    tried = {indices[depth.blocks]: depth for depth in measured if depth.blocks in indices}
    shares = {index: taken for index, depth in tried.items() if (taken := depth.shares(problem)) is not None}
    beyond = {index for index, depth in tried.items() if depth.infeasible}
    beyond |= {index for index, taken in shares.items() if max(taken, default=0.0) > 1.0}
    low = max((index for index in shares if index not in beyond), default=-1)
    high = min((index for index in beyond if index > low), default=len(stock))
    guess = _deepest_within(shares, low, high, len(stock)) if len(shares) > 1 else None
    return [index for index in range(low + 1, high) if index not in tried], guess


def _deepest_within(shares: Mapping[int, Sequence[float]], low: int, high: int, count: int) -> int:
    """Predicted index of the deepest depth within the limits, by the line through the two measured depths nearest to
    `low` or `high` (bracket). `shares`: index of a depth → each figure divided by its limit. `count` is the number of
    depths.
    """
    first, second = sorted(sorted(shares, key=lambda index: (min(abs(index - low), abs(index - high)), index))[:2])
    last = count - 1
    for at, then in zip(shares[first], shares[second], strict=True):
        slope = (then - at) / (second - first)
        if slope > 0:
            last = min(last, first + math.floor((1.0 - at) / slope + 1e-9))
    return int(np.clip(last, 0, count - 1))
