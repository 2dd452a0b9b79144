"""Fits the costs of features, the base of latency predictions, by regularised non-negative least squares.

| symbol | here | meaning |
| --- | --- | --- |
| x | `features` | (n, p) features of the launches |
| t | `latency_ms` | (n,) measured latencies |
| c | `UnitCosts.per_unit` | (p,) cost of one unit of each feature, ms, at least 0; t ≈ x · c |
| X | `rows` | x / t, scaled to a mean of 1 in each column: shares of the time |
| s | `shares` | (p,) coefficients of X: minimise Σ (X · s - 1)² + Σ ((s - prior) / spread)², weighted |

The prior of s is equal shares, or the shares by other devices' costs.

Some devices alternate between two latencies (clock, kernel), and the mean of the two never occurs. The loss is
therefore Huber's (1964), with a bound that falls with the number of launches. With a hundred launches the loss is
nearly the absolute error, and the fit is near the more frequent latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from edgefront.core.measurement.statistics import MAD_TO_STD

Floats = NDArray[np.float64]

_DEVIATION = 0.08
"""Prior standard deviation of a feature's share if no other device is known."""
_MIN_DEVIATION = 0.02
_ROUNDS = 25
_MIN_MS = 1e-6
"""Minimum latency that a launch may report, ms."""
_DIGITS = 10


@dataclass(frozen=True)
class UnitCosts:
    """Fitted cost of one unit of each feature, and the precision of the fit."""

    per_unit: Floats
    """(p,) cost of one unit of each feature, ms."""
    scale: Floats
    """(p,) unit of `gram` and `precision`, ms for one unit of each feature."""
    gram: Floats
    """(p, p) Gram matrix XᵀX of the scaled features."""
    precision: Floats
    """(p,) prior precision of the shares."""

    def latency(self, features: Floats) -> Floats:
        """(n,) predicted latency of launches with these (n, p) features, ms."""
        return np.asarray(np.maximum(features @ self.per_unit, _MIN_MS))

    def leverage(self, features: Floats, latency_ms: Floats, noise: float) -> Floats:
        """(n,) variance of the latency's logarithm due to the uncertainty of the costs, in units of `noise`."""
        shares = features * self.scale / latency_ms[:, None]
        covariance = np.linalg.inv(self.gram + noise * np.diag(self.precision))
        return np.asarray(((shares @ covariance) * shares).sum(axis=1))


def fit(
    features: Floats,
    latency_ms: Floats,
    noise: Floats,
    units: Sequence[str],
    others: Sequence[Floats] = (),
    *,
    robust: bool = True,
) -> UnitCosts:
    """Fits the costs to n launches with (n, p) features and (n,) latencies.

    Args:
        noise: (n,) relative standard deviation of each latency.
        units: (p,) unit of each feature. A feature that no launch has gets the mean cost of the feature's unit ± 100 %.
        others: (p,) costs on each other device; only the proportions of the costs matter.
        robust: whether the loss is Huber's instead of the squared error.
    """
    rows = features / latency_ms[:, None]
    scale = rows.mean(axis=0)
    used = scale > 0
    inverse = np.where(used, 1 / np.where(used, scale, 1.0), 0.0)
    rows = rows * inverse
    prior, spread = _prior(rows, used, [other * scale for other in others])
    shares = _solve(rows, np.ones(len(rows)), prior, 1e-3 / spread)
    freedom = max(1, len(rows) - int((shares > 0).sum()))
    deviation = min(0.5, float(np.sqrt(((rows @ shares - 1) ** 2).sum() / freedom)))
    total = np.sqrt(deviation**2 + noise**2) + 1e-9
    weights = float(np.sqrt(np.mean(total**2))) / total
    shares = _solve(rows, weights, prior, deviation / spread)
    if robust:
        shares = _reweighted(rows, weights, shares, prior, spread)
    costs = shares * inverse
    unseen = np.where(used, 0.0, _by_unit(features.mean(axis=0), costs, units))
    scales = inverse + unseen
    return UnitCosts(rounded(costs + unseen), scales, rows.T @ rows, np.where(used, spread**-2.0, 1.0))


def _reweighted(rows: Floats, weights: Floats, shares: Floats, prior: Floats, spread: Floats) -> Floats:
    """Minimises Huber's loss by iteratively reweighted least squares, starting from `shares`."""
    bound = min(3.0, max(0.1, (20 / len(rows)) ** 2))
    for turn in range(_ROUNDS):
        errors = np.abs(rows @ shares - 1)
        middle = float(np.median(errors)) + 1e-9
        limit = middle * max(bound, 3 * 0.7**turn)
        pulled = weights * np.sqrt(np.minimum(1.0, limit / np.maximum(errors, 1e-12)))
        # The strength keeps the weight of the prior relative to the loss.
        strength = np.sqrt(min(limit, MAD_TO_STD * middle) * MAD_TO_STD * middle) / spread
        before, shares = shares, _solve(rows, pulled, prior, strength)
        if turn > 5 and np.abs(shares - before).max() < 1e-12:
            break
    return shares


def rounded(values: Floats, digits: int = _DIGITS) -> Floats:
    """Rounds values to significant digits. To ten digits, linear algebra agrees on all platforms."""
    with np.errstate(divide="ignore"):
        magnitude = np.where(values == 0, 0.0, np.floor(np.log10(np.abs(values))))
    unit = 10.0 ** (magnitude - digits + 1)
    return np.asarray(np.round(values / unit) * unit)


def _by_unit(amounts: Floats, costs: Floats, units: Sequence[str]) -> Floats:
    """(p,) mean cost, for each feature, over all features of the same unit; 0 if no launch has such a feature."""
    means = np.zeros(len(units))
    for unit in set(units):
        same = np.array([other == unit for other in units])
        means[same] = (costs[same] @ amounts[same]) / max(float(amounts[same].sum()), 1.0)
    return means


def _prior(rows: Floats, used: NDArray[np.bool_], others: Sequence[Floats]) -> tuple[Floats, Floats]:
    """(p,) prior mean and (p,) prior standard deviation of the shares."""
    if not others:
        return used / used.sum(), np.full(len(used), _DEVIATION)
    shares = np.array([other * used / np.median(rows @ (other * used)) for other in others])
    return shares.mean(axis=0), shares.std(axis=0) + _MIN_DEVIATION


def _solve(rows: Floats, weights: Floats, prior: Floats, strength: Floats) -> Floats:
    left = np.vstack([rows * weights[:, None], np.diag(np.broadcast_to(strength, prior.shape))])
    solution, _ = nnls(left, np.concatenate([weights, strength * prior]))
    return np.asarray(solution)
