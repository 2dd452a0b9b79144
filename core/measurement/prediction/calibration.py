"""Calibrates prediction intervals by cross-validation.

1. Predict each launch from the other launches, and divide the error by the predicted standard deviation.
2. The half-width of an interval is the number of standard deviations that covers 95 % of these errors (cross-conformal
   prediction: Vovk et al. 2005; Barber et al. 2021).

No distribution of the errors is assumed, so intervals also hold for a device that jumps between two speeds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgefront.core.measurement.statistics import Z_95, t_quantile

Floats = NDArray[np.float64]

LEVEL = 0.95
HARD = 0.05
"""Mean relative error of predictions above which a device counts as hard to predict."""
_FOLDS = 40
_SMALL_SAMPLE_FACTOR = 0.14
_AUDITS_OF_DOUBT = 4.0
"""Weight of the predictor's own intervals, as a number of audits."""


def folds(features: Floats, latency_ms: Floats) -> NDArray[np.int64]:
    """(n,) fold of each of n rows, at most 40 folds. Rows with equal features share a fold. Row order has no effect."""
    order = np.lexsort(np.column_stack([latency_ms, features]).T)
    ordered = features[order]
    first = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    group = np.cumsum(first) - 1
    fold_of = np.empty(len(order), dtype=np.int64)
    fold_of[order] = group % min(_FOLDS, int(group[-1]) + 1)
    return fold_of


def half_width(scores: Floats, terms: int) -> float:
    """Number of standard deviations that covers 95 % of future errors, from n past errors (`scores`, in the same unit).

    The number is the (n + 1)·0.95-th smallest error. Below 19 errors, the number is the larger of the largest error and
    Student's quantile, times a factor for the uncertainty of `terms` coefficients fitted to n launches.
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
    """Factor, at least 1, by which audits (measured random candidates) widen intervals: the larger of two factors.

    1. The ratio of the audits' standard deviation to the intervals', with the predictor's own intervals as a prior.
    2. If more audits are outside their predicted intervals than chance explains: the factor that puts 95 % inside.

    `errors` and `half_widths` are differences of logarithms. Each audit has one error and one half-width.
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
    """Whether chance explains `misses` or more misses of `count` (at most 1000) 95 % intervals with less than 5 %."""
    chance = sum(math.comb(count, k) * (1 - LEVEL) ** k * LEVEL ** (count - k) for k in range(misses, count + 1))
    return chance < 1 - LEVEL
