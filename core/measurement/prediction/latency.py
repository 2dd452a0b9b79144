"""Predicts the latency of architectures on a device under a protocol, from launches of other architectures.

1. Fit a weighted sum of features by non-negative least squares (`regression`).
2. Fit a Gaussian process to the residuals of the logarithm (`Correction`), if the process reduces the errors on unseen
   launches.
3. Calibrate the interval by the errors on unseen launches (`calibration`).

The order of the launches has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.block import BLOCK_KINDS
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.gaussian_process import Kernel, Process, from_grid
from edgefront.core.measurement.prediction import calibration, regression
from edgefront.core.measurement.prediction.features import (
    FEATURES,
    NAMES,
    descriptors,
    enough_different,
    farthest,
    features,
    features_by_block,
    positive,
    standardised,
)
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import Z_95, robust_std

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 4096
_UNITS = tuple(feature.unit for feature in FEATURES)
_MIN_NOISE = 0.005**2
"""Minimum variance of a launch's logarithm, because the weighted sum may fit a few launches exactly."""
_MIN_HALF_WIDTH = 1e-3
"""Minimum relative half-width of a prediction interval."""
_MIN_IMPROVEMENT = 1.02
"""Minimum factor by which a Gaussian process must reduce the error on unseen launches to be used."""
_LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Grid of the kernel's length scales, in units of the square root of the number of descriptors."""
_RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Grid of the kernel's ratios of signal variance to noise variance."""
_MIN_GAIN = 2.0
"""Minimum gain of log likelihood with which a Gaussian process is used."""
_MAX_ROWS = 192
"""Maximum number of launches that the Gaussian process is fitted to. A larger number is reduced by farthest points."""
_OUTLIER = 3.0
_DIGITS = 6
"""Significant digits of a prediction, to which all platforms agree."""


class LatencyPrediction(NamedTuple):
    """Predictions for n architectures, (n,) ms each: expected latency, and 95 % interval of a launch's median."""

    ms: Floats
    low: Floats
    high: Floats

    @property
    def deviation(self) -> Floats:
        """(n,) standard deviation of the latency's logarithm, if the logarithm is normal with this 95 % interval."""
        return np.asarray(np.log(self.high / self.low) / (2 * Z_95))


class LatencyPart(NamedTuple):
    """Share of one block in a predicted latency, in ms. `block` is None for embedding, output head and fixed costs."""

    block: int | None
    kind: str
    ms: float
    by_feature: Mapping[str, float]
    """Milliseconds of each feature, by the feature's name."""


@dataclass(frozen=True)
class Correction:
    """Correction of the logarithm of the latency by a Gaussian process, for effects of caches, kernels and threads.

    The covariance is Matérn 5/2 over standardised descriptors with one length scale. The length scale is chosen by
    marginal likelihood from a small grid, so the choice is equal on every platform. Far from the measurements the
    correction is zero.
    """

    noise: float
    """Variance of a launch's logarithm around the prediction."""
    process: Process | None = None
    """Gaussian process in units of the noise's standard deviation; None if there is no correction."""

    def predict(self, descriptors: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the correction of ln latency, each (n,), in units of `noise`."""
        if self.process is None:
            return np.zeros(len(descriptors)), np.zeros(len(descriptors))
        mean, deviation = self.process.predict(descriptors)
        return mean, deviation**2 - 1


def choose_kernel(descriptors: Floats, residuals: Floats) -> Kernel | None:
    """Selects the kernel with the greatest marginal likelihood; None if no kernel gains `_MIN_GAIN`."""
    rows, (_, width) = _process_rows(descriptors), standardised(descriptors)
    lengths = [length * np.sqrt(len(width)) * width for length in _LENGTHS]
    return from_grid(descriptors[rows], residuals[rows], lengths, _RATIOS, _MIN_GAIN)


def fit_correction(descriptors: Floats, residuals: Floats, weights: Floats, kernel: Kernel | None) -> Correction:
    """Fits the correction with this kernel to n launches. `weights` (n,) are inverse relative noise variances."""
    if kernel is None:
        return Correction(_left_variance(residuals, weights))
    rows = _process_rows(descriptors)
    process = Process(kernel, descriptors[rows], residuals[rows], 1 / weights[rows])
    return Correction(_left_variance(residuals - process.predict(descriptors)[0], weights), process)


def _process_rows(descriptors: Floats) -> NDArray[np.int64]:
    """Indices of the rows that the Gaussian process is fitted to, at most `_MAX_ROWS`."""
    return np.arange(len(descriptors)) if len(descriptors) <= _MAX_ROWS else farthest(descriptors, _MAX_ROWS)


def _left_variance(left: Floats, weights: Floats) -> float:
    return max(float(np.average(left**2, weights=weights)), 1e-10)


@dataclass(frozen=True)
class LatencyPredictor:
    """A fitted latency predictor of one device under one protocol."""

    protocol: MeasurementProtocol
    launches: int
    """Number of architectures that the predictor was fitted to."""
    model: LatencyModel
    half_width: float
    """Half-width of the 95 % interval, in standard deviations."""
    error: float
    """Mean relative error of cross-validated predictions."""

    @classmethod
    def fit(
        cls,
        shapes: Shapes,
        protocol: MeasurementProtocol,
        latency_ms: ArrayLike,
        *,
        launches: ArrayLike | None = None,
        noise: float | None = None,
        prior: Sequence[LatencyPredictor] = (),
    ) -> LatencyPredictor:
        """Fits a predictor to n architectures, each with the median latency over `launches` (n,) launches (default 1).

        Args:
            noise: relative standard deviation of one launch's median (`LaunchVariance.relative`), if known.
            prior: predictors of other devices, or of this device under similar protocols. The proportions of the costs
                in these predictors are the prior.

        Raises `InvalidInput` if a value is wrong or there are fewer than three different architectures.
        """
        measured = positive("latency_ms", latency_ms, len(shapes))
        repeated = np.ones(len(shapes)) if launches is None else positive("launches", launches, len(shapes))
        counted = features(shapes, protocol)
        enough_different(counted)
        near = descriptors(shapes, counted)
        order = np.lexsort(np.column_stack([measured, repeated, near, counted]).T)
        rows = _Rows(counted[order], near[order], measured[order], (noise or 0.0) / np.sqrt(repeated[order]))
        others = [predictor.model.costs.per_unit for predictor in prior]
        fold = calibration.folds(rows.features, rows.latency_ms)
        tried = [_Trial.of(rows, others, kind, fold) for kind in _kinds(rows, others)]
        best = min(tried, key=lambda trial: trial.error * (_MIN_IMPROVEMENT if trial.model.correction.process else 1.0))
        model = best.model
        terms = int((counted > 0).any(axis=0).sum())
        reach = max(calibration.half_width(best.scores, terms), _MIN_HALF_WIDTH / float(np.sqrt(model.noise)))
        return cls(protocol, len(measured), model, reach, best.error)

    def predict(self, shapes: Shapes) -> LatencyPrediction:
        """Predicts the latencies of these architectures under the predictor's protocol."""
        parts = [
            self._predict(shapes.take(slice(start, start + _ROWS_AT_ONCE)))
            for start in range(0, max(1, len(shapes)), _ROWS_AT_ONCE)
        ]
        return LatencyPrediction(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def parts(self, shapes: Shapes, row: int = 0) -> tuple[LatencyPart, ...]:
        """Splits the predicted latency of one row by block, with embedding and output head as the final part.

        The parts sum to the predicted latency. The correction of the Gaussian process is distributed in proportion.
        """
        shape = shapes.take([row])
        times = features_by_block(shape, self.protocol)[0] * self.model.costs.per_unit
        times *= self.predict(shape).ms[0] / times.sum()
        kinds = [BLOCK_KINDS[kind] for kind in shape.kind[0] if kind >= 0]
        named = [*enumerate(kinds), (None, "ends")]
        return tuple(
            LatencyPart(
                block,
                kind,
                float(ms.sum()),
                {name: float(value) for name, value in zip(NAMES, ms, strict=True) if value},
            )
            for (block, kind), ms in zip(named, [*times[: len(kinds)], times[-1]], strict=True)
        )

    def _predict(self, shapes: Shapes) -> LatencyPrediction:
        counted = features(shapes, self.protocol)
        mean, variance = self.model.distribution(counted, descriptors(shapes, counted), self.model.noise)
        mean = regression.rounded(mean, _DIGITS)
        half = self.half_width * np.sqrt(variance)
        low, high = mean * np.exp(-half), mean * np.exp(half)
        return LatencyPrediction(mean, regression.rounded(low, _DIGITS), regression.rounded(high, _DIGITS))


@dataclass(frozen=True)
class _Rows:
    features: Floats
    near: Floats
    latency_ms: Floats
    noise: Floats

    def take(self, chosen: NDArray[np.bool_]) -> _Rows:
        return _Rows(self.features[chosen], self.near[chosen], self.latency_ms[chosen], self.noise[chosen])

    def logarithms(self, costs: regression.UnitCosts) -> Floats:
        return np.log(self.latency_ms / costs.latency(self.features))


@dataclass(frozen=True)
class _Kind:
    """A variant of the model: with or without a robust loss, with or without a Gaussian process. Outliers come from
    devices that jump between speeds or from unusual architectures.
    """

    robust: bool
    kernel: Kernel | None

    def learn(self, rows: _Rows, others: Sequence[Floats]) -> LatencyModel:
        costs = regression.fit(rows.features, rows.latency_ms, rows.noise, _UNITS, others, robust=self.robust)
        left = rows.logarithms(costs)
        variance = float(np.mean(left**2)) + 1e-12
        weights = variance / (variance + rows.noise**2)
        correction = fit_correction(rows.near, _bounded(left) if self.robust else left, weights, self.kernel)
        return LatencyModel(costs, correction, max(correction.noise, _MIN_NOISE))


@dataclass(frozen=True)
class LatencyModel:
    """Model of the distribution of a launch's latency: costs of features, correction and noise."""

    costs: regression.UnitCosts
    correction: Correction
    noise: float
    """Residual variance of the logarithm of a launch's latency."""

    def distribution(self, counted: Floats, near: Floats, noise: float) -> tuple[Floats, Floats]:
        """(n,) latency in ms and (n,) variance of the latency's logarithm, for launches with this noise."""
        base = self.costs.latency(counted)
        mean, variance = self.correction.predict(near)
        return base * np.exp(mean), noise * (1 + variance + self.costs.leverage(counted, base, noise))


@dataclass(frozen=True)
class _Trial:
    """A fitted variant of the model, with the errors on unseen launches."""

    model: LatencyModel
    error: float
    scores: Floats

    @classmethod
    def of(cls, rows: _Rows, others: Sequence[Floats], kind: _Kind, fold: NDArray[np.int64]) -> _Trial:
        model = kind.learn(rows, others)
        errors, scores = np.empty(len(fold)), np.empty(len(fold))
        for number in range(int(fold.max()) + 1):
            unseen = fold == number
            rest, asked = rows.take(~unseen), rows.take(unseen)
            mean, variance = kind.learn(rest, others).distribution(asked.features, asked.near, model.noise)
            errors[unseen] = np.abs(mean / asked.latency_ms - 1)
            scores[unseen] = np.log(asked.latency_ms / mean) / np.sqrt(variance)
        return cls(model, float(errors.mean()), scores)


def _kinds(rows: _Rows, others: Sequence[Floats]) -> list[_Kind]:
    kinds = [_Kind(True, None)]
    for robust in (True, False):
        costs = regression.fit(rows.features, rows.latency_ms, rows.noise, _UNITS, others, robust=robust)
        left = rows.logarithms(costs)
        kernel = choose_kernel(rows.near, _bounded(left) if robust else left)
        if kernel is not None:
            kinds.append(_Kind(robust, kernel))
    return kinds


def _bounded(residuals: Floats) -> Floats:
    """Clips outliers, because a device that jumps between speeds would otherwise distort the correction."""
    reach = _OUTLIER * robust_std(residuals)
    return np.clip(residuals, -reach, reach)
