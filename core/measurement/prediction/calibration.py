"""How wide an interval has to be: taken from launches that the predictor had not seen.

A model's own standard deviations are right only where its assumptions are. So every launch is predicted from the
others, and its error counted in those deviations; the interval is as many of them wide as hold 95 % of the errors
(split and cross-conformal prediction: Vovk et al. 2005; Barber et al. 2021). This needs no form of the errors: it holds
for a device that jumps between two speeds too.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgefront.core.measurement.statistics import Z_95, t_quantile

Floats = NDArray[np.float64]

LEVEL = 0.95
HARD = 0.05
"""Mean relative error above which a device is hard to predict."""
_FOLDS = 40
_SMALL_SAMPLE_FACTOR = 0.14
_AUDITS_OF_DOUBT = 4.0
"""Weight of the predictor's own intervals, as a number of audits."""


def folds(features: Floats, latency_ms: Floats) -> NDArray[np.int64]:
    """(n,) number of the fold of each row, at most 40; rows of equal features share one, whatever the order of rows."""
    order = np.lexsort(np.column_stack([latency_ms, features]).T)
    ordered = features[order]
    first = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    group = np.cumsum(first) - 1
    fold_of = np.empty(len(order), dtype=np.int64)
    fold_of[order] = group % min(_FOLDS, int(group[-1]) + 1)
    return fold_of


def half_width(scores: Floats, terms: int) -> float:
    """How many standard deviations hold 95 %, from n errors in standard deviations.

    The (n + 1)·0.95-th smallest, which holds 95 % of further ones in the mean. Below 19 the greatest is not enough, and
    Student's t may ask for more; and so few launches may lack something that others have, the more so the more `terms`
    they had to determine, which a factor stands for.
    """
    ordered = np.sort(np.abs(scores))
    count = len(ordered)
    rank = (count + 1) * LEVEL
    if rank <= count:
        return float(np.interp(rank, np.arange(1, count + 1), ordered))
    spread = math.sqrt(float(np.mean(ordered**2)))
    asked = max(float(ordered[-1]), t_quantile((1 + LEVEL) / 2, max(1, count - 1)) * spread)
    return asked * (1 + 1 / count + _SMALL_SAMPLE_FACTOR * (terms / count) ** 2)


def widening(errors: Floats, half_widths: Floats) -> float:
    """The factor, at least 1, by which audits ask intervals to be wider.

    Errors and half widths of the logarithms, a pair for each audit. Two things ask: the audits' variance, in units of
    the one that the intervals claim, together with what the predictor's own word counts for; and, where more audits
    miss their interval than chance explains, the factor with which 95 % would not have.
    """
    if not len(errors):
        return 1.0
    ratios = np.sort(np.abs(errors) / half_widths)
    count = len(ratios)
    squares = float(((Z_95 * ratios) ** 2).sum())
    asked = max(1.0, math.sqrt((_AUDITS_OF_DOUBT + squares) / (_AUDITS_OF_DOUBT + count)))
    if beyond_chance(int((ratios > 1).sum()), count):
        rank = min(count, math.ceil((count + 1) * LEVEL))
        asked = max(asked, float(ratios[rank - 1]))
    return asked


def beyond_chance(misses: int, count: int) -> bool:
    """Whether so many of `count` intervals of 95 % (at most 1000) miss as chance makes in less than one case of 20."""
    chance = sum(math.comb(count, k) * (1 - LEVEL) ** k * LEVEL ** (count - k) for k in range(misses, count + 1))
    return chance < 1 - LEVEL
