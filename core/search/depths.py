"""Which depths of the stock model are measured, where the best model within limits is wanted.

From the shallowest on: next are those that are predicted to be within the limits, or one if none is, until one is
beyond them. Deeper ones are slower and larger, so the largest stock model within the limits is among those measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefront.core.search.problem import Problem
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import Goal

FIRST = 2
"""Depths that are measured first: as many as say what one more costs."""


@dataclass(frozen=True)
class Depth:
    """What is known of one depth after its launches; None: it was not measured."""

    latency_ms: float | None = None
    latency_half_width_ms: float | None = None
    memory_bytes: int | None = None
    infeasible: bool = False
    """The device cannot run it."""

    def beyond(self, problem: Problem) -> bool:
        """Whether it is beyond a limit by more than the interval of its latency."""
        if self.latency_ms is None or self.memory_bytes is None:
            return self.infeasible
        low = self.latency_ms - (self.latency_half_width_ms or 0.0)
        slow = problem.latency_ms is not None and low > problem.latency_ms
        return slow or (problem.memory_bytes is not None and self.memory_bytes > problem.memory_bytes)


def complete(measured: Sequence[Depth], count: int, problem: Problem) -> bool:
    """Whether no more of `count` depths are measured, `known` being the shallowest."""
    if problem.goal != Goal.BEST_WITHIN_LIMITS:
        return bool(measured)
    return len(measured) >= count or any(depth.beyond(problem) for depth in measured)


def next_depths(measured: Sequence[Depth], every: Sequence[Architecture], problem: Problem) -> Sequence[Architecture]:
    """The depths to measure next, of `every` by rising depth; all at once unless the best within limits is wanted."""
    if problem.goal != Goal.BEST_WITHIN_LIMITS:
        return every[len(measured) :]
    if not measured:
        return every[:FIRST]
    begin, end = len(measured), min(len(every), 2 * len(measured))
    count = 1
    while begin + count < end and _predicted_within(measured, every, begin + count, problem):
        count += 1
    return every[begin : begin + count]


def _predicted_within(measured: Sequence[Depth], every: Sequence[Architecture], index: int, problem: Problem) -> bool:
    """Whether this depth is within the limits if each block adds as much as those of the measured depths."""
    rows = [
        (len(architecture.blocks), depth.latency_ms, depth.memory_bytes)
        for depth, architecture in zip(measured, every, strict=False)
        if depth.latency_ms is not None and depth.memory_bytes is not None
    ]
    if len(rows) < FIRST:
        return False
    blocks, *figures = np.array(rows, dtype=np.float64).T
    predicted = [np.polyval(np.polyfit(blocks, figure, 1), len(every[index].blocks)) for figure in figures]
    limits = (problem.latency_ms, problem.memory_bytes)
    return all(limit is None or value <= limit for value, limit in zip(predicted, limits, strict=True))
