"""Predicts the latency of any architecture on a device under a protocol, from launches of others.

The sum of costs of features (`regression`), a correction that a Gaussian process learns (`residual`), and an interval that
errors on unseen launches have fixed (`calibration`). All of it is a function of the launches, whatever their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.prediction import calibration, regression, residual
from edgefront.core.prediction.checks import enough_different, positive
from edgefront.core.prediction.features import NAMES, descriptors, features, features_by_block
from edgefront.core.spaces.block import BLOCK_KINDS

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 4096
_OUTLIER = 3.0
_NORMAL = 1.4826
_DIGITS = 8
"""Of a prediction, in significant digits: what any platform computes alike."""


class Prediction(NamedTuple):
    """(n,) ms each: what is expected, and where one launch's median lies with 95 %."""

    ms: Floats
    low: Floats
    high: Floats

    @property
    def deviation(self) -> Floats:
        """(n,) standard deviation of the logarithm, as a normal distribution with this interval has it."""
        return np.asarray(np.log(self.high / self.low) / (2 * 1.959964))


class Part(NamedTuple):
    """What one block takes of a predicted latency; `block` is None for the ends and what belongs to no block."""

    block: int | None
    kind: str
    ms: float
    by_feature: Mapping[str, float]
    """Feature → ms."""


@dataclass(frozen=True)
class LatencyPredictor:
    """What launches of a device under a protocol have taught."""

    protocol: MeasurementProtocol
    launches: int
    """Architectures that it learnt from."""
    costs: regression.Costs
    process: residual.Process
    half_width: float
    """Standard deviations that an interval reaches to either side."""

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
        """Learns from n architectures and the median latency of each, over `launches` (n,) launches (1).

        Args:
            noise: relative standard deviation of one launch's median (`LaunchVariance.relative`), where known.
            prior: predictors of other devices, or of this one under similar protocols: the proportions of their costs
                stand in for what few launches leave open.

        Raises `InvalidInput` that names the row, also where fewer than three architectures differ.
        """
        measured = positive("latency_ms", latency_ms, len(shapes))
        repeated = np.ones(len(shapes)) if launches is None else positive("launches", launches, len(shapes))
        counted = features(shapes, protocol)
        enough_different(counted)
        near = descriptors(shapes, counted)
        order = np.lexsort(np.column_stack([measured, repeated, near, counted]).T)
        rows = _Rows(counted[order], near[order], measured[order], (noise or 0.0) / np.sqrt(repeated[order]))
        others = [one.costs.per_unit for one in prior]
        costs = regression.fit(rows.features, rows.latency_ms, rows.noise, others)
        kernel = residual.choose(rows.near, _bounded(rows.logarithms(costs)))
        scores = np.empty(len(rows.latency_ms))
        fold = calibration.folds(rows.features, rows.latency_ms)
        for number in range(int(fold.max()) + 1):
            seen, unseen = rows.take(fold != number), rows.take(fold == number)
            base, process = _learn(seen, others, kernel)
            mean, deviation = _distribution(unseen.features, unseen.near, base, process)
            scores[fold == number] = np.log(unseen.latency_ms / mean) / np.sqrt(deviation)
        found, process = _learn(rows, others, kernel)
        return cls(protocol, len(rows.latency_ms), found, process, calibration.half_width(scores))

    def predict(self, shapes: Shapes) -> Prediction:
        """Latencies of these architectures under the predictor's protocol."""
        parts = [
            self._predict(shapes.take(slice(start, start + _ROWS_AT_ONCE)))
            for start in range(0, max(1, len(shapes)), _ROWS_AT_ONCE)
        ]
        return Prediction(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def parts(self, shapes: Shapes, row: int = 0) -> tuple[Part, ...]:
        """Where the predicted milliseconds of one row go: a part for each block, then the ends; they sum to `ms`.

        The correction of the Gaussian process is spread over all in proportion.
        """
        one = shapes.take([row])
        found = features_by_block(one, self.protocol)[0] * self.costs.per_unit
        found *= self.predict(one).ms[0] / found.sum()
        kinds = [BLOCK_KINDS[kind] for kind in one.kind[0] if kind >= 0]
        named = [(index, kind) for index, kind in enumerate(kinds)]
        parts = [self._part(index, kind, found[index]) for index, kind in named]
        return (*parts, self._part(None, "ends", found[-1]))

    def widened(self, by: float) -> LatencyPredictor:
        """The same with intervals that are wider by this factor, at least 1."""
        if not by >= 1:
            raise InvalidInput(f"by must be at least 1, not {by}", field="by", value=by, allowed="at least 1")
        return replace(self, half_width=self.half_width * by)

    def audited(self, shapes: Shapes, latency_ms: ArrayLike) -> LatencyPredictor:
        """The same, its intervals widened as launches ask for that were predicted before they were made."""
        measured = positive("latency_ms", latency_ms, len(shapes))
        predicted = self.predict(shapes)
        errors = np.log(measured / predicted.ms)
        return self.widened(calibration.widening(errors, np.log(predicted.high / predicted.ms)))

    def _predict(self, shapes: Shapes) -> Prediction:
        counted = features(shapes, self.protocol)
        mean, variance = _distribution(counted, descriptors(shapes, counted), self.costs, self.process)
        mean, half = regression.rounded(mean, _DIGITS), self.half_width * np.sqrt(variance)
        low, high = mean * np.exp(-half), mean * np.exp(half)
        return Prediction(mean, regression.rounded(low, _DIGITS), regression.rounded(high, _DIGITS))

    def _part(self, block: int | None, kind: str, ms: Floats) -> Part:
        by_feature = {name: float(value) for name, value in zip(NAMES, ms, strict=True) if value}
        return Part(block, kind, float(ms.sum()), by_feature)


@dataclass(frozen=True)
class _Rows:
    features: Floats
    near: Floats
    latency_ms: Floats
    noise: Floats

    def take(self, chosen: NDArray[np.bool_]) -> _Rows:
        return _Rows(self.features[chosen], self.near[chosen], self.latency_ms[chosen], self.noise[chosen])

    def logarithms(self, costs: regression.Costs) -> Floats:
        return np.log(self.latency_ms / costs.latency(self.features))


def _learn(
    rows: _Rows, others: Sequence[Floats], kernel: residual.Kernel
) -> tuple[regression.Costs, residual.Process]:
    costs = regression.fit(rows.features, rows.latency_ms, rows.noise, others)
    total = costs.deviation**2 + rows.noise**2
    weights = float(total.mean()) / total
    return costs, residual.fit(rows.near, _bounded(rows.logarithms(costs)), weights, kernel)


def _distribution(
    counted: Floats, near: Floats, costs: regression.Costs, process: residual.Process
) -> tuple[Floats, Floats]:
    """(n,) latency in ms and (n,) variance of its logarithm."""
    base = costs.latency(counted)
    mean, variance = process.predict(near)
    return base * np.exp(mean), process.noise + variance + costs.variance(counted, base)


def _bounded(residuals: Floats) -> Floats:
    """Outliers drawn in, so that a device that jumps does not bend the correction."""
    reach = _OUTLIER * _NORMAL * float(np.median(np.abs(residuals)))
    return np.clip(residuals, -reach, reach)
