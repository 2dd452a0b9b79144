"""Studies: published tables of trained models with a prior. Scaling laws are made from studies.
`scripts/make_quality_laws.py` makes the shipped studies, which are JSON files, from the tables in `tests/golden`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.quality.covariance import (
    GEMSTONES,
    LTS,
    UNSEEN_DATA,
    UNSEEN_RECIPE,
    Covariance,
    Deviation,
    Excess,
    LengthScales,
    Places,
    Posterior,
    Rows,
    Shared,
)
from edgefront.core.quality.differences import DEVIATIONS, ControlledVariables, differences
from edgefront.core.quality.differences import NAMES as DIFFERENCE_NAMES
from edgefront.core.quality.features import NAMES, BudgetTrend, ShapeTrend, Trend

Floats = NDArray[np.float64]

STUDIES = ("lts", "gemstones")
RANGES = ("log_decoder", "log_depth", "log_d_model")
_OUTSIDE = 0.02
"""Standard deviation of ln perplexity added for each octave beyond the tables' widths, depths and parameters. The error
was 2.3 % at 2 octaves and 4.3 % at 3 octaves below the tables' ranges.
"""
SLACK = 0.05
"""Tolerance of the tables' ranges, in octaves or ln."""
_PLAIN = frozenset({"attention", "feed_forward"})
_GATED = frozenset({"grouped_attention", "gated_feed_forward"})


@dataclass(frozen=True)
class StudyTable:
    """Description of a table of models that were trained with one recipe on one data set."""

    name: str
    data: str
    """Name of the data set of the models."""
    min_tokens: float
    max_tokens: float


@dataclass(frozen=True)
class Hierarchy:
    """The hierarchical prior of a study of several tables."""

    trend: Trend
    shared: Shared
    controlled: ControlledVariables
    table_deviation: Deviation
    """Deviations of the study's tables."""
    recipe_deviation: Deviation
    """Deviations of another recipe on the data of a table."""
    data_deviation: Deviation = UNSEEN_DATA
    """Deviations of data that no table has."""


@dataclass(frozen=True, eq=False)
class ScalingStudy:
    """Published tables of trained models, with a prior. A scaling law is made from a study."""

    name: str
    prior: Hierarchy | LengthScales
    tables: tuple[StudyTable, ...]
    inputs: Floats
    """(n, 12) features of the trained models."""
    log_tokens: Floats
    table: Places
    log_perplexity: Floats
    budgets: bool
    """Whether the tables vary the training tokens."""

    def expected(self, inputs: Floats, log_tokens: Floats) -> Floats:
        """(n,) prior mean of ln perplexity by the trend. More than an octave below the tables' tokens, the trend is
        linear in ln tokens with one slope for all shapes, because a power law of the tokens would order shapes
        arbitrarily.
        """
        if isinstance(self.prior, LengthScales):
            return self.prior.expected(inputs)
        least, slope = self._beginning
        missing = np.maximum(least - log_tokens, 0.0)
        return np.asarray(self._trend(inputs, np.maximum(log_tokens, least)) + slope * missing)

    @property
    def _trend(self) -> Trend:
        assert isinstance(self.prior, Hierarchy)
        return self.prior.trend

    @cached_property
    def _beginning(self) -> tuple[float, float]:
        """ln of the least tokens for the trend; and the trend's mean slope there, nats per e-fold fewer tokens."""
        least, step = float(np.log(min(table.min_tokens for table in self.tables) / 2)), 0.01
        there, later = (self._trend(self.inputs, np.full(len(self.inputs), at)) for at in (least, least + step))
        return least, float((there - later).mean() / step)

    @cached_property
    def rows(self) -> Rows:
        data = sorted({table.data for table in self.tables})
        places = np.array([data.index(table.data) for table in self.tables])
        _, model = np.unique(np.column_stack([self.table, self.inputs]), axis=0, return_inverse=True)
        return Rows(
            self.inputs,
            self.log_tokens,
            self.prior.expected(self.inputs)
            if isinstance(self.prior, LengthScales)
            else self._trend(self.inputs, self.log_tokens),
            np.zeros((len(self.inputs), len(DEVIATIONS))),
            self.table,
            places[self.table],
            model.reshape(-1).astype(np.int64),
        )

    @cached_property
    def _posteriors(self) -> dict[bool, Posterior]:
        return {}

    def posterior(self, *, of_known_data: bool) -> Posterior:
        """Returns the posterior for a further table of trained models. `of_known_data`: whether the further table has
        the data of a study's table. The posterior is cached and shared by all scaling laws of the study.
        """
        if of_known_data not in self._posteriors:
            prior, factor = self.prior, 1.0
            covariance: Covariance | LengthScales
            if isinstance(prior, LengthScales):
                covariance, factor = prior, prior.widening**2
            else:
                asked = prior.recipe_deviation if of_known_data else prior.data_deviation
                deviations = (*(prior.table_deviation for _ in self.tables), asked)
                covariance = Covariance(prior.shared, deviations, DEVIATIONS)
            self._posteriors[of_known_data] = Posterior.of(covariance, self.rows, self.log_perplexity, factor)
        return self._posteriors[of_known_data]

    def differences(self, shapes: Shapes) -> Floats:
        """(n, len(DIFFERENCES)) differences from the tables' models in features that no table varies."""
        if isinstance(self.prior, LengthScales):
            return np.zeros((len(shapes), len(DEVIATIONS)))
        return differences(shapes, self.prior.controlled)

    def excess(self, shapes: Shapes, inputs: Floats, low: Floats, high: Floats) -> Excess:
        """Distances of n shapes beyond the data. The features of the data range from `low` to `high` (12,)."""
        if isinstance(self.prior, LengthScales):
            return self.prior.excess(shapes, inputs)
        places = [NAMES.index(name) for name in RANGES]
        below, above = low[places] - inputs[:, places], inputs[:, places] - high[places]
        outside = np.maximum(np.maximum(below, above) - SLACK, 0.0) / np.log(2)
        columns = np.abs(np.column_stack([outside, self.differences(shapes)]))
        # The covariance accounts for the differences.
        return Excess((*RANGES, *DIFFERENCE_NAMES), columns, columns.sum(1), (_OUTSIDE * outside.sum(1)) ** 2)

    def without(self, left: NDArray[np.bool_]) -> ScalingStudy:
        """Returns the study without the rows that the mask `left` selects."""
        columns = ("inputs", "log_tokens", "table", "log_perplexity")
        return replace(self, **{name: getattr(self, name)[~left] for name in columns})


def study_of(
    tables: Sequence[StudyTable],
    inputs: Floats,
    log_tokens: Floats,
    table: Places,
    log_perplexity: Floats,
    trend: BudgetTrend | None = None,
) -> ScalingStudy:
    """Creates the study of LiteTransformerSearch's models (one training budget, varying embeddings, inner widths); with
    a `trend` the study of the Gemstones (varying width, depth, training tokens).
    """
    if trend is None:
        prior = Hierarchy(
            trend=ShapeTrend(),
            shared=Shared(shape=0.012, shape_by_tokens=0.0, linear=0.003, row=0.003),
            controlled=ControlledVariables(kv_share=1.0, inner_ratio=None, gated=0.0, vocab_size=None, kinds=_PLAIN),
            table_deviation=LTS,
            recipe_deviation=UNSEEN_DATA,
        )
    else:
        prior = Hierarchy(
            trend=trend,
            shared=Shared(shape=0.03, shape_by_tokens=0.02, linear=0.0, row=0.003),
            controlled=ControlledVariables(kv_share=0.5, inner_ratio=6.0, gated=1.0, vocab_size=50_304, kinds=_GATED),
            table_deviation=GEMSTONES,
            recipe_deviation=UNSEEN_RECIPE,
        )
    name, budgets = STUDIES[trend is not None], trend is not None
    return ScalingStudy(name, prior, tuple(tables), inputs, log_tokens, table, log_perplexity, budgets)


@cache
def study(name: str) -> ScalingStudy:
    """Reads the shipped study with this name."""
    value: dict[str, Any] = json.loads((files("edgefront.core.quality") / "laws" / f"study-{name}.json").read_bytes())
    tables = tuple(StudyTable(**table) for table in value["tables"])
    names = [table.name for table in tables]
    table = np.array([names.index(row[0]) for row in value["rows"]], dtype=np.int64)
    numbers = np.array([row[1:] for row in value["rows"]], dtype=np.float64)
    trend = BudgetTrend(**value["trend"]) if value["trend"] else None
    return study_of(tables, numbers[:, 2:], np.log(numbers[:, 0]), table, numbers[:, 1], trend)
