"""A Gaussian process on what a sum of costs leaves unexplained: caches, kernels that suit some widths, threads.

Matérn 5/2 over standardised descriptors of the architectures (Rasmussen & Williams 2006, eq. 4.17), one length scale,
chosen by marginal likelihood from a small grid, so that every platform chooses the same; none where nothing in the
launches speaks for it. Beyond what was measured it falls back to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from edgefront.core.kernels import matern52
from edgefront.core.prediction.spread import farthest, standardised

Floats = NDArray[np.float64]

_LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Of the square root of the number of descriptors."""
_RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Signal variance by noise variance."""
_GAIN = 2.0
"""Least gain of log likelihood for which a process is believed."""
_MAX_ROWS = 96
"""Points that carry the process; of more launches a spread-out choice (Titsias 2009, §3: projected process)."""
_JITTER = 1e-6


@dataclass(frozen=True)
class Kernel:
    """How far a correction reaches, and its variance beside the launches'; a ratio of 0 is no process."""

    length: float = 1.0
    ratio: float = 0.0


@dataclass(frozen=True)
class Learnt:
    """What launches say of a process with a kernel."""

    centre: Floats
    width: Floats
    points: Floats
    weights: Floats
    known: Floats
    """(points, points): what launches take off the variance, a quadratic form of the covariance with the points."""


@dataclass(frozen=True)
class Process:
    """Corrections of the logarithm of the latency."""

    noise: float
    """Variance of a launch around the process."""
    kernel: Kernel = Kernel()
    learnt: Learnt | None = None

    def predict(self, descriptors: Floats) -> tuple[Floats, Floats]:
        """(n,) mean of the correction and (n,) its variance, in units of `noise`."""
        learnt = self.learnt
        if learnt is None:
            return np.zeros(len(descriptors)), np.zeros(len(descriptors))
        across = matern52((descriptors - learnt.centre) / learnt.width, learnt.points, self.kernel.length)
        known = ((across @ learnt.known) * across).sum(axis=1)
        return across @ learnt.weights, self.kernel.ratio * np.clip(1 - known, 0.0, 1.0)


def choose(descriptors: Floats, residuals: Floats) -> Kernel:
    """The kernel with the greatest marginal likelihood, or none."""
    centre, width = standardised(descriptors)
    chosen = farthest(descriptors, 2 * _MAX_ROWS)
    points, values = (descriptors[chosen] - centre) / width, residuals[chosen]
    count = len(values)
    best, found = -count / 2 * np.log(max(float(np.mean(values**2)), 1e-12)) + _GAIN, Kernel()
    for length in _LENGTHS:
        length = length * np.sqrt(descriptors.shape[1])
        roots, vectors = np.linalg.eigh(matern52(points, points, length))
        turned = (vectors.T @ values) ** 2
        for ratio in _RATIOS:
            scales = ratio * np.maximum(roots, 0) + 1
            noise = max(float(np.mean(turned / scales)), 1e-12)
            likelihood = -count / 2 * np.log(noise) - np.log(scales).sum() / 2
            if likelihood > best + 1e-6:
                best, found = likelihood, Kernel(float(length), ratio)
    return found


def fit(descriptors: Floats, residuals: Floats, weights: Floats, kernel: Kernel) -> Process:
    """The process of this kernel given n launches; `weights` (n,) are 1 for a launch of the usual variance."""
    if not kernel.ratio:
        return Process(_variance(residuals, weights))
    centre, width = standardised(descriptors)
    scaled = (descriptors - centre) / width
    points = scaled[farthest(descriptors, _MAX_ROWS)]
    between = matern52(points, points, kernel.length) + _JITTER * np.eye(len(points))
    across = matern52(points, scaled, kernel.length)
    # In units of the signal's variance, which the ratio ties to the noise's.
    first = cho_factor(between, lower=True)
    second = cho_factor(between + kernel.ratio * (across * weights) @ across.T, lower=True)
    means = np.asarray(kernel.ratio * cho_solve(second, across @ (weights * residuals)))
    known = cho_solve(first, np.eye(len(points))) - cho_solve(second, np.eye(len(points)))
    noise = _variance(residuals - means @ across, weights)
    return Process(noise, kernel, Learnt(centre, width, points, means, np.asarray(known)))


def _variance(left: Floats, weights: Floats) -> float:
    return max(float(np.average(left**2, weights=weights)), 1e-10)
