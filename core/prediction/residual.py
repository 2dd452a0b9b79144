"""A Gaussian process on the residuals of the sum of costs: caches, kernels that suit some widths, threads.

Its covariance is Matérn 5/2 over descriptors of the architectures in units of their deviations, with one length scale,
chosen by marginal likelihood from a small grid, so that every platform chooses the same; there is no process
unless it raises the likelihood enough. Far from the measurements it falls back to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.gaussian_process import Kernel, Process, from_grid
from edgefront.core.prediction.spread import farthest, standardised

Floats = NDArray[np.float64]

_LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Grid of length scales, in units of the square root of the number of descriptors."""
_RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Grid of signal variance / noise variance."""
_MIN_GAIN = 2.0
"""Minimum gain of log likelihood for which a process is used."""
_MAX_ROWS = 192
"""Maximum number of launches that the process is fitted to; of more, a spread-out subset is taken."""


@dataclass(frozen=True)
class Correction:
    """Corrections of the logarithm of the latency."""

    noise: float
    """Variance of a launch around the process."""
    process: Process | None = None
    """Gaussian process in units of the noise's standard deviation; None corrects nothing."""

    def predict(self, descriptors: Floats) -> tuple[Floats, Floats]:
        """(n,) mean of the correction and (n,) its variance, in units of `noise`."""
        if self.process is None:
            return np.zeros(len(descriptors)), np.zeros(len(descriptors))
        mean, deviation = self.process.predict(descriptors)
        return mean, deviation**2 - 1


def choose(descriptors: Floats, residuals: Floats) -> Kernel | None:
    """The kernel with the greatest marginal likelihood, or none."""
    rows, (_, width) = _fitted_rows(descriptors), standardised(descriptors)
    lengths = [length * np.sqrt(len(width)) * width for length in _LENGTHS]
    return from_grid(descriptors[rows], residuals[rows], lengths, _RATIOS, _MIN_GAIN)


def fit(descriptors: Floats, residuals: Floats, weights: Floats, kernel: Kernel | None) -> Correction:
    """The process of this kernel given n launches; `weights` (n,) are 1 for a launch of the usual variance."""
    if kernel is None:
        return Correction(_variance(residuals, weights))
    rows = _fitted_rows(descriptors)
    process = Process(kernel, descriptors[rows], residuals[rows], 1 / weights[rows])
    return Correction(_variance(residuals - process.predict(descriptors)[0], weights), process)


def _fitted_rows(descriptors: Floats) -> NDArray[np.int64]:
    """Rows that the process is fitted to."""
    return np.arange(len(descriptors)) if len(descriptors) <= _MAX_ROWS else farthest(descriptors, _MAX_ROWS)


def _variance(left: Floats, weights: Floats) -> float:
    return max(float(np.average(left**2, weights=weights)), 1e-10)
