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
    """Rank of each value, from 1; equal ones share the mean of their places."""
    _, place, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = last - (counts - 1) / 2
    return means[place]


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of the ranks; NaN below three values and where either side is constant."""
    a, b = ranks(first), ranks(second)
    if len(a) < LEAST:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")


def kendall(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's τ-b: agreeing less disagreeing pairs, with ties taken out; NaN as in `spearman`."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) < LEAST:
        return float("nan")
    agreeing, ordered_a, ordered_b = 0, 0, 0
    for index in range(1, len(a)):  # a row at a time: tables have thousands of rows
        by_a, by_b = np.sign(a[index] - a[:index]), np.sign(b[index] - b[:index])
        agreeing += int((by_a * by_b).sum())
        ordered_a += int(np.count_nonzero(by_a))
        ordered_b += int(np.count_nonzero(by_b))
    norm = float(np.sqrt(float(ordered_a) * ordered_b))
    return agreeing / norm if norm > 0 else float("nan")


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

    None where the values do not tell one.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) < LEAST:
        return None
    draw = _generator(a, b)
    drawn = (spearman(a[one], b[one]) for one in draw.integers(0, len(a), (resamples, len(a))))
    found = np.array([value for value in drawn if not np.isnan(value)])
    if len(found) < resamples / 2:
        return None
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def _generator(*arrays: NDArray[Any]) -> np.random.Generator:
    key = hashlib.sha256(b"".join(array.astype("<f8").tobytes() for array in arrays)).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
