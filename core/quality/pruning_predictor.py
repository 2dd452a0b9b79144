"""Predicts the perplexity of a pruned model before any further training.

| symbol | here | meaning |
| --- | --- | --- |
| l | `Alignment.loss` | sum of the losses of the single cuts (`core.quality.pruning_table`), nats per token |
| c | `SCALE` | loss below which a text does not distinguish a cut model from the parent |
| s(l) | `_squashed` | arcsinh(l / 2c): logarithmic for large losses, linear below c |
| k | `Alignment.count` | number of cuts |
| x | `_regressors` | (5,) ln k times: 1, s(l), ln of the share of parameters left out, shares of two kinds of cuts |
| β | `_Fit.mean` | (5,) weights with the prior N(0, `PRIOR_STD`²): losses add up |

1. Measure the losses of single cuts (narrowed or removed parts of the model). The losses do not simply add up, because
   many harmless cuts may be harmful together.
2. Fit the Bayesian linear regression s(loss) = s(l) + x·β (Rasmussen & Williams 2006, §2.1) to evaluated combinations
   of cuts.
3. Calibrate the intervals by leave-one-out predictions of the combinations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.features import BLOCK_NAMES, features, names_of_blocks, rounded_features
from edgefront.core.quality.predictor import Origin, PerplexityPredictor, Prediction
from edgefront.core.quality.pruning_table import Alignment, PruningTable

Floats = NDArray[np.float64]

LEVEL = 0.95
SCALE = 0.02
"""c, in nats per token: the difference of a cut's loss between two texts of some thousand tokens."""
PRIOR_STD = np.array([0.3, 0.2, 0.3, 0.3, 0.3])
"""Prior standard deviations of β, for a constant, the squashed sum, ln of the share of parameters left out, and the
shares of dropped blocks and of channels in the sum. The loss of a combination in a small model is 1 to 10 times the sum
of the single cuts' losses."""
TEXT_DEVIATION = 0.08
"""Standard deviation of a squashed loss between texts. Losses of single blocks of a model of 3 M parameters differ by 4
to 16 %."""
MIN_LEFT_OUT = 0.01
"""Minimum share of the blocks' parameters that counts as removed by a cut."""
MAX_SQUASHED = 7.5
"""Maximum of a predicted squashed loss, equivalent to 36 nats."""
MIN_DEVIATION = 0.05
"""Minimum standard deviation of a squashed loss of e cuts, because a few combinations may agree by chance."""


@dataclass(frozen=True, eq=False)
class PruningPredictor(PerplexityPredictor):
    """Predicts the perplexity of submodels of one parent model, for the text that the cuts were measured on."""

    origin: Origin
    table: PruningTable
    parent_log_perplexity: float
    architectures: tuple[Architecture, ...]
    """Evaluated submodels with several cuts each."""
    log_perplexity: Floats
    """(n,) ln perplexities of the evaluated submodels."""

    @property
    def parent(self) -> Architecture:
        """The model that is pruned."""
        return self.table.parent

    @property
    def models(self) -> int:  # type: ignore[override]
        """Number of evaluated combinations of cuts."""
        return len(self.architectures)

    @property
    def about(self) -> str:
        of = self.origin
        return f"{of.data}, {of.split} split, per {of.tokens}; {of.trained}; law {of.name}"

    @cached_property
    def low(self) -> Floats:  # type: ignore[override]
        return np.asarray(self._known.min(0))

    @cached_property
    def high(self) -> Floats:  # type: ignore[override]
        return np.asarray(self._known.max(0))

    @cached_property
    def kinds(self) -> frozenset[str]:  # type: ignore[override]
        places = names_of_blocks(self.table.shapes)
        return frozenset(BLOCK_NAMES[place] for place in np.unique(places) if place >= 0)

    @cached_property
    def _known(self) -> Floats:
        return features(Shapes.of([self.parent, *self.architectures]))

    def renamed(self, name: str) -> PruningPredictor:
        return replace(self, origin=replace(self.origin, name=name))

    def check(self, shapes: Shapes) -> None:
        """Raises `InvalidInput` unless all of these architectures are submodels of the parent."""
        self._aligned(shapes)

    def predict(self, shapes: Shapes) -> Prediction:
        alignment = self._aligned(shapes)
        loss, half_width = self._loss(shapes, alignment)
        return Prediction(self.parent_log_perplexity + loss, half_width, self._beyond(alignment))

    def expected(self, shapes: Shapes) -> Floats:
        alignment = self.table.align(shapes)
        loss, _ = self._loss(shapes, alignment)
        return np.where(alignment.is_part, self.parent_log_perplexity + loss, np.inf)

    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        """Predicts ratios of perplexities. Errors of two submodels count as independent; the parent has no error."""
        alignment, against = self._aligned(shapes), self._aligned(reference)
        loss, half_width = self._loss(shapes, alignment)
        other, other_half_width = self._loss(reference, against)
        same = (rounded_features(shapes) == rounded_features(reference)).all(1) & (alignment.loss == against.loss)
        return Prediction(
            np.where(same, 0.0, loss - other),
            np.where(same, 0.0, np.hypot(half_width, other_half_width)),
            np.maximum(self._beyond(alignment), self._beyond(against)),
        )

    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        beyond = self._beyond(self._aligned(shapes))
        return [("larger cuts than were tried",) if is_beyond else () for is_beyond in beyond > 0]

    def _aligned(self, shapes: Shapes) -> Alignment:
        alignment = self.table.align(shapes)
        if not alignment.is_part.all():
            number = int(np.argmin(alignment.is_part))
            raise InvalidInput(
                f"the pruning predictor {self.origin.name} needs submodels of one model, but model {number} has other "
                "or wider blocks",
                field="law",
                value=self.origin.name,
                allowed="another scaling law, or submodels of the model",
            )
        return alignment

    # The regression -----------------------------------------------------------------------------------------------

    def _loss(self, shapes: Shapes, alignment: Alignment) -> tuple[Floats, Floats]:
        """Pair: (n,) loss added to the parent's, nats per token, and (n,) half-width of the added loss's interval. The
        added loss is inf for an architecture that is not a submodel.
        """
        is_part, is_cut = alignment.is_part, shapes.total_parameters != self.table.shapes.total_parameters[0]
        rows, fitted = self._regressors(shapes, alignment), self._fit
        noise = np.hypot(fitted.deviation * _noise(alignment), TEXT_DEVIATION)
        spread = np.sqrt(noise**2 + np.einsum("ni,ij,nj->n", rows, fitted.covariance, rows))
        middle = _squashed(np.where(is_part, alignment.loss, 0.0)) + rows @ fitted.mean
        loss, low, high = (
            2 * SCALE * np.sinh(np.clip(middle + side * fitted.quantile * spread, -MAX_SQUASHED, MAX_SQUASHED))
            for side in (0, -1, 1)
        )
        half_width = np.maximum(high - loss, loss - low)
        return np.where(is_part, loss * is_cut, np.inf), half_width * is_cut

    def _beyond(self, alignment: Alignment) -> Floats:
        tried = self._tried.loss.max()
        return np.asarray(np.maximum(alignment.loss - tried, 0.0))

    @cached_property
    def _tried(self) -> Alignment:
        return self.table.align(Shapes.of(self.architectures))

    @cached_property
    def _fit(self) -> _Fit:
        losses = self.log_perplexity - self.parent_log_perplexity
        shapes = Shapes.of(self.architectures)
        deviations, noise = _squashed(losses) - _squashed(self._tried.loss), _noise(self._tried)
        return _fit(self._regressors(shapes, self._tried) / noise[:, None], deviations / noise)

    def _regressors(self, shapes: Shapes, alignment: Alignment) -> Floats:
        """(n, 5) regressors of each submodel, in the order of `PRIOR_STD`."""
        total = np.where(alignment.is_part, alignment.loss, 0.0)
        left_out = np.clip(1 - shapes.decoder_parameters / self.table.shapes.decoder_parameters[0], MIN_LEFT_OUT, 1.0)
        parts = [np.where(alignment.is_part, part, 0.0) for part in (alignment.dropped, alignment.width)]
        shares = [part / np.maximum(total, SCALE) for part in parts]
        columns = np.column_stack([np.ones(len(total)), _squashed(total), np.log(left_out), *shares])
        return np.asarray(columns * _log_count(alignment)[:, None])


@dataclass(frozen=True, eq=False)
class _Fit:
    mean: Floats
    covariance: Floats
    deviation: float
    """Standard deviation of the residual of a submodel with e cuts."""
    quantile: float


def _log_count(alignment: Alignment) -> Floats:
    return np.asarray(np.log(np.maximum(alignment.count, 1)))


def _noise(alignment: Alignment) -> Floats:
    """(n,) standard deviation of each residual relative to a model with e (2.718) cuts."""
    return np.asarray((1 + _log_count(alignment)) / 2)


def _squashed(loss: Floats) -> Floats:
    return np.asarray(np.arcsinh(loss / (2 * SCALE)))


def _fit(rows: Floats, targets: Floats) -> _Fit:
    """Fits the posterior of β. The fitted standard deviation of residuals maximises the leave-one-out likelihood."""
    from scipy.stats import t as student

    deviations = np.geomspace(MIN_DEVIATION, 1.5, 40)
    errors = [(_left_out(rows, targets, deviation), deviation) for deviation in deviations]
    scores = [float(np.sum(error**2 / spread**2 + 2 * np.log(spread))) for (error, spread), _ in errors]
    (error, spread), deviation = errors[int(np.argmin(scores))]
    mean, covariance = _posterior(rows, targets, deviation)
    freedom = max(len(targets) - 1, 1)
    # The larger of Student's quantile and the empirical quantile of left-out combinations.
    strayed = float(np.quantile(np.abs(error / spread), LEVEL)) if len(targets) else 0.0
    return _Fit(mean, covariance, float(deviation), max(float(student.ppf((1 + LEVEL) / 2, freedom)), strayed))


def _posterior(rows: Floats, targets: Floats, deviation: float) -> tuple[Floats, Floats]:
    covariance = np.linalg.inv(np.diag(PRIOR_STD**-2.0) + rows.T @ rows / deviation**2)
    return covariance @ (rows.T @ targets) / deviation**2, covariance


def _left_out(rows: Floats, targets: Floats, deviation: float) -> tuple[Floats, Floats]:
    """(n,) leave-one-out error and (n,) standard deviation of each target (Rasmussen & Williams 2006, §5.4.2)."""
    mean, covariance = _posterior(rows, targets, deviation)
    leverage = np.einsum("ni,ij,nj->n", rows, covariance, rows) / deviation**2
    left = np.maximum(1 - leverage, 1e-6)  # above 0 except for rounding errors
    return (targets - rows @ mean) / left, deviation / np.sqrt(left)


def pruning_origin(name: str, parent: str, data: str, split: str, tokens: str, family: str) -> Origin:
    """Returns the origin of a pruning predictor for this parent, data, split and tokens."""
    return Origin(
        name=name,
        title=f"parts of {parent}, as they are cut",
        family=family,
        data=data,
        split=split,
        tokens=tokens,
        trained=f"cut from {parent}, not trained since",
        source="measured on this model",
    )
