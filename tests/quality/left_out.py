"""Shared laws that were learnt without a shape or without a table, for the tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from published_tables import fit_trend

from edgefront.core.measurement.statistics import Z_95
from edgefront.core.quality import scaling_study
from edgefront.core.quality.covariance import Rows
from edgefront.core.quality.differences import NAMES
from edgefront.core.quality.scaling_law import OwnTrainings, ScalingLaw
from edgefront.core.quality.scaling_study import ScalingStudy
from edgefront.core.quality.shipped import law_named

Floats = NDArray[np.float64]
Chosen = NDArray[np.bool_]


def shared(name: str) -> ScalingLaw:
    law = law_named(name)
    assert isinstance(law, ScalingLaw)
    return law


def rows_of(law: ScalingLaw, study: ScalingStudy, chosen: Chosen) -> Rows:
    """Rows of a study, as models that the law is asked about."""
    return law._rows(study.inputs[chosen], np.zeros((int(chosen.sum()), len(NAMES))), study.log_tokens[chosen])


@dataclass(frozen=True)
class Foretold:
    """Of each row of a study, by a law that never saw its shape."""

    study: ScalingStudy
    mean: Floats
    half_width: Floats

    def table(self, name: str) -> Chosen:
        return self.study.table == [table.name for table in self.study.tables].index(name)

    @property
    def error(self) -> Floats:
        """In ln perplexity."""
        return np.asarray(self.mean - self.study.log_perplexity)


@cache
def shapes_left_out() -> Foretold:
    """Each shape of the Gemstones by a law of the others; the trend, too, is fitted without it."""
    study, law = scaling_study.study("gemstones"), shared("llama-dolma-cooled")
    mean, half_width = np.empty(len(study.inputs)), np.empty(len(study.inputs))
    for shape in np.unique(study.inputs, axis=0):
        own = (study.inputs == shape).all(1)
        others = study.without(own)
        trend = fit_trend(others.inputs, others.log_tokens, others.log_perplexity, others.table)
        without = replace(law, study=replace(others, prior=replace(others.prior, trend=trend)))
        posterior = without._posterior  # the same whichever table is asked about
        for table in np.unique(study.table[own]).tolist():
            asked = own & (study.table == table)
            mean[asked], variance = posterior.predict(rows_of(replace(without, asked=table), study, asked))
            half_width[asked] = Z_95 * np.sqrt(variance)
    return Foretold(study, mean, half_width)


def trainings(study: ScalingStudy, places: NDArray[np.int64]) -> OwnTrainings:
    """These rows of a study as trainings of one's own, each of another model."""
    return OwnTrainings(
        study.inputs[places],
        np.zeros((len(places), len(NAMES))),
        study.log_tokens[places],
        study.log_perplexity[places],
        np.arange(len(places)),
    )


def pairs_held(law: ScalingLaw, study: ScalingStudy, places: NDArray[np.int64]) -> Floats:
    """(n (n - 1) / 2,): whether the interval of the ratio of two models holds, for all pairs."""
    chosen = np.zeros(len(study.inputs), dtype=np.bool_)
    chosen[places] = True
    rows = rows_of(law, study, chosen)
    covariance, noise = law._posterior.covariances(rows)
    mean, covariance = law._posterior.expected(rows), covariance + np.diag(noise)
    first, second = np.triu_indices(len(mean), 1)
    variance = np.diag(covariance)
    deviation = np.sqrt(variance[first] + variance[second] - 2 * covariance[first, second])
    apart = study.log_perplexity[chosen] - mean
    return np.asarray(np.abs(apart[first] - apart[second]) <= Z_95 * deviation)
