"""Acquisition functions of the search by prediction. The functions rate a batch of candidates by Monte Carlo.

- `expected_improvement`: expected improvement of the best quality (score by the proxy) within the limits (constrained
  qEI).
- `expected_hypervolume_improvement`: expected improvement of the hypervolume of (quality, latency, memory) against a
  reference point (qEHVI).

Candidates beyond a limit add nothing, so both functions include the probability of feasibility. Batches are built
greedily.

The samples are equally likely prediction errors (`Forecaster.error_quantiles`). In half of the samples all candidates
share one error (a device that is slower than predicted for one candidate is slower for all), in the other half the
candidates' errors are independent (the latency of a device jumps). A batch thus mixes risky and safe candidates.
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

SAMPLES = 64
"""Monte Carlo samples of the expected improvement."""
HYPERVOLUME_SAMPLES = 8
SCREENED = 300
"""Number of candidates with a hypervolume improvement computed in every sample: the candidates with the largest
improvement at the predicted medians.
"""
_BEYOND = 1e300
DIGITS = 6
"""Decimals to which relative gains are rounded before ranking."""


@dataclass(frozen=True)
class Batch:
    """Selected rows of a pool (candidates with forecasts), best first, and the joint expected gain of these rows.

    `gain` is relative to the present optimum: infinite if there is no optimum yet, 0 if no gain is possible.
    """

    rows: tuple[int, ...]
    gain: float


def expected_improvement(
    pool: Pool,
    problem: Problem,
    measured: Forecast,
    reference: float,
    error_quantiles: Floats,
    count: int,
    rng: np.random.Generator,
    reached_elsewhere: float = -math.inf,
) -> Batch:
    """Selects the batch with the highest expected improvement of the best quality.

    Args:
        measured: posterior of the measured models within the limits (`Forecaster.posterior`).
        reference: quality that counts as 0. Gains are relative to the best quality of `measured` minus `reference`.
        error_quantiles: equally likely prediction errors, in standard deviations.
        reached_elsewhere: quality that is reached anyway.
    """

    def outcomes(some: Forecast) -> Floats:
        """(n, samples) quality of each architecture in each sample; -inf beyond the limits."""
        inside = [some.violation(problem, error) == 0 for error in _errors(error_quantiles, len(some), rng)]
        return np.where(np.stack(inside, axis=1), some.quality[:, None], -np.inf)

    values = outcomes(pool.forecast)
    if measured.latency_spread.any():
        reached = outcomes(measured).max(axis=0)
    else:
        inside = measured.quality[measured.violation(problem, 0.0) == 0]
        reached = np.full(len(error_quantiles), inside.max(initial=-np.inf))
    reached = np.maximum(reached, reached_elsewhere)
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
        return Batch((), 0.0)
    if nothing:
        return Batch(tuple(rows), math.inf)
    # The gain comes from fresh samples, because the samples of the selection are biased upwards.
    others = np.maximum(outcomes(pool.forecast.take(np.array(rows))).max(axis=0), start)
    return Batch(tuple(rows), round(float((others - start).mean()) / scale, DIGITS))


def expected_hypervolume_improvement(
    pool: Pool,
    problem: Problem,
    points: Floats,
    reference: Mapping[str, float],
    error_quantiles: Floats,
    count: int,
    rng: np.random.Generator,
) -> Batch:
    """Selects the batch with the largest expected hypervolume improvement over the measured points (n, 3)."""
    # The reference point, clipped to the limits.
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
    samples = [_sample(pool.forecast.take(screened), problem, z) for z in _errors(error_quantiles, len(screened), rng)]
    fronts = [front] * len(error_quantiles)
    volumes = np.full(len(error_quantiles), reached)
    # Lazy greedy selection: gains only shrink as the batch grows (submodularity), so an old gain is an upper bound.
    bounds = np.full(len(screened), np.inf)
    rows: list[int] = []
    while len(rows) < min(count, len(screened)):
        fresh = np.zeros(len(screened), dtype=bool)
        while True:
            row = int(np.lexsort((pool.keys[screened], -bounds))[0])
            if fresh[row] or bounds[row] <= 0:
                break
            after = [
                hypervolume(np.vstack([front, sample[row]]), limits)
                for front, sample in zip(fronts, samples, strict=True)
            ]
            bounds[row] = np.round((np.array(after) - volumes).mean(), DIGITS)
            fresh[row] = True
        if bounds[row] <= 0:
            break
        rows.append(row)
        bounds[row] = -1.0
        fronts = [np.vstack([front, sample[row]]) for front, sample in zip(fronts, samples, strict=True)]
        volumes = np.array([hypervolume(front, limits) for front in fronts])
    gain = float(volumes.mean() - reached)
    relative = round(gain / reached, DIGITS) if reached > 0 else (math.inf if rows else 0.0)
    return Batch(tuple(int(screened[row]) for row in rows), relative)


def least_violation(pool: Pool, problem: Problem, reached: float, count: int) -> Batch:
    """Selects the candidates with the least predicted violation of limits, if none is expected within the limits.

    `reached` is the least measured violation (`Problem.violation`); `gain` is the predicted decrease of the violation.
    """
    violation = np.round(pool.forecast.violation(problem, 0.0), DIGITS)
    order = np.lexsort((pool.keys, -pool.forecast.quality, violation))[:count]
    if not len(order):
        return Batch((), 0.0)
    gain = max(0.0, reached - float(violation[order[0]]))
    return Batch(tuple(int(row) for row in order), gain)


def _errors(error_quantiles: Floats, candidates: int, rng: np.random.Generator) -> Floats:
    """(samples, candidates) prediction errors: for each candidate, each quantile once. In every other sample, all
    candidates have the same error; in the remaining samples, the order is random.
    """
    errors = np.tile(error_quantiles[:, None], (1, candidates))
    errors[1::2] = rng.permuted(errors[1::2], axis=0)
    return errors


def _in_time(forecast: Forecast, problem: Problem, z: float | Floats) -> NDArray[np.bool_]:
    """(n,) mask of the candidates with all times of text generation, at `z` standard deviations, within the limits."""
    free = np.zeros(len(forecast))
    return np.asarray(
        replace(problem, latency_ms=None, memory_bytes=None).violation(free, free, forecast.times_at(z)) == 0
    )


def _sample(forecast: Forecast, problem: Problem, z: Floats) -> Floats:
    """(n, 3) points of one sample. Points beyond a limit on a time of text generation get a latency with no volume."""
    points = forecast.points(z)
    points[~_in_time(forecast, problem, z), 1] = _BEYOND
    return points


def _improves(points: Floats, front: Floats, limits: Mapping[str, float]) -> NDArray[np.bool_]:
    """(n,) mask of the points that are better than the reference point (`limits`) and not dominated by the front."""
    within = (
        (points[:, 0] > limits["proxy"])
        & (points[:, 1] < limits["latency_ms"])
        & (points[:, 2] < limits["memory_bytes"])
    )
    for point in front:
        within &= ~((point[0] >= points[:, 0]) & (point[1] <= points[:, 1]) & (point[2] <= points[:, 2]))
    return within
