"""Perplexity of a trained model right after it is cut, before any further training.

A single cut costs what the table says (`core.quality.cut_table`). Several add up only roughly, and many that cost
nothing alone cost something together. So a combination is expected to deviate from the sum of its single cuts the more
of them there are, by a linear regression on that sum, on the share of parameters that it leaves out and on the kinds of
its cuts, with the prior that losses add up (Rasmussen & Williams 2006, §2.1), fitted to combinations that were really
cut and evaluated. Losses enter as arcsinh(loss / 2c): as logarithms where they are large, in proportion where they are
below c, which a text does not tell from none. The interval is that of the deviations of combinations from predictions
that were fitted without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.cut_table import Alignment, CutTable
from edgefront.core.quality.features import BLOCK_NAMES, features, names_of_blocks, rounded_features
from edgefront.core.quality.predictor import Origin, PerplexityPredictor, Prediction

Floats = NDArray[np.float64]

LEVEL = 0.95
SCALE = 0.02
"""c, in nats a token: two texts of some thousand tokens differ by as much in what a cut costs."""
PRIOR_STD = np.array([0.3, 0.2, 0.3, 0.3, 0.3])
"""Of the deviation of a squashed loss from that of the sum, by ln of the number of cuts: of a constant, of the squashed
sum, of ln of the share of parameters left out, of the shares that blocks left out and channels have in the sum. Single
cuts of small models missed their combinations by factors of 1 to 10 together."""
TEXT_DEVIATION = 0.08
"""Of a squashed loss, on another text than the study's: single blocks of a model of 3 M parameters cost 4 to 16 %
more or less there."""
MIN_LEFT_OUT = 0.01
"""Least share of the parameters of a model's blocks that a cut counts as leaving out."""
MAX_SQUASHED = 7.5
"""Largest squashed loss that is predicted, one of 36 nats."""
MIN_DEVIATION = 0.05
"""Least standard deviation of a squashed loss of e cuts: few combinations that happen to agree claim no certainty."""


@dataclass(frozen=True, eq=False)
class CutLaw(PerplexityPredictor):
    """Perplexity of parts of one parent, on the text that its cuts were measured on."""

    origin: Origin
    table: CutTable
    parent_log_perplexity: float
    architectures: tuple[Architecture, ...]
    """Parts that were cut in several ways at once, and evaluated."""
    log_perplexity: Floats
    """(n,) of those."""

    @property
    def parent(self) -> Architecture:
        """The model that is cut."""
        return self.table.parent

    @property
    def models(self) -> int:  # type: ignore[override]
        """Combinations that it was learnt from."""
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

    def renamed(self, name: str) -> CutLaw:
        return replace(self, origin=replace(self.origin, name=name))

    def check(self, shapes: Shapes) -> None:
        """`InvalidInput` unless all of these are parts of the parent."""
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
        """The parent itself is exact; of two other parts the deviations are taken as independent, which is the wider
        interval.
        """
        alignment, against = self._aligned(shapes), self._aligned(reference)
        loss, half_width = self._loss(shapes, alignment)
        other, other_half_width = self._loss(reference, against)
        same = (rounded_features(shapes) == rounded_features(reference)).all(1) & (alignment.loss == against.loss)
        return Prediction(
            np.where(same, 0.0, loss - other),
            np.where(same, 0.0, np.hypot(half_width, other_half_width)),
            np.maximum(self._beyond(alignment), self._beyond(against)),
        )

    def out_of_sample(self, shapes: Shapes, log_perplexity: ArrayLike) -> tuple[Prediction, NDArray[np.bool_]]:
        """A training is never what it learnt from: it speaks of models before any."""
        return self.predict(shapes), np.zeros(len(shapes), dtype=np.bool_)

    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        beyond = self._beyond(self._aligned(shapes))
        return [("larger cuts than were tried",) if is_beyond else () for is_beyond in beyond > 0]

    def _aligned(self, shapes: Shapes) -> Alignment:
        alignment = self.table.align(shapes)
        if not alignment.is_part.all():
            number = int(np.argmin(alignment.is_part))
            raise InvalidInput(
                f"law {self.origin.name} is about parts of one model, and number {number} of these is none: it has "
                "other blocks, or wider ones",
                field="law",
                value=self.origin.name,
                allowed="another law, or parts of the model",
            )
        return alignment

    # The regression -----------------------------------------------------------------------------------------------

    def _loss(self, shapes: Shapes, alignment: Alignment) -> tuple[Floats, Floats]:
        """(n,) loss that a cut adds in nats a token, and the half width of its interval; inf for what is no part."""
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
        """(n, 5), as `PRIOR_STD` lists them."""
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
    """Standard deviation of a squashed loss around what is expected, of e cuts."""
    quantile: float


def _log_count(alignment: Alignment) -> Floats:
    return np.asarray(np.log(np.maximum(alignment.count, 1)))


def _noise(alignment: Alignment) -> Floats:
    """(n,) standard deviation, by that of e cuts."""
    return np.asarray((1 + _log_count(alignment)) / 2)


def _squashed(loss: Floats) -> Floats:
    return np.asarray(np.arcsinh(loss / (2 * SCALE)))


def _fit(rows: Floats, targets: Floats) -> _Fit:
    """The posterior of β, with the deviation that makes the left-out combinations as likely as they can be."""
    from scipy.stats import t as student

    deviations = np.geomspace(MIN_DEVIATION, 1.5, 40)
    errors = [(_left_out(rows, targets, deviation), deviation) for deviation in deviations]
    scores = [float(np.sum(error**2 / spread**2 + 2 * np.log(spread))) for (error, spread), _ in errors]
    (error, spread), deviation = errors[int(np.argmin(scores))]
    mean, covariance = _posterior(rows, targets, deviation)
    freedom = max(len(targets) - 1, 1)
    # Student's quantile, and wider where combinations that were left out strayed further.
    strayed = float(np.quantile(np.abs(error / spread), LEVEL)) if len(targets) else 0.0
    return _Fit(mean, covariance, float(deviation), max(float(student.ppf((1 + LEVEL) / 2, freedom)), strayed))


def _posterior(rows: Floats, targets: Floats, deviation: float) -> tuple[Floats, Floats]:
    covariance = np.linalg.inv(np.diag(PRIOR_STD**-2.0) + rows.T @ rows / deviation**2)
    return covariance @ (rows.T @ targets) / deviation**2, covariance


def _left_out(rows: Floats, targets: Floats, deviation: float) -> tuple[Floats, Floats]:
    """(n,) error and expected deviation of each, predicted from the others (Rasmussen & Williams 2006, §5.4.2)."""
    mean, covariance = _posterior(rows, targets, deviation)
    leverage = np.einsum("ni,ij,nj->n", rows, covariance, rows) / deviation**2
    left = np.maximum(1 - leverage, 1e-6)  # the prior's share of each, above 0 but for rounding
    return (targets - rows @ mean) / left, deviation / np.sqrt(left)


def cut_origin(name: str, parent: str, data: str, split: str, tokens: str, family: str) -> Origin:
    """What the perplexity of a cut law is of."""
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
