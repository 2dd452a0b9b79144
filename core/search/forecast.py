"""The surrogate model predicts quality, latency and memory of unmeasured architectures from a device's measurements.

Latency and memory are log-normal: exp(N(ln median, spread²)). If more than 5 % of the audits (candidates drawn at
random) fall outside their predicted 95 % intervals, all intervals are widened (`calibration.widening`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.measurement.generation import with_latency
from edgefront.core.measurement.prediction.calibration import widening
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.prediction.memory import MemoryPredictor
from edgefront.core.measurement.statistics import Z_95
from edgefront.core.search.interface import AUDIT, Evaluated, Predicted, Snapshot
from edgefront.core.search.population_shapes import identity
from edgefront.core.search.problem import Floats, Problem

PRIOR_WEIGHT = 10.0
"""Weight of the normal distribution in the mixture with observed errors, as a number of observations."""
DIGITS = 6
MIN_HALF_WIDTH = 1e-4
"""Minimum half-width, on the logarithm, of a predicted interval that an audit is compared with."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecasts of n architectures: medians, and spreads on the logarithm; arrays have shape (n,)."""

    quality: Floats
    """Score of each architecture by the proxy; higher is better."""
    latency_ms: Floats
    latency_spread: Floats
    memory_bytes: Floats
    memory_spread: Floats
    times_ms: Floats
    """(n, times) times of a text generation that the problem limits."""
    times_spread: Floats

    def __len__(self) -> int:
        return len(self.quality)

    def take(self, rows: NDArray[Any]) -> Forecast:
        return Forecast(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def at(self, z: float | Floats) -> tuple[Floats, Floats]:
        """Latency and memory at `z` standard deviations above the medians; `z` is one number or (n,)."""
        return self.latency_ms * np.exp(z * self.latency_spread), self.memory_bytes * np.exp(z * self.memory_spread)

    def times_at(self, z: float | Floats) -> Floats:
        """(n, times) limited times at `z` standard deviations above the medians; `z` is one number or (n,)."""
        errors = np.broadcast_to(np.asarray(z), len(self))[:, None]
        return np.asarray(self.times_ms * np.exp(errors * self.times_spread))

    def violation(self, problem: Problem, z: float | Floats) -> Floats:
        """(n,) constraint violation of the figures at `z` standard deviations above the medians."""
        return problem.violation(*self.at(z), self.times_at(z))

    def points(self, z: float | Floats = 0.0) -> Floats:
        """(n, 3) quality, latency and memory at `z` standard deviations above the medians."""
        return np.column_stack([self.quality, *self.at(z)])

    def predicted(self, row: int, widened: tuple[float, float]) -> Predicted:
        """Prediction of one row, to store with the candidate. `widened`: the widening factors of both intervals."""
        (low, low_bytes), (high, high_bytes) = ([float(part[row]) for part in self.at(z)] for z in (-Z_95, Z_95))
        return Predicted(
            latency_ms=float(self.latency_ms[row]),
            latency_low_ms=low,
            latency_high_ms=high,
            memory_bytes=float(self.memory_bytes[row]),
            memory_low_bytes=low_bytes,
            memory_high_bytes=high_bytes,
            widening=widened[0],
            memory_widening=widened[1],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Forecast]) -> Forecast:
        return cls(
            **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        )


class Pool:
    """A set of n distinct architectures, each with a forecast.

    Args:
        members: (n, …) coded genomes, or (n,) indices into a list.
        keys: (n,) identities (`population_shapes.identity`).
    """

    def __init__(self, members: NDArray[Any], keys: NDArray[np.uint64], forecast: Forecast) -> None:
        self.members, self.keys, self.forecast = members, keys, forecast

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: NDArray[np.intp]) -> Pool:
        return Pool(self.members[rows], self.keys[rows], self.forecast.take(rows))

    def with_others(self, other: Pool) -> Pool:
        """The union of both pools without duplicates, ordered by key."""
        keys = np.concatenate([self.keys, other.keys])
        _, first = np.unique(keys, return_index=True)
        both = Pool(
            np.concatenate([self.members, other.members]), keys, Forecast.concatenate([self.forecast, other.forecast])
        )
        return both.take(first)


@dataclass(frozen=True, eq=False)
class Observations:
    """All n measurements of the device. The predictors are fitted to these measurements. Arrays have shape (n,)."""

    shapes: Shapes
    latency_ms: Floats
    memory_bytes: Floats
    times_ms: Floats
    """(n, times) limited times of a text generation."""
    launches: NDArray[np.int64]

    @classmethod
    def of(
        cls, shapes_of: Callable[[Sequence[Evaluated]], Shapes], snapshot: Snapshot, problem: Problem
    ) -> Observations:
        """Observations of baselines, of this search's results and of other jobs' models, ordered by the values."""
        results = measured(snapshot)
        observed = [*snapshot.baselines, *snapshot.others]
        shapes = Shapes.concatenate(
            [
                shapes_of(results),
                Shapes.of([model.architecture for model in observed]),
            ]
        )
        rows = [(result.latency_ms, result.memory_bytes, result.launches) for result in results]
        rows += [(model.latency_ms, model.memory_bytes, model.launches) for model in observed]
        numbers = np.array(rows, dtype=np.float64).reshape(len(rows), 3)
        times = problem.times_of([*results, *observed])
        order = np.lexsort((*numbers.T, identity(shapes)))
        latency, memory, launches = numbers[order].T
        return cls(shapes.take(order), latency, memory, times[order], np.maximum(1, launches).astype(np.int64))

    def __len__(self) -> int:
        return len(self.latency_ms)


def measured(snapshot: Snapshot) -> list[Evaluated]:
    """Results that have a latency and a memory, including results beyond the limits, ordered by digest."""
    complete = [
        result for result in snapshot.results if result.latency_ms is not None and result.memory_bytes is not None
    ]
    return sorted(complete, key=lambda result: (result.digest, result.id))


class Forecaster:
    """Predictors of latency, times of text generation and memory, fitted to observations. Calling a `Forecaster` with
    shapes returns a `Forecast`.

    The constructor raises `InvalidInput` if there are too few observations.
    """

    def __init__(self, problem: Problem, observations: Observations, snapshot: Snapshot) -> None:
        self._problem = problem
        self._noise = snapshot.launch_noise or 0.0
        self._latency = LatencyPredictor.fit(
            observations.shapes,
            problem.protocol,
            observations.latency_ms,
            launches=observations.launches,
            noise=snapshot.launch_noise,
            prior=snapshot.priors,
        )
        self._times = [
            LatencyPredictor.fit(
                observations.shapes,
                with_latency(problem.protocol, name),
                observations.times_ms[:, column],
                launches=observations.launches,
                noise=snapshot.launch_noise,
            )
            for column, name in enumerate(problem.times_ms)
        ]
        self._memory = MemoryPredictor.fit(observations.shapes, problem.protocol, observations.memory_bytes)
        results = measured(snapshot)
        latency, memory = _missed([result for result in results if result.operator == AUDIT])
        self.widening = widening(*latency), widening(*memory)
        """Factors by which audits widen the predicted intervals of latency and of memory."""
        (errors, halves), _ = _missed(results)
        self._misses = Z_95 * errors / halves

    def error_quantiles(self, count: int) -> Floats:
        """(count,) quantiles of the latency's prediction error, in standard deviations, rising.

        The quantiles are those of past errors, mixed with a normal distribution. The normal distribution dominates
        while past errors are few. Past errors can be skewed, because a device is sometimes much slower than predicted
        but never much faster.
        """
        normal = ndtri((np.arange(count) + 0.5) / count)
        values = np.concatenate([normal, self._misses / self.widening[0]])
        weights = np.concatenate([np.full(count, PRIOR_WEIGHT / count), np.ones(len(self._misses))])
        order = np.argsort(values, kind="stable")
        share = np.cumsum(weights[order]) - weights[order] / 2
        quantiles = np.interp((np.arange(count) + 0.5) / count * weights.sum(), share, values[order])
        rounded_off: Floats = np.round(quantiles, DIGITS)
        return rounded_off

    def posterior(self, shapes: Shapes, points: Floats, times: Floats, launches: NDArray[np.int64]) -> Forecast:
        """Posterior of n measured architectures with `points` (n, 3) of quality, latency and memory, `times` (n, times)
        of text generation, and numbers of `launches` (n,).

        If launches scatter, each latency is shrunk towards the predicted latency, most for models with few launches
        (posterior mean of a normal variable of known variance). Otherwise the luckiest launch would win.
        """
        quality, latency, memory = points.T
        nothing = np.zeros(len(points))
        if not self._noise or not len(points):
            return Forecast(quality, latency, nothing, memory, nothing, times, np.zeros_like(times))
        predicted = self.costs(shapes)
        # The spread of a prediction includes that of one launch.
        of_mean = np.maximum(predicted.latency_spread**2 - self._noise**2, predicted.latency_spread**2 / 4)
        of_launches = self._noise**2 / np.maximum(1, launches)
        share = of_mean / (of_mean + of_launches)
        mean = np.exp(share * np.log(latency) + (1 - share) * np.log(predicted.latency_ms))
        spread = rounded(np.sqrt(share * of_launches))
        return Forecast(quality, rounded(mean), spread, memory, nothing, times, np.zeros_like(times))

    def __call__(self, shapes: Shapes) -> Forecast:
        """Returns the forecast of these architectures, with the score by the problem's proxy as quality."""
        return replace(self.costs(shapes), quality=rounded(self._problem.score_function()(shapes)))

    def costs(self, shapes: Shapes) -> Forecast:
        """Returns the forecast of these architectures, with NaN as quality."""
        if not len(shapes):
            nothing, none = np.zeros(0), np.zeros((0, len(self._times)))
            return Forecast(nothing, nothing, nothing, nothing, nothing, none, none)
        latency = self._latency.predict(shapes)
        memory, low, high = self._memory.predict(shapes)
        times = [time.predict(shapes) for time in self._times]
        nothing = np.zeros((len(shapes), 0))
        return Forecast(
            quality=np.full(len(shapes), np.nan),
            latency_ms=rounded(latency.ms),
            latency_spread=rounded(latency.deviation * self.widening[0]),
            memory_bytes=rounded(memory),
            memory_spread=rounded(np.log(high / low) / (2 * Z_95) * self.widening[1]),
            times_ms=rounded(np.column_stack([nothing, *(time.ms for time in times)])),
            # The widening factor of the latency applies to the times of a text generation too.
            times_spread=rounded(np.column_stack([nothing, *(time.deviation * self.widening[0] for time in times)])),
        )


def _missed(results: Sequence[Evaluated]) -> Floats:
    """(2, 2, n) errors of predictions (on the logarithm): latency or memory × error or half-width before widening."""
    rows = [
        (
            math.log(result.latency_ms / predicted.latency_ms),
            math.log(predicted.latency_high_ms / predicted.latency_low_ms) / 2 / predicted.widening,
            math.log(result.memory_bytes / predicted.memory_bytes),
            math.log(predicted.memory_high_bytes / predicted.memory_low_bytes) / 2 / predicted.memory_widening,
        )
        for result in results
        if (predicted := result.predicted) is not None and result.latency_ms and result.memory_bytes
    ]
    errors, halves, memory_errors, memory_halves = np.array(rows, dtype=np.float64).reshape(len(rows), 4).T
    least = MIN_HALF_WIDTH
    return np.array([(errors, np.maximum(halves, least)), (memory_errors, np.maximum(memory_halves, least))])


def rounded(values: Floats) -> Floats:
    """Rounds values to single precision, so that rankings do not depend on the platform or the number of threads."""
    return values.astype(np.float32).astype(np.float64)
