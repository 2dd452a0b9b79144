"""Costs of features by non-negative least squares of the relative error: the base of every prediction of latency.

A latency is the sum over features of (how many) · (what one costs), and no cost is negative. The rows are divided by
the measured latency, so that an error counts by its share of it. What few launches leave open a prior decides: shares
of the time, equal ones, or those that other devices' costs give for these architectures.

Some devices answer with one of two latencies, whatever is run (another clock, another kernel). The mean of both is
never right, so the loss grows less than quadratically beyond a bound (Huber 1964), which falls as launches become many:
with a hundred it is nearly the absolute error, whose minimum is the more frequent of the two.
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
"""Standard deviation of a feature's share of the time from the prior's, where no other device is known."""
_MIN_DEVIATION = 0.02
_ROUNDS = 25
_MIN_MS = 1e-6
"""Nothing is faster: the least that a launch may report."""
_DIGITS = 10


@dataclass(frozen=True)
class Costs:
    """What one of each feature costs, and what the launches say of it."""

    per_unit: Floats
    """(p,) ms for one unit of each feature."""
    scale: Floats
    """(p,) ms for one unit of each feature by which `gram` and `precision` are measured."""
    gram: Floats
    """(p, p) products of the shares, summed over the launches."""
    precision: Floats
    """(p,) of the prior's shares."""

    def latency(self, features: Floats) -> Floats:
        """(n,) ms."""
        return np.asarray(np.maximum(features @ self.per_unit, _MIN_MS))

    def leverage(self, features: Floats, latency_ms: Floats, noise: float) -> Floats:
        """(n,) variance of the logarithm of the latency for what is not known of the costs, in units of `noise`."""
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
) -> Costs:
    """Costs from n launches; features (n, p), `noise` (n,) the relative standard deviation of each latency.

    `units` (p,): a feature that no launch has is thought to cost what others of its unit do, and may cost nothing or
    double. `others`: costs (p,) of the same features on other devices; only their proportions matter. `robust`: by the
    loss that forgives outliers, else by least squares.
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
    return Costs(rounded(costs + unseen), scales, rows.T @ rows, np.where(used, spread**-2.0, 1.0))


def _reweighted(rows: Floats, weights: Floats, shares: Floats, prior: Floats, spread: Floats) -> Floats:
    """Iteratively reweighted least squares for Huber's loss."""
    bound = min(3.0, max(0.1, (20 / len(rows)) ** 2))
    for turn in range(_ROUNDS):
        errors = np.abs(rows @ shares - 1)
        middle = float(np.median(errors)) + 1e-9
        limit = middle * max(bound, 3 * 0.7**turn)
        pulled = weights * np.sqrt(np.minimum(1.0, limit / np.maximum(errors, 1e-12)))
        # The prior counts for as much beside this loss as beside squares.
        strength = np.sqrt(min(limit, MAD_TO_STD * middle) * MAD_TO_STD * middle) / spread
        before, shares = shares, _solve(rows, pulled, prior, strength)
        if turn > 5 and np.abs(shares - before).max() < 1e-12:
            break
    return shares


def rounded(values: Floats, digits: int = _DIGITS) -> Floats:
    """To so many significant digits, ten by default: what linear algebra of different platforms agrees in."""
    with np.errstate(divide="ignore"):
        magnitude = np.where(values == 0, 0.0, np.floor(np.log10(np.abs(values))))
    unit = 10.0 ** (magnitude - digits + 1)
    return np.asarray(np.round(values / unit) * unit)


def _by_unit(amounts: Floats, costs: Floats, units: Sequence[str]) -> Floats:
    """(p,) what one costs in the mean of the features of the same unit; 0 where there is none."""
    means = np.zeros(len(units))
    for unit in set(units):
        same = np.array([other == unit for other in units])
        means[same] = (costs[same] @ amounts[same]) / max(float(amounts[same].sum()), 1.0)
    return means


def _prior(rows: Floats, used: NDArray[np.bool_], others: Sequence[Floats]) -> tuple[Floats, Floats]:
    """(p,) shares that are expected before any launch, and how far they may be off."""
    if not others:
        return used / used.sum(), np.full(len(used), _DEVIATION)
    shares = np.array([other * used / np.median(rows @ (other * used)) for other in others])
    return shares.mean(axis=0), shares.std(axis=0) + _MIN_DEVIATION


def _solve(rows: Floats, weights: Floats, prior: Floats, strength: Floats) -> Floats:
    left = np.vstack([rows * weights[:, None], np.diag(np.broadcast_to(strength, prior.shape))])
    solution, _ = nnls(left, np.concatenate([weights, strength * prior]))
    return np.asarray(solution)
