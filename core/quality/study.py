"""A study: the tables of trained models that a shared law is learnt from, with their trend and their deviations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgefront.core.quality.differences import DEVIATIONS, ControlledVariables
from edgefront.core.quality.parts import Covariance, Deviation, Places, Rows, Shared
from edgefront.core.quality.posterior import Posterior
from edgefront.core.quality.trends import Trend

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KnownTable:
    """One data set and one recipe, with trained models."""

    name: str
    data: str
    """Tables of one data set have the same."""
    min_tokens: float
    max_tokens: float


@dataclass(frozen=True, eq=False)
class Study:
    """The tables that a shared law is learnt from."""

    name: str
    trend: Trend
    shared: Shared
    controlled: ControlledVariables
    table_deviation: Deviation
    """Deviation of the tables that there are."""
    recipe_deviation: Deviation
    """Deviation of another recipe on the data of one of them."""
    data_deviation: Deviation
    """Deviation of other data."""
    tables: tuple[KnownTable, ...]
    inputs: Floats
    """(n, 12) features of the rows."""
    log_tokens: Floats
    table: Places
    log_perplexity: Floats
    budgets: bool
    """Whether the tables vary the training tokens."""

    def expected(self, inputs: Floats, log_tokens: Floats) -> Floats:
        """(n,) nats by the trend, which is followed to an octave below the tokens of the tables. Further on a power of
        the tokens tells nothing, and would order shapes by it: all lose alike there, as these models do on average
        where the trend ends.
        """
        least, slope = self._beginning
        missing = np.maximum(least - log_tokens, 0.0)
        return np.asarray(self.trend(inputs, np.maximum(log_tokens, least)) + slope * missing)

    @cached_property
    def _beginning(self) -> tuple[float, float]:
        """ln of the least tokens to which the trend is followed, and the nats that its models lose there on average for
        each e-fold fewer.
        """
        least, step = float(np.log(min(table.min_tokens for table in self.tables) / 2)), 0.01
        there, later = (self.trend(self.inputs, np.full(len(self.inputs), at)) for at in (least, least + step))
        return least, float((there - later).mean() / step)

    @cached_property
    def rows(self) -> Rows:
        data = sorted({table.data for table in self.tables})
        places = np.array([data.index(table.data) for table in self.tables])
        _, model = np.unique(np.column_stack([self.table, self.inputs]), axis=0, return_inverse=True)
        return Rows(
            self.inputs,
            self.log_tokens,
            self.trend(self.inputs, self.log_tokens),
            np.zeros((len(self.inputs), len(DEVIATIONS))),
            self.table,
            places[self.table],
            model.reshape(-1).astype(np.int64),
        )

    @cached_property
    def _posteriors(self) -> dict[Deviation, Posterior]:
        return {}

    def posterior(self, asked: Deviation) -> Posterior:
        """What its rows tell of a table that is none of them, with such deviations. Laws of one study share it."""
        if asked not in self._posteriors:
            deviations = (*(self.table_deviation for _ in self.tables), asked)
            covariance = Covariance(self.shared, deviations, DEVIATIONS)
            self._posteriors[asked] = Posterior.of(covariance, self.rows, self.log_perplexity)
        return self._posteriors[asked]

    def with_rows(self, inputs: Floats, log_tokens: Floats, table: Places, log_perplexity: Floats) -> Study:
        """The study of these rows, its trend as it is."""
        return replace(self, inputs=inputs, log_tokens=log_tokens, table=table, log_perplexity=log_perplexity)

    def without(self, left: NDArray[np.bool_]) -> Study:
        """The study without these rows."""
        kept = ~left
        return self.with_rows(self.inputs[kept], self.log_tokens[kept], self.table[kept], self.log_perplexity[kept])
