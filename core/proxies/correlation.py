"""How far two orders of the same things agree: ranks with ties, Spearman, Kendall, and the top that they share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.statistics import Z_95

Floats = NDArray[np.float64]

MIN_PAIRS = 3
"""Fewer things have no meaningful correlation: two are always in perfect order, one way or the other."""
MIN_FOR_INTERVAL = 10
"""Fewer pairs give no interval: its variance is an approximation for many."""


def ranks(values: ArrayLike) -> Floats:
    """Rank of each value among those of its row (the last axis), from 1; equal ones share the mean of their places."""
    from scipy.stats import rankdata  # here: it takes a second to load, and a service that starts needs none of it

    ranked: Floats = rankdata(np.asarray(values, dtype=np.float64), axis=-1)
    return ranked


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of the ranks; NaN below three values and where either side is constant."""
    a, b = ranks(first), ranks(second)
    return float(_pearson(a, b)) if len(a) >= MIN_PAIRS else float("nan")


def kendall(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's τ-b: agreeing less disagreeing pairs, with ties taken out; NaN as in `spearman`."""
    from scipy.stats import kendalltau

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return float(kendalltau(a, b, method="asymptotic").statistic) if len(a) >= MIN_PAIRS else float("nan")


def best(values: ArrayLike, share: float) -> NDArray[np.intp]:
    """Indices of the best (highest) `share` of the values, the best first; equal ones in their order."""
    array = np.asarray(values, dtype=np.float64)
    # A product such as 0.29 · 100 lies a little below the whole number that is meant.
    count = int(share * len(array) + 1e-9)
    return np.argsort(-array, kind="stable")[:count]


def common_ratio(truth: ArrayLike, proxy: ArrayLike, share: float) -> float:
    """Share of the best `share` by the truth that is among as many best by the proxy (LTS, arXiv 2203.02094, §4.1)."""
    true, chosen = best(truth, share), best(proxy, share)
    return len(np.intersect1d(true, chosen)) / len(true) if len(true) else float("nan")


def interval(first: ArrayLike, second: ArrayLike) -> tuple[float, float] | None:
    """95 % interval of Spearman's ρ by Fisher's z with the variance of Bonett and Wright (2000, Psychometrika 65), or
    None where ρ is undefined or of fewer than `MIN_FOR_INTERVAL` pairs.

    A perfect order, whose z is infinite, counts as one in which one neighbouring pair is swapped.
    """
    rho, number = spearman(first, second), len(np.asarray(first))
    if number < MIN_FOR_INTERVAL or math.isnan(rho):
        return None
    nearest = 1 - 12 / (number * (number**2 - 1))
    z = math.atanh(max(-nearest, min(nearest, rho)))
    half_width = Z_95 * math.sqrt((1 + rho**2 / 2) / (number - 3))
    return min(rho, math.tanh(z - half_width)), max(rho, math.tanh(z + half_width))


def _pearson(first: Floats, second: Floats) -> Floats:
    """The correlation of each row of one with that row of the other; NaN where either is constant."""
    a, b = first - first.mean(-1, keepdims=True), second - second.mean(-1, keepdims=True)
    norm = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    correlations: Floats = np.divide((a * b).sum(-1), norm, out=np.full_like(norm, np.nan), where=norm > 0)
    return correlations
