"""How far two orders of the same things agree: ranks with ties, Spearman, Kendall, and the top that they share."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

RESAMPLES = 1000
LEAST = 3
"""Fewer things have no meaningful correlation: two are always in perfect order, one way or the other."""


def ranks(values: ArrayLike) -> Floats:
    """Rank of each value among those of its row (the last axis), from 1; equal ones share the mean of their places."""
    from scipy.stats import rankdata  # here: it takes a second to load, and a service that starts needs none of it

    found: Floats = rankdata(np.asarray(values, dtype=np.float64), axis=-1)
    return found


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of the ranks; NaN below three values and where either side is constant."""
    a, b = ranks(first), ranks(second)
    return float(_pearson(a, b)) if len(a) >= LEAST else float("nan")


def kendall(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's τ-b: agreeing less disagreeing pairs, with ties taken out; NaN as in `spearman`."""
    from scipy.stats import kendalltau

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return float(kendalltau(a, b, method="asymptotic").statistic) if len(a) >= LEAST else float("nan")


def best(values: ArrayLike, share: float) -> NDArray[np.intp]:
    """Indices of the best (highest) `share` of the values, the best first; equal ones in their order."""
    array = np.asarray(values, dtype=np.float64)
    # A product such as 0.29 · 100 lies a little below the whole number that is meant.
    count = int(share * len(array) + 1e-9)
    return np.argsort(-array, kind="stable")[:count]


def common_ratio(truth: ArrayLike, proxy: ArrayLike, share: float) -> float:
    """Of the best `share` by the truth, how many are among as many best by the proxy (LTS, arXiv 2203.02094, §4.1)."""
    true, found = best(truth, share), best(proxy, share)
    return len(np.intersect1d(true, found)) / len(true) if len(true) else float("nan")


def interval(first: ArrayLike, second: ArrayLike, resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """95 % interval of Spearman's ρ by the bootstrap over pairs (percentiles); the same data give the same interval.

    None if it is undefined.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) < LEAST:
        return None
    draw = _generator(a, b)
    rows = draw.integers(0, len(a), (resamples, len(a)))
    drawn = _pearson(ranks(a[rows]), ranks(b[rows]))
    found = drawn[~np.isnan(drawn)]
    if len(found) < resamples / 2:
        return None
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def _pearson(first: Floats, second: Floats) -> Floats:
    """The correlation of each row of one with that row of the other; NaN where either is constant."""
    a, b = first - first.mean(-1, keepdims=True), second - second.mean(-1, keepdims=True)
    norm = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    found: Floats = np.divide((a * b).sum(-1), norm, out=np.full_like(norm, np.nan), where=norm > 0)
    return found


def _generator(*arrays: NDArray[Any]) -> np.random.Generator:
    key = hashlib.sha256(b"".join(array.astype("<f8").tobytes() for array in arrays)).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
