"""The law of one table: perplexity by shape, by a process with a length scale for each feature.

It is learnt from a table of models that were trained alike, and holds for that: for those data, that split, that
recipe and that budget. Beyond the ranges of its table the interval widens, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.gaussian_process import Expectation, Kernel, Process, evenly_spaced, most_probable, rounded
from edgefront.core.quality.features import BLOCK_NAMES, NAMES, features, names_of_blocks, rounded_features
from edgefront.core.quality.law import Origin, Prediction, QualityLaw

Floats = NDArray[np.float64]

MIN_ROWS = 5
"""Fewer models teach nothing."""
MAX_ROWS = 400
"""Models that a law keeps at most, evenly spaced by perplexity: prediction takes time with their number."""
COVERAGE = 0.95

# The length scales of LTS's two tables and HW-GPT-Bench's roughly agree on these.
_SCALES = (12.0, 5.0, 3.0, 8.0, 12.0, 12.0, 5.0, 4.0, 5.0, 9.0, 6.0, 15.0)
_ALONE = Expectation(Kernel(amplitude=0.1, length_scales=_SCALES, linear=0.05, noise=0.006))
_AFTER_A_PRIOR = Expectation(Kernel(amplitude=0.05, length_scales=_SCALES, linear=0.03, noise=0.006))

_SLOPE_PRIOR_STD = 0.2
"""How far the slope of one law against another may be from 1, before any model is seen."""
_EXTRAPOLATION_STD = 0.05
"""Standard deviation of ln perplexity that is added for each unit (a factor e) beyond the widest range."""
_UNKNOWN_BLOCKS = 4.0
"""Units that a stack is beyond the ranges if all its blocks are of kinds that the table does not have."""
_SLACK = 0.01
"""Units by which a feature may leave its range and still be within: three tokens more are no other vocabulary."""
_FARTHEST = 2.0
"""Units beyond a range up to which the trend is followed; from there on the prediction stays."""
_FOLDS = 10
_UNEVENNESS = ("inner_variation", "inner_trend")


@dataclass(frozen=True, eq=False)
class TableLaw(QualityLaw):
    """Learnt from n models of a table. Made by `fit`, or from its stored form (`core.quality.stored`)."""

    origin: Origin
    inputs: Floats
    """(n, 12) features of the models that were kept, to 6 decimals."""
    log_perplexity: Floats
    """(n,) theirs, to 6 decimals."""
    kernel: Kernel
    models: int
    """Trainings of the table, with those that were not kept."""
    low: Floats
    """(12,) least value of each feature that the law knows."""
    high: Floats
    kinds: frozenset[str]
    """The kinds of `BLOCK_NAMES` that it knows."""
    widening: float
    """Factor of all deviations, by leave-one-out: 1 if the process knows how wrong it is."""
    quantile: float
    """Deviations that hold 95 %; Student's t, for few models tell their deviation badly."""
    prior: TableLaw | None = None
    """The law whose prediction, shifted and scaled, is the mean that the process departs from."""
    slope: float = 1.0
    """Slope against the prior, in ln perplexity."""

    @classmethod
    def fit(
        cls, shapes: Shapes, log_perplexity: ArrayLike, origin: Origin, *, prior: TableLaw | None = None
    ) -> TableLaw:
        """The law of these models. The same models give the same law.

        Raises `InvalidInput` for fewer than five, a perplexity that is no number, and models that are all alike.
        """
        logs: Floats = np.array(log_perplexity, dtype=np.float64).round(6)
        inputs = rounded_features(shapes)
        _check(inputs, logs)
        # Sorted, so that the order of rows in a table changes nothing; a row that is given twice is one training.
        _, order = np.unique(np.column_stack([logs, inputs[:, ::-1]]), axis=0, return_index=True)
        kept = order[evenly_spaced(len(order), MAX_ROWS)]
        low, high = inputs.min(0), inputs.max(0)
        blocks = names_of_blocks(shapes)
        kinds = frozenset(name for index, name in enumerate(BLOCK_NAMES) if (blocks == index).any())
        if prior is not None:
            low, high, kinds = np.minimum(low, prior.low), np.maximum(high, prior.high), kinds | prior.kinds
        inputs, logs = inputs[kept], logs[kept]
        slope = 1.0 if prior is None else _slope(prior.log_of(inputs), logs)
        law = cls(
            origin=origin,
            inputs=inputs,
            log_perplexity=logs,
            kernel=_ALONE.kernel,
            models=len(order),
            low=low,
            high=high,
            kinds=kinds,
            widening=1.0,
            quantile=1.0,
            prior=prior,
            slope=slope,
        )
        left = logs - law._mean(inputs)
        kernel = most_probable(inputs, left, _ALONE if prior is None else _AFTER_A_PRIOR)
        mean, deviation = Process(kernel, inputs, left).leave_one_out()
        widening, quantile = _calibrated((left - mean) / deviation, len(np.unique(inputs, axis=0)))
        return replace(law, kernel=kernel, widening=widening, quantile=quantile)

    def renamed(self, name: str) -> TableLaw:
        return replace(self, origin=replace(self.origin, name=name))

    def predict(self, shapes: Shapes) -> Prediction:
        """Perplexities of these architectures, trained as the law's were. 100,000 take a few seconds."""
        inputs = features(shapes)
        beyond = self._beyond(inputs, shapes)
        mean, deviation = self._process.predict(self._within_reach(inputs))
        return Prediction(mean + self._mean(inputs), self._half_width(deviation, beyond), beyond)

    def expected(self, shapes: Shapes) -> Floats:
        return self.log_of(features(shapes))

    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        """Perplexities by that of the reference (one row)."""
        ours, other = (self._within_reach(features(part)) for part in (shapes, reference))
        mean, deviation = self._process.predict(ours)
        base, base_deviation = self._process.predict(other)
        shared = self._process.covariance(ours, other)[:, 0]
        apart = np.sqrt(np.maximum(deviation**2 + base_deviation**2 - 2 * shared, 2 * self.kernel.noise**2))
        beyond = self._beyond(features(shapes), shapes)
        both = np.hypot(beyond, self._beyond(features(reference), reference))
        log_ratio = mean + self._mean(ours) - base - self._mean(other)
        return Prediction(log_ratio, self._half_width(apart, both), beyond)

    def out_of_sample(self, shapes: Shapes, log_perplexity: ArrayLike) -> tuple[Prediction, NDArray[np.bool_]]:
        """Predicts models that the law was learnt from without them (leave-one-out), others as usual; and tells which.

        A model is known again by its features and its perplexity. The kernel's few parameters still were found with it.
        """
        prediction, inputs = self.predict(shapes), rounded_features(shapes)
        rounded = np.array(log_perplexity, dtype=np.float64).round(6)
        places = {tuple(row): place for place, row in enumerate(_with(self.log_perplexity, self.inputs))}
        place = np.array([places.get(tuple(row), -1) for row in _with(rounded, inputs)], dtype=np.int64)
        is_learnt = place >= 0
        mean, deviation = self._left_out
        logs, widths = prediction.log_perplexity.copy(), prediction.half_width.copy()
        logs[is_learnt] = (mean + self._mean(self.inputs))[place[is_learnt]]
        widths[is_learnt] = self._half_width(deviation, np.zeros(len(deviation)))[place[is_learnt]]
        return Prediction(logs, widths, prediction.beyond), is_learnt

    def has_seen(self, shapes: Shapes) -> NDArray[np.bool_]:
        """Which of these have the features of a model that the law, or one it was learnt after, was learnt from."""
        seen = set(map(tuple, self.inputs.tolist()))
        is_seen = np.array([tuple(row) in seen for row in rounded_features(shapes).tolist()], dtype=np.bool_)
        return is_seen if self.prior is None else is_seen | self.prior.has_seen(shapes)

    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        """Names, for each architecture, the features (and `blocks`) that lie beyond what the law knows."""
        below, above = self._excess(features(shapes))
        unknown = self._unknown(shapes)
        return [
            (*(name for name, out in zip(NAMES, row, strict=True) if out), *(("blocks",) if share else ()))
            for row, share in zip((below + above) > 0, unknown, strict=True)
        ]

    def log_of(self, inputs: Floats) -> Floats:
        """ln perplexity of rows of features, without an interval."""
        return self._process.predict(self._within_reach(inputs))[0] + self._mean(inputs)

    # Parts -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _process(self) -> Process:
        return Process(self.kernel, self.inputs, self.log_perplexity - self._mean(self.inputs))

    @cached_property
    def _left_out(self) -> tuple[Floats, Floats]:
        return self._process.leave_one_out()

    def _mean(self, inputs: Floats) -> Floats:
        """What is expected before the process is asked."""
        level = np.full(len(inputs), self.log_perplexity.mean())
        if self.prior is None:
            return level
        of_own, asked = self._prior_of_own, self.prior.log_of(inputs)
        mean: Floats = level + self.slope * (asked - of_own.mean())
        return mean

    @cached_property
    def _prior_of_own(self) -> Floats:
        assert self.prior is not None
        return self.prior.log_of(self.inputs)

    def _half_width(self, deviation: Floats, beyond: Floats) -> Floats:
        half_width: Floats = self.quantile * np.hypot(self.widening * deviation, _EXTRAPOLATION_STD * beyond)
        return half_width

    def _excess(self, inputs: Floats) -> tuple[Floats, Floats]:
        """How far below and above its range each feature is. Stacks may be more even than those of the table."""
        low = self.low.copy()
        for name in _UNEVENNESS:
            low[NAMES.index(name)] = min(0.0, low[NAMES.index(name)])
        below, above = low - inputs, inputs - self.high
        return np.where(below > _SLACK, below, 0.0), np.where(above > _SLACK, above, 0.0)

    def _within_reach(self, inputs: Floats) -> Floats:
        return np.clip(inputs, self.low - _FARTHEST, self.high + _FARTHEST)

    def _unknown(self, shapes: Shapes) -> Floats:
        """Share of the blocks that are of kinds unknown to the law."""
        kinds = [index for index, name in enumerate(BLOCK_NAMES) if name in self.kinds or name == "identity"]
        blocks = names_of_blocks(shapes)
        share: Floats = ((blocks >= 0) & ~np.isin(blocks, kinds)).sum(1) / np.maximum((blocks >= 0).sum(1), 1)
        return share

    def _beyond(self, inputs: Floats, shapes: Shapes) -> Floats:
        below, above = self._excess(inputs)
        total: Floats = (below + above).max(1, initial=0.0) + _UNKNOWN_BLOCKS * self._unknown(shapes)
        return total


def _with(first: Floats, others: Floats) -> list[list[float]]:
    rows: list[list[float]] = np.column_stack([first, others]).tolist()
    return rows


def folds(inputs: Floats) -> list[NDArray[np.bool_]]:
    """Masks of the models that are left out in each of ten folds, always the same at random.

    Models of the same features are in the same fold: no law predicts what it has seen.
    """
    _, first, shape = np.unique(inputs, axis=0, return_index=True, return_inverse=True)
    shapes = len(first)
    drawn = np.empty(shapes)
    drawn[np.argsort(first)] = np.random.Generator(np.random.PCG64(0)).random(shapes)
    place = (np.argsort(np.argsort(drawn, kind="stable"), kind="stable") % _FOLDS)[shape.reshape(-1)]
    return [place == index for index in range(min(_FOLDS, shapes))]


def cross_validated(shapes: Shapes, log_perplexity: ArrayLike, *, prior: TableLaw | None = None) -> Prediction:
    """Each model predicted by a law that was learnt from the other folds alone. Errors as in `TableLaw.fit`."""
    truth = np.asarray(log_perplexity, dtype=np.float64)
    logs, widths, beyond = np.empty(len(truth)), np.empty(len(truth)), np.empty(len(truth))
    for left in folds(rounded_features(shapes)):
        law = TableLaw.fit(shapes.take(~left), truth[~left], Origin("fold", "fold"), prior=prior)
        prediction = law.predict(shapes.take(left))
        logs[left], widths[left], beyond[left] = prediction.log_perplexity, prediction.half_width, prediction.beyond
    return Prediction(logs, widths, beyond)


def _check(inputs: Floats, logs: Floats) -> None:
    if len(inputs) != len(logs):
        raise InvalidInput(f"{len(inputs)} architectures and {len(logs)} perplexities", field="perplexity")
    wrong: Sequence[int] = np.flatnonzero(~np.isfinite(logs)).tolist()
    if wrong:
        raise InvalidInput(
            f"the perplexity of model {wrong[0] + 1} is no finite number above 0",
            field="perplexity",
            value=str(logs[wrong[0]]),
            allowed="a finite number above 0",
        )
    if len(logs) < MIN_ROWS:
        raise InvalidInput(
            f"{len(logs)} trained models teach no law: at least {MIN_ROWS} are needed",
            field="table",
            value=len(logs),
            allowed=f"at least {MIN_ROWS} trained models",
        )
    _, first, shape = np.unique(inputs, axis=0, return_index=True, return_inverse=True)
    if len(first) < MIN_ROWS:
        shape = shape.reshape(-1)
        again = next(index for index in range(len(shape)) if first[shape[index]] < index)
        raise InvalidInput(
            f"the models have {len(first)} different shapes (model {again + 1} has that of model "
            f"{first[shape[again]] + 1}): at least {MIN_ROWS} are needed",
            field="table",
            value=len(first),
            allowed=f"models of at least {MIN_ROWS} different shapes",
        )
    if np.ptp(logs) == 0:
        raise InvalidInput(
            f"all {len(logs)} models have the same perplexity, {np.exp(logs[0]):.6g}: nothing depends on shape",
            field="perplexity",
            value=float(np.exp(logs[0])),
            allowed="perplexities that differ",
        )


def _slope(prior: Floats, logs: Floats) -> float:
    """Slope of ln perplexity against the prior's values, by ridge regression around 1."""
    apart, left = prior - prior.mean(), logs - logs.mean()
    stiffness = _AFTER_A_PRIOR.kernel.amplitude**2 / _SLOPE_PRIOR_STD**2
    return rounded(1 + float(apart @ (left - apart)) / (float(apart @ apart) + stiffness))


def _calibrated(scores: Floats, shapes: int) -> tuple[float, float]:
    """Factor of all deviations and the quantile of Student's t, from residuals in deviations of leave-one-out.

    Models of one shape are left out together, so that all of them prove as much as one. A fitted kernel makes the
    residuals too small, as if it took up to 8 models; 4 residuals of size 1 are thought to have been seen before.
    """
    from scipy.stats import t

    before = 4
    freedom = shapes - min(8.0, 0.4 * shapes) + before
    widening = float(np.sqrt((scores @ scores * (shapes / len(scores)) + before) / freedom))
    return rounded(widening), rounded(float(t.ppf((1 + COVERAGE) / 2, freedom)))
