"""Costs of features by non-negative least squares of the relative error: the base of every prediction of latency.

A latency is the sum over features of (how many) · (what one costs), and no cost is negative. The rows are divided by the
measured latency, so that an error counts by its share of it. What few launches leave open a prior decides: shares of the
time, equal ones, or those that other devices' costs give for these architectures.

Some devices answer with one of two latencies, whatever is run (another clock, another kernel). The mean of both is never
right, so the loss grows less than quadratically beyond a bound (Huber 1964), which falls as launches become many: with a
hundred it is nearly the absolute error, whose minimum is the more frequent of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]

_DEVIATION = 0.1
"""Of a feature's share of the time from the prior's, where no other device is known."""
_LEAST_DEVIATION = 0.02
_NORMAL = 1.4826
"""Standard deviation of normal values by their median absolute deviation."""
_ROUNDS = 25
_DIGITS = 10


@dataclass(frozen=True)
class Costs:
    """What one of each feature costs, and how certain that is."""

    per_unit: Floats
    """(p,) ms for one unit of each feature."""
    scale: Floats
    """(p,) share of the time that one ms per unit stands for, in the mean of the rows."""
    covariance: Floats
    """(p, p) of the shares."""
    deviation: float
    """Relative standard deviation of the rows around the sum of costs, outliers left out."""

    def latency(self, features: Floats) -> Floats:
        """(n,) ms."""
        return np.asarray(features @ self.per_unit)

    def variance(self, features: Floats, latency_ms: Floats) -> Floats:
        """(n,) of the logarithm of the latency, for what is not known of the costs."""
        shares = features / self.scale / latency_ms[:, None]
        return np.asarray(np.einsum("ij,jk,ik->i", shares, self.covariance, shares))


def fit(features: Floats, latency_ms: Floats, noise: Floats, others: Sequence[Floats] = ()) -> Costs:
    """Costs from n launches; features (n, p), `noise` (n,) the relative standard deviation of each latency.

    `others`: costs (p,) of the same features on other devices; only their proportions matter.
    """
    rows = features / latency_ms[:, None]
    scale = rows.mean(axis=0)
    used = scale > 0
    rows, scale = rows[:, used] / scale[used], scale[used]
    prior, spread = _prior(rows, [other[used] * scale for other in others])
    shares = _solve(rows, np.ones(len(rows)), prior, 1e-3 / spread)
    freedom = max(1, len(rows) - int((shares > 0).sum()))
    deviation = min(0.5, float(np.sqrt(((rows @ shares - 1) ** 2).sum() / freedom)))
    bound = min(3.0, max(0.1, (20 / len(rows)) ** 2))
    for turn in range(_ROUNDS):
        total = np.sqrt(deviation**2 + noise**2)
        weights = float(np.sqrt(np.mean(total**2))) / total
        limit = _median(np.abs(rows @ shares - 1)) * max(bound, 3 * 0.7**turn)
        weights *= np.sqrt(np.minimum(1.0, limit / np.maximum(np.abs(rows @ shares - 1), 1e-12)))
        # As certain as the prior is, measured by the rows' deviation under this loss.
        before, shares = shares, _solve(rows, weights, prior, np.sqrt(min(limit, deviation) * deviation) / spread)
        deviation = max(1e-5, _NORMAL * _median(np.abs(rows @ shares - 1)))
        if turn > 5 and np.abs(shares - before).max() < 1e-9:
            break
    precision = rows.T @ rows / deviation**2 + np.diag(spread**-2.0)
    whole = np.zeros(len(used))
    whole[used] = shares / scale
    covariance = np.zeros((len(used), len(used)))
    covariance[np.ix_(used, used)] = np.linalg.inv(precision)
    scales = np.full(len(used), np.inf)
    scales[used] = 1 / scale
    return Costs(rounded(whole), scales, covariance, deviation)


def rounded(values: Floats, digits: int = _DIGITS) -> Floats:
    """To so many significant digits, ten unless told: what linear algebra of different platforms agrees in."""
    with np.errstate(divide="ignore"):
        magnitude = np.where(values == 0, 0.0, np.floor(np.log10(np.abs(values))))
    unit = 10.0 ** (magnitude - digits + 1)
    return np.asarray(np.round(values / unit) * unit)


def _prior(rows: Floats, others: Sequence[Floats]) -> tuple[Floats, Floats]:
    """(p,) shares that are expected before any launch, and how far they may be off."""
    count = rows.shape[1]
    if not others:
        return np.full(count, 1 / count), np.full(count, _DEVIATION)
    shares = np.array([other / np.median(rows @ other) for other in others])
    return shares.mean(axis=0), shares.std(axis=0) + _LEAST_DEVIATION


def _solve(rows: Floats, weights: Floats, prior: Floats, strength: Floats) -> Floats:
    left = np.vstack([rows * weights[:, None], np.diag(strength)])
    found, _ = nnls(left, np.concatenate([weights, strength * prior]))
    return np.asarray(found)


def _median(values: Floats) -> float:
    return float(np.median(values)) + 1e-9
