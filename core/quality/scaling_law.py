"""Scaling laws predict perplexity from shape and training tokens, by a Gaussian posterior given trained models.

A scaling law of one table of trained models uses a length scale for each feature
(`core.quality.covariance.LengthScales`). A scaling law of several tables uses a study with a hierarchical prior. Such a
scaling law models the training budget and transfers to data that no table has. An owner's trainings refine such a
scaling law to predict perplexities on the owner's data:

1. The study's rows give a posterior for a further table (the owner's), with the deviations of another recipe or other
   data.
2. The owner's trainings, each with one or more points of the learning curve, are rows of the further table.
3. The squared Mahalanobis distance of these rows from their prediction scales all deviations (Student's t).
4. Beyond the shapes and tokens of the rows, stated deviations are added. Effects that two models share cancel in the
   ratio of the two perplexities.

`core.quality.covariance` defines the symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.gaussian_process import evenly_spaced
from edgefront.core.common.units import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS
from edgefront.core.measurement.statistics import Z_95
from edgefront.core.quality.covariance import NO_MODEL, Excess, LengthScales, Places, Posterior, Rows
from edgefront.core.quality.features import features, rounded_features
from edgefront.core.quality.predictor import Origin, PerplexityPredictor, Prediction, TrainingTime
from edgefront.core.quality.scaling_study import SLACK, ScalingStudy

if TYPE_CHECKING:
    from typing_extensions import Self

Floats = NDArray[np.float64]

FREEDOM = 8.0
"""Degrees of freedom of Student's t, the weight of the prior deviations (Shah et al. 2014, arXiv 1402.4306)."""
MAX_OWN_ROWS = 400

_LATE = 0.04
"""Standard deviation of ln perplexity added for each octave of tokens above the range of the rows."""
_LATE_RATIO = 0.013
"""Standard deviation of ln of a ratio of two models with equal tokens, for each octave above the range. Of scaling laws
fitted up to 3·10¹⁰ tokens and evaluated up to 3.5·10¹¹, .99 to 1.00 of the 95 % intervals of ratios then hold; without
this deviation down to .87.
"""
_EARLY = 0.15
"""Standard deviation of ln perplexity added for each octave of tokens below the range of the rows. A scaling law fitted
from 4·10⁹ tokens on was 22 to 35 % too low at 2·10⁹."""
_EARLY_RATIO = 0.05
"""Standard deviation of ln of a ratio of two models with equal tokens, for each octave below the range."""


class OwnTrainings(NamedTuple):
    """An owner's trainings: n rows, one for each used point of each training's learning curve."""

    inputs: Floats
    """(n, 12) features of the shapes."""
    differences: Floats
    """(n, len(DIFFERENCES)) differences from the models of the study's tables."""
    log_tokens: Floats
    log_perplexity: Floats
    model: Places
    """(n,) index of the training."""

    @property
    def trainings(self) -> int:
        return len(np.unique(self.model))

    def take(self, kept: NDArray[np.bool_]) -> OwnTrainings | None:
        """Returns the rows that the mask selects; None if the mask selects no row."""
        return OwnTrainings._make(column[kept] for column in self) if kept.any() else None


@dataclass(frozen=True, eq=False)
class ScalingLaw(PerplexityPredictor):
    """A scaling law: a posterior given rows of shape, tokens and loss of a study and of an owner's trainings."""

    origin: Origin
    study: ScalingStudy
    asked: int | None
    """Index of the table whose data the predictions are for; None for data that no table has."""
    same_recipe: bool
    """Whether predictions are for the recipe of table `asked` instead of another recipe on the same data; stored as
    `known`."""
    log_train_tokens: float
    reference: tuple[str, Shapes] | None
    """Name and shape (one row) of the reference model of ratios. Ratios are predicted while no perplexity is known.
    None for a scaling law of one table.
    """
    own: OwnTrainings | None = None
    base: str | None = None
    """Name of the scaling law that the owner's trainings refined, or that predicts the prior mean."""
    train_time: TrainingTime | None = None

    @cached_property
    def models(self) -> int:  # type: ignore[override]
        if self.own is not None:
            return self.own.trainings
        prior = self.study.prior
        return prior.models if isinstance(prior, LengthScales) else len(np.unique(self.study.rows.model))

    @cached_property
    def low(self) -> Floats:  # type: ignore[override]
        prior = self.study.prior
        return prior.low if isinstance(prior, LengthScales) else np.asarray(self._inputs.min(0))

    @cached_property
    def high(self) -> Floats:  # type: ignore[override]
        prior = self.study.prior
        return prior.high if isinstance(prior, LengthScales) else np.asarray(self._inputs.max(0))

    @property
    def kinds(self) -> frozenset[str]:  # type: ignore[override]
        prior = self.study.prior
        return prior.kinds if isinstance(prior, LengthScales) else prior.controlled.kinds

    @property
    def relative_to(self) -> str | None:
        known = self.same_recipe or self.own is not None or self.reference is None
        return None if known else self.reference[0]  # type: ignore[index]

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
                f"train_tokens must be a number from 1 to 1e18, not {train_tokens:g}",
                field="train_tokens",
                value=str(train_tokens),
                allowed="a number from 1 to 1e18, such as 10000000000",
            )
        return replace(self, log_train_tokens=float(np.log(train_tokens)), train_time=None)

    def in_time(self, time: TrainingTime) -> Self:
        return replace(self, train_time=time) if self.study.budgets else super().in_time(time)

    def refined(self, own: OwnTrainings, origin: Origin) -> ScalingLaw:
        """Returns a scaling law, refined by these trainings, for perplexities on the trainings' data."""
        return replace(self, own=own, origin=origin, same_recipe=False, base=self.origin.name)

    def predicts_as(self, other: PerplexityPredictor) -> bool:
        own, theirs = (None if law is None else law.log_perplexity for law in (self.own, getattr(other, "own", None)))
        same = own is theirs if own is None or theirs is None else np.array_equal(own, theirs)
        return super().predicts_as(other) and same

    def predict(self, shapes: Shapes) -> Prediction:
        if self.relative_to is not None:
            return self.ratio(shapes, self._reference)
        return self.at(shapes, self.log_tokens(shapes))

    def expected(self, shapes: Shapes) -> Floats:
        mean = self._posterior.expected(self._points(shapes).rows)
        if self.relative_to is None:
            return mean
        return np.asarray(mean - self._posterior.expected(self._points(self._reference).rows)[0])

    def of_features(self, inputs: Floats) -> Floats:
        """(n,) ln perplexity of models with these (n, 12) features, by a scaling law of one table."""
        apart, log_tokens = self.study.rows.differences[:1].repeat(len(inputs), axis=0), np.zeros(len(inputs))
        return self._posterior.expected(self._rows(inputs, apart, log_tokens))

    def ratio(self, shapes: Shapes, reference: Shapes) -> Prediction:
        ours, other = (self._points(part, of_ratio=True) for part in (shapes, reference))
        mean, variance = self._posterior.ratio(ours.rows, other.rows)
        # Tokens beyond the range shift the perplexities of all models by similar factors, so ratios vary less.
        extra = ours.excess.variance + other.excess.variance
        for of_one, of_ratio, asked in (
            (_EARLY, _EARLY_RATIO, (ours.early, other.early)),
            (_LATE, _LATE_RATIO, (ours.late, other.late)),
        ):
            common = np.minimum(*asked)
            extra = extra + of_one**2 * (asked[0] ** 2 + asked[1] ** 2 - 2 * common**2) + (of_ratio * common) ** 2
        return Prediction(mean, self._quantile * np.sqrt(variance + extra), ours.beyond)

    def at(self, shapes: Shapes, log_tokens: ArrayLike) -> Prediction:
        """Predicts the perplexities of n architectures, each after exp(log_tokens) (n,) training tokens."""
        points = self._points(shapes, np.asarray(log_tokens, dtype=np.float64))
        mean, variance = self._posterior.predict(points.rows)
        return Prediction(mean, self._quantile * np.sqrt(variance + points.extra), points.beyond)

    def together(self, shapes: Shapes, log_tokens: ArrayLike) -> tuple[Floats, Floats]:
        """(n,) mean and (n, n) covariance of ln perplexities, including the noise of each training."""
        points = self._points(shapes, np.asarray(log_tokens, dtype=np.float64))
        covariance, noise = self._posterior.covariances(points.rows)
        return self._posterior.expected(points.rows), covariance + np.diag(noise + points.extra)

    def beyond(self, shapes: Shapes) -> list[tuple[str, ...]]:
        points = self._points(shapes)
        names, columns = points.excess.names, points.excess.columns > 0
        budget = points.early + points.late > 0
        return [
            (*(name for name, out in zip(names, row, strict=True) if out), *(("train_tokens",) if other else ()))
            for row, other in zip(columns, budget, strict=True)
        ]

    @property
    def token_range(self) -> tuple[float, float] | None:
        """Range of training tokens in the data of the scaling law; in all tables for a scaling law of other data."""
        if not self.study.budgets:
            return None
        ranges = [] if self.own is None else [np.exp(self.own.log_tokens)]
        if self.own is None or self.asked is not None:
            tables = self.study.tables if self.asked is None else (self.study.tables[self.asked],)
            ranges += [np.array([table.min_tokens, table.max_tokens]) for table in tables]
        every = np.concatenate(ranges)
        return float(every.min()), float(every.max())

    def without(self, row: Floats) -> ScalingLaw:
        """Returns the scaling law without the models with these features."""
        left = (self.study.inputs == row).all(1)
        study = self.study.without(left) if left.any() else self.study  # keeps the study's cached posterior
        own = None if self.own is None else self.own.take(~(self.own.inputs == row).all(1))
        return replace(self, study=study, own=own)

    # Parts -----------------------------------------------------------------------------------------------------------

    @property
    def _quantile(self) -> float:
        """Half-width of a predicted 95 % interval, in standard deviations."""
        return self.study.prior.quantile if isinstance(self.study.prior, LengthScales) else Z_95

    @property
    def _reference(self) -> Shapes:
        assert self.reference is not None
        return self.reference[1]

    @cached_property
    def _inputs(self) -> Floats:
        own = [] if self.own is None else [self.own.inputs]
        return np.concatenate([self.study.inputs, *own])

    @cached_property
    def _posterior(self) -> Posterior:
        study, own = self.study, self.own
        prior = study.posterior(of_known_data=self.asked is not None)
        if own is None:
            return prior
        asked = self._rows(own.inputs, own.differences, own.log_tokens)
        asked = asked._replace(model=study.rows.model.max() + 1 + own.model)
        # Student's t (Shah et al. 2014, eq. 6): trainings far from their prediction widen all deviations.
        distance = prior.squared_mahalanobis(asked, own.log_perplexity) * own.trainings / len(own.inputs)
        factor = (FREEDOM + distance) / (FREEDOM + own.trainings - 1)
        return prior.after(asked, own.log_perplexity, factor)

    def _rows(self, inputs: Floats, apart: Floats, log_tokens: Floats) -> Rows:
        """Converts models to predict into rows, with the table and data set that the scaling law predicts for."""
        count, tables = len(inputs), len(self.study.tables)
        table = self.asked if self.same_recipe and self.asked is not None else tables
        data = tables if self.asked is None else int(self.study.rows.data[self.study.table == self.asked][0])
        return Rows(
            inputs,
            log_tokens,
            self.study.expected(inputs, log_tokens),
            apart,
            np.full(count, table),
            np.full(count, data),
            np.full(count, NO_MODEL),
        )

    def _points(self, shapes: Shapes, log_tokens: Floats | None = None, *, of_ratio: bool = False) -> _Points:
        """Rows of architectures to predict, with the distances beyond the data. For perplexities, an owner's trainings
        determine the range of tokens; for ratios, the range also includes the tables' tokens.
        """
        inputs = features(shapes)
        log_tokens = self.log_tokens(shapes) if log_tokens is None else log_tokens
        low, high = np.log(self.token_range or (1.0, np.inf))
        if of_ratio and self.token_range is not None:
            tables = self.study.tables if self.asked is None else (self.study.tables[self.asked],)
            ranges = [(table.min_tokens, table.max_tokens) for table in tables]
            low, high = min(low, np.log(min(ranges)[0])), max(high, np.log(max(most for _, most in ranges)))
        known = self.token_range is not None
        return _Points(
            self._rows(inputs, self.study.differences(shapes), log_tokens),
            self.study.excess(shapes, inputs, self.low, self.high),
            early=_octaves(low - log_tokens) if known else np.zeros(len(inputs)),
            late=_octaves(log_tokens - high) if known else np.zeros(len(inputs)),
        )


@dataclass(frozen=True, eq=False)
class _Points:
    """Rows of n architectures to predict, with the distances of these rows beyond the scaling law's data."""

    rows: Rows
    excess: Excess
    early: Floats
    """(n,) octaves below the range of tokens."""
    late: Floats
    """(n,) octaves above the range of tokens."""

    @property
    def beyond(self) -> Floats:
        return self.excess.total + self.early + self.late

    @property
    def extra(self) -> Floats:
        """(n,) variance to add to each ln perplexity for the distances beyond the data."""
        return self.excess.variance + (_EARLY * self.early) ** 2 + (_LATE * self.late) ** 2


def _octaves(log_factor: Floats) -> Floats:
    return np.asarray(np.maximum(log_factor / np.log(2) - SLACK, 0.0))


def own_trainings(
    law: ScalingLaw, shapes: Shapes, log_tokens: ArrayLike, log_perplexity: ArrayLike, trainings: Sequence[str]
) -> OwnTrainings:
    """Converts rows of learning curves into training data of the scaling law. `trainings` names each row's training. At
    most `MAX_OWN_ROWS` evenly spaced rows are used. A scaling law of one budget ignores the tokens.
    """
    tokens = np.asarray(log_tokens, dtype=np.float64)
    tokens = tokens if law.study.budgets else np.full(len(tokens), law.log_train_tokens)
    _, model = np.unique(np.array(trainings), return_inverse=True)
    kept = evenly_spaced(len(model), MAX_OWN_ROWS)
    return OwnTrainings(
        rounded_features(shapes)[kept],
        law.study.differences(shapes)[kept],
        tokens[kept],
        np.asarray(log_perplexity, dtype=np.float64)[kept],
        model.reshape(-1).astype(np.int64)[kept],
    )
