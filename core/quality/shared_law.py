"""A law learnt from several tables of trained models at once: what carries over to other data, and to other budgets.

ln perplexity = trend(shape, tokens) + a part that all tables share + parts of the data set and of the table + what no
table varies, at stated amounts (`core.quality.parts`, `differences`). Asked about a table that is known, it predicts
perplexities. Asked about data or a recipe that no table has, it gives ratios alone, until own trainings tell the shift.

An interval counts models, not rows: the points of one learning curve share what is the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.gaussian_process import evenly_spaced
from edgefront.core.quality.differences import NAMES as DIFFERENCE_NAMES
from edgefront.core.quality.differences import differences
from edgefront.core.quality.features import NAMES, features, rounded_features
from edgefront.core.quality.law import Origin, Prediction, QualityLaw
from edgefront.core.quality.parts import NO_MODEL, Places, Rows
from edgefront.core.quality.posterior import Posterior
from edgefront.core.quality.study import Study
from edgefront.core.quality.training_time import TrainingTime
from edgefront.core.statistics import Z_95
from edgefront.core.token_counts import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS

if TYPE_CHECKING:
    from typing_extensions import Self

Floats = NDArray[np.float64]

FREEDOM = 8.0
"""Degrees of freedom of Student's t: how sure the deviations are before own trainings are seen (Shah et al. 2014,
arXiv 1402.4306).
"""
MAX_OWN_ROWS = 400

_OUTSIDE = 0.02
"""Standard deviation of ln perplexity for each octave beyond the widths, depths and parameters of the tables: 2.3 % was
found 2 octaves below, 4.3 % 3 octaves below.
"""
_RANGES = ("log_decoder", "log_depth", "log_d_model")
_LATE = 0.04
"""Standard deviation of ln perplexity for each octave of tokens above the tables'."""
_EARLY = 0.15
"""Standard deviation for each octave below: a law fitted from 4·10⁹ tokens on was 22 to 35 % too low at 2·10⁹."""
_EARLY_RATIO = 0.05
"""Standard deviation of one model against another, trained on equally few tokens."""


@dataclass(frozen=True, eq=False)
class OwnTrainings:
    """Trainings on the data that a law is asked about, each with one or more points of its learning curve."""

    inputs: Floats
    """(n, 12)"""
    differences: Floats
    """(n, a)"""
    log_tokens: Floats
    log_perplexity: Floats
    model: Places
    """(n,) index of the training."""

    @property
    def trainings(self) -> int:
        return len(np.unique(self.model))

    def without(self, row: Floats) -> OwnTrainings | None:
        """The trainings of other features than this row's; None if there are none."""
        kept = ~(self.inputs == row).all(1)
        if not kept.any():
            return None
        return OwnTrainings(
            self.inputs[kept],
            self.differences[kept],
            self.log_tokens[kept],
            self.log_perplexity[kept],
            self.model[kept],
        )


@dataclass(frozen=True, eq=False)
class SharedLaw(QualityLaw):
    """What a study says about one of its tables, about another recipe on its data, or about other data."""

    origin: Origin
    study: Study
    asked: int | None
    """The table whose data it is about; None: data that no table has."""
    same_recipe: bool
    """Whether it is about that table itself, not another recipe on its data; `known` where it is stored."""
    log_train_tokens: float
    reference: tuple[str, Shapes]
    """Name and shape (one row) of the model to which predictions are ratios where no perplexity is known."""
    own: OwnTrainings | None = None
    base: str | None = None
    """The law that own trainings have refined."""
    train_time: TrainingTime | None = None

    @cached_property
    def models(self) -> int:  # type: ignore[override]
        return len(np.unique(self.study.rows.model)) if self.own is None else self.own.trainings

    @cached_property
    def low(self) -> Floats:  # type: ignore[override]
        return np.asarray(self._inputs.min(0))

    @cached_property
    def high(self) -> Floats:  # type: ignore[override]
        return np.asarray(self._inputs.max(0))

    @property
    def kinds(self) -> frozenset[str]:  # type: ignore[override]
        return self.study.controlled.kinds

    @property
    def relative_to(self) -> str | None:
        return None if self.same_recipe or self.own is not None else self.reference[0]

    @property
    def train_tokens(self) -> float | None:
        if not self.study.budgets or self.train_time is not None:
            return None
        return float(f"{np.exp(self.log_train_tokens):.12g}")

    def tokens(self, shapes: Shapes) -> Floats | None:
        if self.train_time is not None:
            return self.train_time.tokens(shapes)
        return None if self.train_tokens is None else np.full(len(shapes), self.train_tokens)

    def log_tokens(self, shapes: Shapes) -> Floats:
        """(n,) ln of the training tokens that each prediction is for."""
        if self.train_time is not None:
            return np.log(self.train_time.tokens(shapes))
        return np.full(len(shapes), self.log_train_tokens)

    def at_tokens(self, train_tokens: float) -> Self:
        if not self.study.budgets:
            return super().at_tokens(train_tokens)
        if not MIN_TRAIN_TOKENS <= train_tokens <= MAX_TRAIN_TOKENS:
            raise InvalidInput(
                f"train_tokens is {train_tokens:g}: no number of training tokens",
                field="train_tokens",
                value=str(train_tokens),
                allowed="a number from 1 to 1e18, as 10000000000",
            )
        return replace(self, log_train_tokens=float(np.log(train_tokens)), train_time=None)

    def in_time(self, time: TrainingTime) -> Self:
        return replace(self, train_time=time) if self.study.budgets else super().in_time(time)

    def refined(self, own: OwnTrainings, origin: Origin) -> SharedLaw:
        """The law after these trainings on the data that it is about: it predicts perplexities of them from the first
        on.
        """
        return replace(self, own=own, origin=origin, same_recipe=False, base=self.origin.name)

    def predicts_as(self, other: QualityLaw) -> bool:
        own, theirs = (None if law is None else law.log_perplexity for law in (self.own, getattr(other, "own", None)))
        same = own is theirs if own is None or theirs is None else np.array_equal(own, theirs)
        return super().predicts_as(other) and same

    def renamed(self, name: str) -> SharedLaw:
        return replace(self, origin=replace(self.origin, name=name))

    def predict(self, shapes: Shapes) -> Prediction:
        if self.relative_to is not None:
            return self.ratio(shapes, self.reference[1])
        rows, beyond, extra = self._points(shapes)
        mean, variance = self._posterior.predict(rows)
        return Prediction(mean, Z_95 * np.sqrt(variance + extra), beyond)

    def expected(self, shapes: Shapes) -> Floats:
        mean = self._posterior.expected(self._points(shapes)[0])
        if self.relative_to is None:
            return mean
        return np.asarray(mean - self._posterior.expected(self._points(self.reference[1])[0])[0])

    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        (rows, beyond, extra), (other, _, other_extra) = self._points(shapes), self._points(reference)
        mean, variance = self._posterior.ratio(rows, other)
        # Too few tokens shift all models alike: what differs is less.
        early = np.minimum(self._early(self.log_tokens(shapes)), self._early(self.log_tokens(reference)))
        extra = extra + other_extra - 2 * (_EARLY * early) ** 2 + (_EARLY_RATIO * early) ** 2
        return Prediction(mean, Z_95 * np.sqrt(variance + extra), beyond)

    def at(self, shapes: Shapes, log_tokens: ArrayLike) -> Prediction:
        """Perplexities of n architectures, each after its own tokens: points of learning curves."""
        rows, beyond, extra = self._points(shapes, np.asarray(log_tokens, dtype=np.float64))
        mean, variance = self._posterior.predict(rows)
        return Prediction(mean, Z_95 * np.sqrt(variance + extra), beyond)

    def together(self, shapes: Shapes, log_tokens: ArrayLike) -> tuple[Floats, Floats]:
        """(n,) mean and (n, n) covariance of ln perplexities, each with its training's noise: of one or of ratios."""
        rows, _, extra = self._points(shapes, np.asarray(log_tokens, dtype=np.float64))
        covariance, noise = self._posterior.covariances(rows)
        return self._posterior.expected(rows), covariance + np.diag(noise + extra)

    def uncertainty(self, shapes: Shapes, log_tokens: ArrayLike) -> tuple[Floats, Floats]:
        """(n, n) covariance of ln perplexity of n architectures, each after its own tokens, and (n,) the variance that
        a training of each adds: seeds, and what no feature tells.
        """
        rows, _, _ = self._points(shapes, np.asarray(log_tokens, dtype=np.float64))
        return self._posterior.covariances(rows)

    def out_of_sample(self, shapes: Shapes, log_perplexity: ArrayLike) -> tuple[Prediction, NDArray[np.bool_]]:
        predicted = self.predict(shapes)
        seen = self.has_seen(shapes)
        logs, widths = predicted.log_perplexity.copy(), predicted.half_width.copy()
        inputs = rounded_features(shapes)
        for row in np.unique(inputs[seen], axis=0):
            same = (inputs == row).all(1)
            left_out = self.without(row).predict(shapes.take(same))
            logs[same], widths[same] = left_out.log_perplexity, left_out.half_width
        return Prediction(logs, widths, predicted.beyond), seen

    def has_seen(self, shapes: Shapes) -> NDArray[np.bool_]:
        seen = set(map(tuple, self._inputs.tolist()))
        return np.array([tuple(row) in seen for row in rounded_features(shapes).tolist()], dtype=np.bool_)

    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        outside = self._outside(features(shapes)) > 0
        apart = differences(shapes, self.study.controlled) != 0
        asked = self.log_tokens(shapes)
        other_budget = self._early(asked) + self._late(asked) > 0
        return [
            (
                *(name for name, out in zip(_RANGES, ranges, strict=True) if out),
                *(name for name, out in zip(DIFFERENCE_NAMES, others, strict=True) if out),
                *(("train_tokens",) if budget else ()),
            )
            for ranges, others, budget in zip(outside, apart, other_budget, strict=True)
        ]

    @cached_property
    def _inputs(self) -> Floats:
        own = [] if self.own is None else [self.own.inputs]
        return np.concatenate([self.study.inputs, *own])

    # Parts -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _posterior(self) -> Posterior:
        study, own = self.study, self.own
        prior = study.posterior(study.recipe_deviation if self.asked is not None else study.data_deviation)
        if own is None:
            return prior
        asked = self._rows(own.inputs, own.differences, own.log_tokens)
        asked = asked._replace(model=study.rows.model.max() + 1 + own.model)
        # Student's t (Shah et al. 2014, eq. 6): own trainings that are farther off than thought widen all deviations.
        distance = prior.squared_mahalanobis(asked, own.log_perplexity) * own.trainings / len(own.inputs)
        factor = (FREEDOM + distance) / (FREEDOM + own.trainings - 1)
        return prior.after(asked, own.log_perplexity, factor)

    def _rows(self, inputs: Floats, apart: Floats, log_tokens: Floats) -> Rows:
        """Rows about the data that the law is about."""
        count = len(inputs)
        table = self.asked if self.same_recipe and self.asked is not None else len(self.study.tables)
        data = (
            len(self.study.tables)
            if self.asked is None
            else int(self.study.rows.data[self.study.table == self.asked][0])
        )
        return Rows(
            inputs,
            log_tokens,
            self.study.expected(inputs, log_tokens),
            apart,
            np.full(count, table),
            np.full(count, data),
            np.full(count, NO_MODEL),
        )

    def _points(self, shapes: Shapes, log_tokens: Floats | None = None) -> tuple[Rows, Floats, Floats]:
        """Rows of architectures, how far each is beyond what is known, and the variance that this adds."""
        inputs = features(shapes)
        log_tokens = self.log_tokens(shapes) if log_tokens is None else log_tokens
        apart = differences(shapes, self.study.controlled)
        outside = self._outside(inputs).sum(1)
        early, late = self._early(log_tokens), self._late(log_tokens)
        beyond = outside + np.abs(apart).sum(1) + early + late
        extra = (_OUTSIDE * outside) ** 2 + (_EARLY * early) ** 2 + (_LATE * late) ** 2
        return self._rows(inputs, apart, log_tokens), beyond, extra

    def _outside(self, inputs: Floats) -> Floats:
        """(n, 3) octaves beyond the tables' ranges."""
        places = [NAMES.index(name) for name in _RANGES]
        low, high = self.low[places], self.high[places]
        below, above = low - inputs[:, places], inputs[:, places] - high
        return np.asarray(np.maximum(np.maximum(below, above) - _SLACK, 0.0) / np.log(2))

    @property
    def token_range(self) -> tuple[float, float] | None:
        """Range of tokens of the data that the law is about, where some was trained on, else of all tables."""
        if not self.study.budgets:
            return None
        if self.own is not None:
            return float(np.exp(self.own.log_tokens.min())), float(np.exp(self.own.log_tokens.max()))
        tables = self.study.tables if self.asked is None else (self.study.tables[self.asked],)
        return min(table.min_tokens for table in tables), max(table.max_tokens for table in tables)

    def _early(self, log_tokens: Floats) -> Floats:
        """(n,) octaves below the tokens that it knows."""
        trained_range = self.token_range
        return np.zeros(len(log_tokens)) if trained_range is None else _beyond(np.log(trained_range[0]) - log_tokens)

    def _late(self, log_tokens: Floats) -> Floats:
        """(n,) octaves above them."""
        trained_range = self.token_range
        return np.zeros(len(log_tokens)) if trained_range is None else _beyond(log_tokens - np.log(trained_range[1]))

    def without(self, row: Floats) -> SharedLaw:
        """The law without the models of these features."""
        left = (self.study.inputs == row).all(1)
        study = self.study.without(left) if left.any() else self.study  # which keeps its posterior
        return replace(self, study=study, own=None if self.own is None else self.own.without(row))


_SLACK = 0.05
"""Octaves, or ln, beyond a range that are still within."""


def _beyond(log_factor: Floats) -> Floats:
    return np.asarray(np.maximum(log_factor / np.log(2) - _SLACK, 0.0))


def own_trainings(
    law: SharedLaw, shapes: Shapes, log_tokens: ArrayLike, log_perplexity: ArrayLike, trainings: Sequence[str]
) -> OwnTrainings:
    """Rows of learning curves from which the law may learn; `trainings` names the training of each. At most
    `MAX_OWN_ROWS` are kept, evenly spaced. A law that knows one budget takes all for trained as long as that.
    """
    tokens = np.asarray(log_tokens, dtype=np.float64)
    tokens = tokens if law.study.budgets else np.full(len(tokens), law.log_train_tokens)
    _, model = np.unique(np.array(trainings), return_inverse=True)
    kept = evenly_spaced(len(model), MAX_OWN_ROWS)
    return OwnTrainings(
        rounded_features(shapes)[kept],
        differences(shapes, law.study.controlled)[kept],
        tokens[kept],
        np.asarray(log_perplexity, dtype=np.float64)[kept],
        model.reshape(-1).astype(np.int64)[kept],
    )
