"""What measuring a batch can be expected to add, and the batch that adds most.

The gain is that of the hypervolume inside the limits: of (quality, latency, memory) against a reference point for a
frontier; of quality alone for the best model within the limits, which is its improvement. What comes out beyond a limit
adds nothing, so the expectation holds the probability that the limits hold.

The expectation is taken over a few equally likely levels of what is uncertain, the errors of one batch taken to be
alike: a device that is slower than predicted for one of them is so for all. A batch thus comes to hold a bold candidate
beside a safe one rather than the same bet many times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from edgefront.core.pareto.frontier import hypervolume, nondominated
from edgefront.core.search.evolution import Pool
from edgefront.core.search.problem import Floats, Problem

LEVELS = 16
"""Of what is uncertain, for the best model within limits."""
FRONTIER_LEVELS = 5
SCREENED = 300
"""Candidates of a frontier whose gain is computed at every level: those with the largest at the mean."""
DIGITS = 9
"""Of gains in units of the whole, before they are ranked."""


@dataclass(frozen=True)
class Choice:
    """Rows of a pool in the order in which they are worth measuring, and what they add together.

    `gain` is relative to what has been reached: infinite where that is nothing, 0 where nothing can be gained.
    """

    rows: tuple[int, ...]
    gain: float


def best_within_limits(pool: Pool, problem: Problem, reached: float | None, count: int) -> Choice:
    """The batch with the highest expected improvement of the best quality.

    Args:
        reached: the best quality that was measured within the limits; None while there is none.
    """
    quality = pool.forecast.quality
    base = float(quality.min()) if reached is None else reached
    values = np.stack(
        [np.where(pool.forecast.violation(problem, z) == 0, quality, -np.inf) for z in _levels(LEVELS)], axis=1
    )
    scale = abs(base) or 1.0
    best = np.full(LEVELS, base)
    rows: list[int] = []
    for _ in range(min(count, len(pool))):
        gains = np.round(np.maximum(values - best, 0.0).mean(axis=1) / scale, DIGITS)
        gains[rows] = -1.0
        row = int(np.lexsort((pool.keys, -gains))[0])
        if gains[row] <= 0:
            break
        rows.append(row)
        best = np.maximum(best, values[row])
    gain = float(best.mean() - base) / scale
    return Choice(tuple(rows), np.inf if reached is None and rows else gain)


def frontier(pool: Pool, problem: Problem, points: Floats, reference: Mapping[str, float], count: int) -> Choice:
    """The batch with the largest expected hypervolume beyond that of the measured points (n, 3) within the limits."""
    limits = _limited(reference, problem)
    front = points[nondominated(points)]
    reached = hypervolume(front, limits)
    means = pool.forecast.points()
    inside = np.flatnonzero(_improves(means, front, limits))
    at_mean = np.array([hypervolume(np.vstack([front, means[row]]), limits) - reached for row in inside])
    screened = inside[np.lexsort((pool.keys[inside], -np.round(at_mean, DIGITS)))[:SCREENED]]
    levels = [pool.forecast.take(screened).points(z) for z in _levels(FRONTIER_LEVELS)]
    fronts = [front] * FRONTIER_LEVELS
    volumes = np.full(FRONTIER_LEVELS, reached)
    # Gains only shrink as the batch grows, so the last known bound each candidate's and few are computed anew.
    bounds = np.full(len(screened), np.inf)
    rows: list[int] = []
    while len(rows) < min(count, len(screened)):
        fresh = np.zeros(len(screened), dtype=bool)
        while True:
            row = int(np.lexsort((pool.keys[screened], -bounds))[0])
            if fresh[row] or bounds[row] <= 0:
                break
            after = [
                hypervolume(np.vstack([one, level[row]]), limits) for one, level in zip(fronts, levels, strict=True)
            ]
            bounds[row] = np.round((np.array(after) - volumes).mean(), DIGITS)
            fresh[row] = True
        if bounds[row] <= 0:
            break
        rows.append(row)
        bounds[row] = -1.0
        fronts = [np.vstack([one, level[row]]) for one, level in zip(fronts, levels, strict=True)]
        volumes = np.array([hypervolume(one, limits) for one in fronts])
    gain = float(volumes.mean() - reached)
    relative = gain / reached if reached > 0 else (np.inf if rows else 0.0)
    return Choice(tuple(int(screened[row]) for row in rows), relative)


def nearest(pool: Pool, problem: Problem, reached: float | None, count: int) -> Choice:
    """Where nothing can be expected within the limits: what comes nearest to them.

    Args:
        reached: the least violation that was measured (`Problem.violation`); None while nothing was.

    Returns:
        `gain` is by how much the nearest comes nearer, as a share of the limit.
    """
    violation = np.round(pool.forecast.violation(problem, 0.0), DIGITS)
    order = np.lexsort((pool.keys, -pool.forecast.quality, violation))[:count]
    if not len(order):
        return Choice((), 0.0)
    gain = np.inf if reached is None else max(0.0, reached - float(violation[order[0]]))
    return Choice(tuple(int(row) for row in order), gain)


def _levels(count: int) -> Floats:
    """Standard normal deviates in the middle of so many equally likely ranges."""
    middles: Floats = np.round(ndtri((np.arange(count) + 0.5) / count), DIGITS)
    return middles


def _limited(reference: Mapping[str, float], problem: Problem) -> dict[str, float]:
    """The reference point, no further than the limits."""
    latency, memory = reference["latency_ms"], reference["memory_bytes"]
    return {
        **reference,
        "latency_ms": min(latency, problem.latency_ms or latency),
        "memory_bytes": min(memory, problem.memory_bytes or memory),
    }


def _improves(points: Floats, front: Floats, limits: Mapping[str, float]) -> NDArray[np.bool_]:
    """Which points lie within the reference point and are dominated by none of the front."""
    within = (
        (points[:, 0] > limits["proxy"])
        & (points[:, 1] < limits["latency_ms"])
        & (points[:, 2] < limits["memory_bytes"])
    )
    for point in front:
        within &= ~((point[0] >= points[:, 0]) & (point[1] <= points[:, 1]) & (point[2] <= points[:, 2]))
    return within
