"""Covariances of ln perplexity of trained models, from published tables of training results: `Covariance` is
hierarchical over several tables; `LengthScales` has a length scale for each feature within a single table.

| symbol | here | meaning |
| --- | --- | --- |
| y | `log_perplexity` | ln perplexity of a training, nats a token |
| x | `inputs` | (12,) features of the shape (`core.quality.features`) |
| D | `log_tokens` | ln of the training tokens |
| m(x, D) | `trend` | power laws of shape and tokens (`core.quality.features`) |
| g(x), g(x, D) | `Shared` | Matérn 5/2 processes that all tables share |
| a, s, b | `Deviation.shift`, `.scale`, `.slope` | effects of one table: y = a + (1 + s) m + b ln D + … |
| h(x) | `Deviation.shape`, `.embedding` | processes of one table |

All numbers are standard deviations in ln perplexity. The shape processes are Matérn 5/2 on ln block parameters, ln
layers, ln d_model and ln d_inner in the units below. The deviations of unseen data were chosen so that the intervals
hold for each of LTS's five tables when the table is left out (docs/quality-laws.md, "Accuracy").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.gaussian_process import Kernel, matern52
from edgefront.core.quality.features import BLOCK_NAMES, LOG_TOKENS, NAMES, names_of_blocks
from edgefront.core.quality.predictor import Origin

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

NO_MODEL = -1
"""Value of `Rows.model` for a predicted model, because a predicted model belongs to no training."""

_LENGTH = 2.0
"""Length scale of the shape processes, in the units of `_SHAPE` and `_EMBEDDING`."""
_SHAPE = {"log_decoder": 1.0, "log_depth": 0.6, "log_d_model": 0.5, "log_d_inner": 0.4}
_EMBEDDING = {"log_div": 0.8 * float(np.log(2)), "log_rank": 0.5}
_LINEAR = {"log_heads": 0.5, "inner_variation": 0.4, "inner_trend": 0.4}
_TOKEN_LENGTH = 1.5
"""Length scale of the processes over ln of the training tokens."""
_NATS = 3.5
"""Loss in nats at which a table's scale has no effect."""


@dataclass(frozen=True)
class Deviation:
    """Standard deviations, in ln perplexity, of effects that are specific to one table of trained models."""

    shift: float
    """Standard deviation of an offset common to all models of the table."""
    slope: float
    """Standard deviation of a slope over ln tokens common to all models of the table."""
    scale: float
    """Standard deviation of a relative change of the trend's scale."""
    shape: float
    embedding: float
    """Standard deviation of the effect of rank and factor of the embedding in the table."""
    model: float
    """Standard deviation of one training over the whole learning curve: seeds, and effects that no feature explains."""
    data_embedding: float = 0.0
    """Standard deviation of the effect of rank and factor of the embedding that all tables of a data set share."""


LTS = Deviation(shift=1.0, slope=0.1, scale=0.14, shape=0.012, embedding=0.045, model=0.008, data_embedding=0.06)
"""Deviations of one of LTS's tables."""
UNSEEN_DATA = Deviation(
    shift=1.0, slope=0.1, scale=0.14, shape=0.012, embedding=0.045, model=0.026, data_embedding=0.06
)
"""Deviations of data and a recipe that no table has: `LTS`, with the residuals of tables that were left out."""
GEMSTONES = Deviation(shift=0.5, slope=0.05, scale=0.05, shape=0.012, embedding=0.0, model=0.006)
"""Deviations of a recipe on the Gemstones' data."""
UNSEEN_RECIPE = Deviation(shift=0.5, slope=0.05, scale=0.05, shape=0.012, embedding=0.0, model=0.012)
"""Deviations of an unseen recipe on a table's data, from the difference between half and full learning rate."""


@dataclass(frozen=True)
class Shared:
    """Standard deviations, in ln perplexity, of effects that all tables of a study share, besides the shared trend."""

    shape: float
    shape_by_tokens: float
    """Standard deviation of the effect of shape that varies with the training tokens."""
    linear: float
    """Standard deviation of the slopes over heads, variation and trend of the inner widths."""
    row: float
    """Standard deviation of one evaluation."""


class Rows(NamedTuple):
    """n trained or predicted models, each after a number of training tokens."""

    inputs: Floats
    """(n, 12) features of the shapes."""
    log_tokens: Floats
    """(n,) ln of the training tokens."""
    trend: Floats
    """(n,) trend m(x, D), nats."""
    differences: Floats
    """(n, len(DIFFERENCES)) differences from the tables' models in features that no table varies."""
    table: Places
    """(n,) index into `Covariance.deviations`."""
    data: Places
    """(n,) index of the data set."""
    model: Places
    """(n,) index of the training, or `NO_MODEL`."""

    def take(self, chosen: Places | NDArray[np.bool_]) -> Rows:
        return Rows._make(column[chosen] for column in self)

    @classmethod
    def joined(cls, first: Rows, second: Rows) -> Rows:
        return cls._make(map(np.concatenate, zip(first, second, strict=True)))


@dataclass(frozen=True)
class Covariance:
    """Hierarchical covariance of residuals (ln perplexity minus trend), over several tables of trained models."""

    shared: Shared
    deviations: tuple[Deviation, ...]
    """Deviations for each value of `Rows.table`."""
    stated: Floats
    """(a,) standard deviation of the effect of each difference."""

    @property
    def row_variance(self) -> float:
        """Variance of the ln perplexity of one evaluation."""
        return self.shared.row**2

    def between(self, first: Rows, second: Rows) -> Floats:
        """(n, m) covariance between the ln perplexities of n and of m rows, without the noise of an evaluation."""
        shape = matern52(_columns(first, _SHAPE), _columns(second, _SHAPE))
        total = self.shared.shape**2 * shape
        stage: Floats | float = 1.0  # 1 if no table varies the tokens
        if self.shared.shape_by_tokens:
            asked = first.log_tokens[:1] if np.ptp(first.log_tokens) == 0 else first.log_tokens  # one row suffices
            stage = matern52(asked[:, None] / _TOKEN_LENGTH, second.log_tokens[:, None] / _TOKEN_LENGTH)
            total += self.shared.shape_by_tokens**2 * shape * stage
        if self.shared.linear:
            total += self.shared.linear**2 * _columns(first, _LINEAR, 1.0) @ _columns(second, _LINEAR, 1.0).T
        if first.differences.any() and second.differences.any():
            total += (first.differences * self.stated**2) @ second.differences.T
        same_data, same = (getattr(first, name)[:, None] == getattr(second, name)[None] for name in ("data", "table"))
        if same_data.any():
            embedding = matern52(_columns(first, _EMBEDDING), _columns(second, _EMBEDDING))
            data = self._of("data_embedding", first)[:, None] * self._of("data_embedding", second)[None]
            total += same_data * data * embedding
            if same.any():  # every table has one data set
                total += same * self._own(first, second, shape, stage, embedding)
        return np.asarray(total)

    def _own(self, first: Rows, second: Rows, shape: Floats, stage: Floats | float, embedding: Floats) -> Floats:
        """(n, m) covariance between n and m rows of the same table, due to effects that only this table has."""
        own = self._of("shift", first)[:, None] ** 2 + self._of("embedding", first)[:, None] ** 2 * embedding
        own = own + np.outer(*(self._of("slope", rows) * (rows.log_tokens - LOG_TOKENS) for rows in (first, second)))
        own = own + np.outer(*(self._of("scale", rows) * (rows.trend - _NATS) for rows in (first, second)))
        own = own + self._of("shape", first)[:, None] ** 2 * shape * (0.5 + 0.5 * stage)
        training = (first.model[:, None] == second.model[None]) & (first.model[:, None] != NO_MODEL)
        return np.asarray(own + training * self._of("model", first)[:, None] ** 2 * stage)

    def variance(self, rows: Rows) -> Floats:
        """(n,) prior variance of each ln perplexity, including the noise of the training and the evaluation."""
        shift, slope, scale = (self._of(name, rows) for name in ("shift", "slope", "scale"))
        own = shift**2 + (slope * (rows.log_tokens - LOG_TOKENS)) ** 2 + (scale * (rows.trend - _NATS)) ** 2
        own += sum(self._of(name, rows) ** 2 for name in ("embedding", "shape", "model", "data_embedding"))
        shared = self.shared.shape**2 + self.shared.shape_by_tokens**2 + self.shared.row**2
        linear = self.shared.linear**2 * (_columns(rows, _LINEAR, 1.0) ** 2).sum(1)
        return np.asarray(own + shared + linear + (rows.differences**2) @ self.stated**2)

    def _of(self, name: str, rows: Rows) -> Floats:
        return np.array([getattr(deviation, name) for deviation in self.deviations])[rows.table]


_EXTRAPOLATION_STD = 0.05
"""Standard deviation of ln perplexity added for each unit (a factor e) beyond the features' ranges in the table."""
_UNKNOWN_BLOCKS = 4.0
"""Distance in units beyond the ranges of a stack in which all blocks are of kinds that the table lacks."""
_SLACK = 0.01
"""Tolerance of the features' ranges, in units, so that a vocabulary with three more tokens is within the range."""
_FARTHEST = 2.0
"""Distance in units beyond a range at which features are clipped."""
_UNEVENNESS = ("inner_variation", "inner_trend")


class Excess(NamedTuple):
    """Distances of n architectures beyond the ranges of a scaling law's data."""

    names: tuple[str, ...]
    """Names of `columns`."""
    columns: Floats
    """(n, c) distance beyond the range of each feature; 0 within the range."""
    total: Floats
    """(n,) total distance beyond the ranges."""
    variance: Floats
    """(n,) variance of ln perplexity to add for the distance."""


class LawOfFeatures(Protocol):
    """Interface of a scaling law fitted to one table. Such a scaling law predicts from features alone."""

    @property
    def origin(self) -> Origin: ...

    def of_features(self, inputs: Floats) -> Floats: ...


@dataclass(frozen=True, eq=False)
class LengthScales:
    """Gaussian process with a length scale for each feature, for a single table of trained models. The prior mean is
    constant, or the prediction of another table's scaling law. Within a large table, `LengthScales` ranks the best
    models better than `Covariance`.
    """

    kernel: Kernel
    centre: Floats
    """(12,) mean of the table's features."""
    level: float
    """Mean of ln perplexity, or of the residuals from `base` if given."""
    models: int
    """Number of trainings of the table, including dropped trainings."""
    low: Floats
    """(12,) minimum of each feature in the table; `high` is the maximum."""
    high: Floats
    kinds: frozenset[str]
    """Block kinds in the table, from `BLOCK_NAMES`."""
    widening: float = 1.0
    """Factor of all standard deviations, calibrated by leave-one-out predictions."""
    quantile: float = 1.0
    """Half-width of a 95 % interval in standard deviations, by Student's t."""
    base: LawOfFeatures | None = None
    """Scaling law of another table. The prior mean is the prediction of this law, times `slope`."""
    slope: float = 1.0

    @property
    def row_variance(self) -> float:
        return self.kernel.noise**2

    def expected(self, inputs: Floats) -> Floats:
        """(n,) prior mean of ln perplexity of models with these features."""
        mean = np.full(len(inputs), self.level)
        return mean if self.base is None else mean + self.slope * self.base.of_features(inputs)

    def between(self, first: Rows, second: Rows) -> Floats:
        """(n, m) prior covariance between the ln perplexities of n and of m rows, without noise."""
        return self.kernel.between(self._within_reach(first), self._within_reach(second), self.centre)

    def variance(self, rows: Rows) -> Floats:
        """(n,) prior variance of each ln perplexity, including noise."""
        return self.kernel.variance(self._within_reach(rows), self.centre)

    def excess(self, shapes: Shapes, inputs: Floats) -> Excess:
        """Distances of shapes beyond the ranges of the table. More uniform stacks than the table's have distance 0."""
        low = self.low.copy()
        for name in _UNEVENNESS:
            low[NAMES.index(name)] = min(0.0, low[NAMES.index(name)])
        beyond = np.maximum(np.maximum(low - inputs, inputs - self.high), 0.0)
        beyond = np.where(beyond > _SLACK, beyond, 0.0)
        known = [index for index, name in enumerate(BLOCK_NAMES) if name in self.kinds or name == "identity"]
        blocks = names_of_blocks(shapes)
        unknown = ((blocks >= 0) & ~np.isin(blocks, known)).sum(1) / np.maximum((blocks >= 0).sum(1), 1)
        total = beyond.max(1, initial=0.0) + _UNKNOWN_BLOCKS * unknown
        columns = np.column_stack([beyond, unknown])
        return Excess((*NAMES, "blocks"), columns, total, (_EXTRAPOLATION_STD * total) ** 2)

    def _within_reach(self, rows: Rows) -> Floats:
        return np.clip(rows.inputs, self.low - _FARTHEST, self.high + _FARTHEST)


def _columns(rows: Rows, units: dict[str, float], length: float = _LENGTH) -> Floats:
    """(n, q) columns of the q features in `units`, each divided by the feature's length scale."""
    places = [NAMES.index(name) for name in units]
    return np.asarray(rows.inputs[:, places] / (np.array(list(units.values())) * length))


_CHUNK = 4096
"""Number of rows that are predicted together, so that the covariances fit into the CPU's cache."""


class Posterior:
    """Posterior of ln perplexity given rows of trained models (Rasmussen & Williams 2006, §2.2)."""

    def __init__(
        self, covariance: Covariance | LengthScales, rows: Rows, residuals: Floats, inverse: Floats, factor: float
    ) -> None:
        self.covariance, self.rows, self.residuals, self.factor = covariance, rows, residuals, factor
        self.inverse = inverse
        """(n, n) inverse of the Cholesky factor of the rows' covariance."""
        self.weights = inverse.T @ (inverse @ residuals)

    @classmethod
    def of(
        cls, covariance: Covariance | LengthScales, rows: Rows, log_perplexity: Floats, factor: float = 1.0
    ) -> Posterior:
        """Computes the posterior given rows of trained models; `factor` scales all variances."""
        inverse = np.linalg.inv(np.linalg.cholesky(_noisy(covariance, rows)))
        return cls(covariance, rows, log_perplexity - rows.trend, inverse, factor)

    def after(self, rows: Rows, log_perplexity: Floats, factor: float) -> Posterior:
        """Adds further rows of trained models to the posterior by a Cholesky update; `factor` scales all variances."""
        seen, count = len(self.residuals), len(log_perplexity)
        near = self.covariance.between(rows, self.rows) @ self.inverse.T
        corner = np.linalg.inv(np.linalg.cholesky(_noisy(self.covariance, rows) - near @ near.T))
        inverse = np.zeros((seen + count, seen + count))
        inverse[:seen, :seen] = self.inverse
        inverse[seen:, :seen] = -corner @ (near @ self.inverse)
        inverse[seen:, seen:] = corner
        residuals = np.concatenate([self.residuals, log_perplexity - rows.trend])
        return Posterior(self.covariance, Rows.joined(self.rows, rows), residuals, inverse, factor)

    def expected(self, asked: Rows) -> Floats:
        """(n,) posterior mean of the ln perplexities of these rows."""
        means = [part.trend + near @ self.weights for part, near in self._parts(asked)]
        return np.concatenate([np.empty(0), *means])

    def _parts(self, asked: Rows) -> Iterator[tuple[Rows, Floats]]:
        """Splits `asked` into chunks. Yields each chunk of n rows, and the (n, m) covariance with the posterior's m
        rows.
        """
        for start in range(0, len(asked.trend), _CHUNK):
            part = asked.take(np.arange(start, min(start + _CHUNK, len(asked.trend))))
            yield part, self.covariance.between(part, self.rows)

    def predict(self, asked: Rows) -> tuple[Floats, Floats]:
        """(n,) posterior mean and (n,) posterior variance of the ln perplexities of these rows."""
        means, variances = [np.empty(0)], [np.empty(0)]
        for part, near in self._parts(asked):
            means.append(part.trend + near @ self.weights)
            left = self.covariance.variance(part) - ((near @ self.inverse.T) ** 2).sum(1)
            variances.append(np.maximum(left, self.covariance.row_variance))
        return np.concatenate(means), np.concatenate(variances) * self.factor

    def ratio(self, asked: Rows, other: Rows) -> tuple[Floats, Floats]:
        """(n,) mean and (n,) variance of ln(perplexity / perplexity of `other`, one row), with the noise of both."""
        base_near = self.covariance.between(other, self.rows)
        base_seen = self.inverse @ base_near[0]
        base_variance = float(self.covariance.variance(other)[0] - base_seen @ base_seen)
        base_mean = float(other.trend[0] + base_near[0] @ self.weights)
        means, variances = [np.empty(0)], [np.empty(0)]
        for part, near in self._parts(asked):
            seen = near @ self.inverse.T
            means.append(part.trend + near @ self.weights - base_mean)
            own = self.covariance.variance(part) - (seen**2).sum(1)
            together = self.covariance.between(part, other)[:, 0] - seen @ base_seen
            variances.append(np.maximum(own + base_variance - 2 * together, 0.0))
        return np.concatenate(means), np.concatenate(variances) * self.factor

    def covariances(self, asked: Rows) -> tuple[Floats, Floats]:
        """(n, n) posterior covariance of ln perplexities; and (n,) noise variance of training and evaluation."""
        near = self.covariance.between(asked, self.rows) @ self.inverse.T
        prior = self.covariance.between(asked, asked)
        noise = self.covariance.variance(asked) - np.diagonal(prior)
        return (prior - near @ near.T) * self.factor, noise * self.factor

    def squared_mahalanobis(self, asked: Rows, log_perplexity: Floats) -> float:
        """Squared Mahalanobis distance of the ln perplexities of further rows from the predicted ln perplexities."""
        near = self.covariance.between(asked, self.rows) @ self.inverse.T
        expected = _noisy(self.covariance, asked) - near @ near.T
        residual = log_perplexity - asked.trend - self.covariance.between(asked, self.rows) @ self.weights
        return float(residual @ np.linalg.solve(expected, residual))


def _noisy(covariance: Covariance | LengthScales, rows: Rows) -> Floats:
    """(n, n) covariance of the observed ln perplexities of n rows, including the noise of evaluations."""
    observed = covariance.between(rows, rows)
    observed[np.diag_indices_from(observed)] += covariance.row_variance
    return observed
