"""What measuring a batch can be expected to add, and the batch that adds most.

The gain is that of the hypervolume inside the limits: of (quality, latency, memory) against a reference point for a
frontier; of quality alone for the best model within the limits, which is its improvement. What comes out beyond a limit
adds nothing, so the expectation holds the probability that the limits hold.

The expectation is taken over equally likely cases of how far predictions are off (`Forecaster.error_quantiles`). In
half of the cases the error is that of the whole batch (a device that is slower than predicted for one candidate is so
for all), in half each candidate has its own (a device that jumps is worth another try). A batch thus comes to hold a
bold candidate beside a safe one rather than the same bet many times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.search.forecast import Forecast, Pool
from edgefront.core.search.pareto.frontier import hypervolume, nondominated
from edgefront.core.search.problem import Floats, Problem

CASES = 64
"""Samples of the errors of predictions, for the best model within limits."""
FRONTIER_CASES = 8
SCREENED = 300
"""Candidates of a frontier whose gain is computed in every case: those with the largest at the mean."""
_BEYOND = 1e300
DIGITS = 6
"""Decimals of gains, in units of the whole, before they are ranked."""


@dataclass(frozen=True)
class Choice:
    """Rows of a pool in the order in which they are worth measuring, and what they add together.

    `gain` is relative to what has been reached: infinite where that is nothing, 0 where nothing can be gained.
    """

    rows: tuple[int, ...]
    gain: float


def best_within_limits(
    pool: Pool,
    problem: Problem,
    measured: Forecast,
    reference: float,
    error_quantiles: Floats,
    count: int,
    rng: np.random.Generator,
) -> Choice:
    """The batch with the highest expected improvement of the best quality.

    Args:
        measured: what was measured within the limits, each with what is not certain of it: a single launch of a noisy
            device may have been a lucky one.
        reference: the quality from which it is counted: gains are shares of what the best of `measured` is above it.
        error_quantiles: equally likely errors of the predictions, in their standard deviations.
    """

    def outcomes(some: Forecast) -> Floats:
        """(n, cases) the quality that each has in each case: none beyond the limits."""
        inside = [some.violation(problem, error) == 0 for error in _errors(error_quantiles, len(some), rng)]
        return np.where(np.stack(inside, axis=1), some.quality[:, None], -np.inf)

    values = outcomes(pool.forecast)
    if measured.latency_spread.any():
        reached = outcomes(measured).max(axis=0)
    else:
        inside = measured.quality[measured.violation(problem, 0.0) == 0]
        reached = np.full(len(error_quantiles), inside.max(initial=-np.inf))
    nothing = bool(np.isneginf(reached).all())
    start = np.where(np.isneginf(reached), pool.forecast.quality.min(), reached)
    base = float(start.max())
    scale = base - reference if base > reference else abs(base) or 1.0
    best = start
    rows: list[int] = []
    for _ in range(min(count, len(pool))):
        gains = np.round(np.maximum(values - best, 0.0).mean(axis=1) / scale, DIGITS)
        gains[rows] = -1.0
        row = int(np.lexsort((pool.keys, -gains))[0])
        if gains[row] <= 0:
            break
        rows.append(row)
        best = np.maximum(best, values[row])
    if not rows:
        return Choice((), 0.0)
    if nothing:
        return Choice(tuple(rows), math.inf)
    # In other cases than those that they were chosen by, which flatter them.
    others = np.maximum(outcomes(pool.forecast.take(np.array(rows))).max(axis=0), start)
    return Choice(tuple(rows), round(float((others - start).mean()) / scale, DIGITS))


def frontier(
    pool: Pool,
    problem: Problem,
    points: Floats,
    reference: Mapping[str, float],
    error_quantiles: Floats,
    count: int,
    rng: np.random.Generator,
) -> Choice:
    """The batch with the largest expected hypervolume beyond that of the measured points (n, 3) within the limits."""
    # The reference point, no further than the limits.
    latency, memory = reference["latency_ms"], reference["memory_bytes"]
    limits = {
        **reference,
        "latency_ms": min(latency, problem.latency_ms or latency),
        "memory_bytes": min(memory, problem.memory_bytes or memory),
    }
    front = points[nondominated(points)]
    reached = hypervolume(front, limits)
    means = pool.forecast.points()
    inside = np.flatnonzero(_improves(means, front, limits) & _in_time(pool.forecast, problem, 0.0))
    at_mean = np.array([hypervolume(np.vstack([front, means[row]]), limits) - reached for row in inside])
    screened = inside[np.lexsort((pool.keys[inside], -np.round(at_mean, DIGITS)))[:SCREENED]]
    cases = [_case(pool.forecast.take(screened), problem, z) for z in _errors(error_quantiles, len(screened), rng)]
    fronts = [front] * len(error_quantiles)
    volumes = np.full(len(error_quantiles), reached)
    # Gains only shrink as the batch grows, so the last known bound each candidate's and few are computed again.
    bounds = np.full(len(screened), np.inf)
    rows: list[int] = []
    while len(rows) < min(count, len(screened)):
        fresh = np.zeros(len(screened), dtype=bool)
        while True:
            row = int(np.lexsort((pool.keys[screened], -bounds))[0])
            if fresh[row] or bounds[row] <= 0:
                break
            after = [
                hypervolume(np.vstack([front, case[row]]), limits) for front, case in zip(fronts, cases, strict=True)
            ]
            bounds[row] = np.round((np.array(after) - volumes).mean(), DIGITS)
            fresh[row] = True
        if bounds[row] <= 0:
            break
        rows.append(row)
        bounds[row] = -1.0
        fronts = [np.vstack([front, case[row]]) for front, case in zip(fronts, cases, strict=True)]
        volumes = np.array([hypervolume(front, limits) for front in fronts])
    gain = float(volumes.mean() - reached)
    relative = round(gain / reached, DIGITS) if reached > 0 else (math.inf if rows else 0.0)
    return Choice(tuple(int(screened[row]) for row in rows), relative)


def nearest(pool: Pool, problem: Problem, reached: float, count: int) -> Choice:
    """Where nothing can be expected within the limits: what comes nearest to them.

    Args:
        reached: the least violation that was measured (`Problem.violation`).

    Returns:
        `gain` is by how much the nearest comes nearer, as a share of the limit.
    """
    violation = np.round(pool.forecast.violation(problem, 0.0), DIGITS)
    order = np.lexsort((pool.keys, -pool.forecast.quality, violation))[:count]
    if not len(order):
        return Choice((), 0.0)
    gain = max(0.0, reached - float(violation[order[0]]))
    return Choice(tuple(int(row) for row in order), gain)


def _errors(error_quantiles: Floats, candidates: int, rng: np.random.Generator) -> Floats:
    """(cases, candidates): every error once for each candidate; every other one is that of all in its case."""
    errors = np.tile(error_quantiles[:, None], (1, candidates))
    errors[1::2] = rng.permuted(errors[1::2], axis=0)
    return errors


def _in_time(forecast: Forecast, problem: Problem, z: float | Floats) -> NDArray[np.bool_]:
    """Which hold the limits on times beside the latency, if they come out `z` standard deviations above their means."""
    free = np.zeros(len(forecast))
    return np.asarray(
        replace(problem, latency_ms=None, memory_bytes=None).violation(free, free, forecast.times_at(z)) == 0
    )


def _case(forecast: Forecast, problem: Problem, z: Floats) -> Floats:
    """(n, 3) points in one case; what is beyond a limit on its times is put where it adds nothing."""
    points = forecast.points(z)
    points[~_in_time(forecast, problem, z), 1] = _BEYOND
    return points


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
