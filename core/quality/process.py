"""A Gaussian process over features: fitted by scikit-learn, predicted by numpy alone.

The covariance of two models x, y is amplitude²·Matérn5/2(x, y) with a length scale for each feature, plus
linear²·(1 + (x − c)·(y − c)), plus noise² for a model with itself. Features are not standardised by their table: their
units mean the same in every table, which is what lets a small one begin with the length scales of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.kernels import matern52

Floats = NDArray[np.float64]

CHUNK = 4096
"""Rows that are predicted at once: what fits into a cache of the CPU."""
ROWS_FOR_KERNEL = 300
"""Most rows that the kernel's parameters are found on: more change them little and take long."""
DIGITS = 5
"""Significant digits of the kernel's parameters, so that what is stored is what is used."""


@dataclass(frozen=True)
class Kernel:
    """Parameters of the covariance. All but the length scales are standard deviations in the unit of the targets."""

    amplitude: float
    length_scales: tuple[float, ...]
    """One a feature, in its unit: so far apart, two models still tell about each other."""
    linear: float
    """Per unit of a feature."""
    noise: float
    """Of one training: what two trainings of the same shape differ by."""

    def between(self, first: Floats, second: Floats, centre: Floats) -> Floats:
        """(n, m) covariance without the noise."""
        scales = np.array(self.length_scales)
        smooth = self.amplitude**2 * matern52((first - centre) / scales, (second - centre) / scales)
        found: Floats = smooth + self.linear**2 * (1 + (first - centre) @ (second - centre).T)
        return found

    def variance(self, rows: Floats, centre: Floats) -> Floats:
        """(n,) of one training of each row before anything is known, the noise included."""
        found: Floats = self.amplitude**2 + self.linear**2 * (1 + ((rows - centre) ** 2).sum(1)) + self.noise**2
        return found


@dataclass(frozen=True, eq=False)
class Process:
    """What is known after `targets` were seen at `inputs`."""

    kernel: Kernel
    inputs: Floats
    targets: Floats

    @cached_property
    def centre(self) -> Floats:
        found: Floats = self.inputs.mean(0)
        return found

    @cached_property
    def _inverse(self) -> Floats:
        """Of the Cholesky factor of the covariance of all targets."""
        covariance = self.kernel.between(self.inputs, self.inputs, self.centre)
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise**2
        found: Floats = np.linalg.inv(np.linalg.cholesky(covariance))
        return found

    @cached_property
    def _weights(self) -> Floats:
        found: Floats = self._inverse.T @ (self._inverse @ self.targets)
        return found

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of one training of each row."""
        mean, deviation = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            near = self.kernel.between(rows[part], self.inputs, self.centre)
            known = ((near @ self._inverse.T) ** 2).sum(1)
            mean[part] = near @ self._weights
            left = self.kernel.variance(rows[part], self.centre) - known
            deviation[part] = np.sqrt(np.maximum(left, self.kernel.noise**2))
        return mean, deviation

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each target had it, and every other of the same input, not been seen.

        In closed form (Rasmussen & Williams 2006, §5.4.2), with the kernel that was found with it.
        """
        precision = self._inverse.T @ self._inverse
        mean, deviation = np.empty(len(self.targets)), np.empty(len(self.targets))
        _, group = np.unique(self.inputs, axis=0, return_inverse=True)
        for members in _members(group.reshape(-1)):
            covariance = np.linalg.inv(precision[np.ix_(members, members)])
            mean[members] = self.targets[members] - covariance @ self._weights[members]
            deviation[members] = np.sqrt(np.diag(covariance))
        return mean, deviation


@dataclass(frozen=True)
class Expectation:
    """What is thought of a kernel before any target is seen: its parameters, and how far their logarithms may stray."""

    kernel: Kernel
    scales_stray: float = 0.5
    others_stray: float = 0.5


def fitted_kernel(inputs: Floats, targets: Floats, expected: Expectation) -> Kernel:
    """The most probable kernel for these targets, given what is expected of it.

    The same inputs and targets give the same kernel; of many rows every so many count.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor  # here: only who fits waits for it to load
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

    if len(inputs) > ROWS_FOR_KERNEL:
        kept = spread(len(inputs), ROWS_FOR_KERNEL)
        inputs, targets = inputs[kept], targets[kept]
    start, wide = expected.kernel, (1e-12, 1e12)
    covariance = (
        ConstantKernel(start.amplitude**2, wide) * Matern(start.length_scales, wide, nu=2.5)
        + ConstantKernel(start.linear**2, wide) * DotProduct(1.0, "fixed")
        + WhiteKernel(start.noise**2, wide)
    )
    process = GaussianProcessRegressor(covariance, alpha=0.0, optimizer=_most_probable(expected))
    process.fit(inputs - inputs.mean(0), targets)
    amplitude, *scales, linear, noise = np.exp(process.kernel_.theta)
    return Kernel(
        amplitude=rounded(np.sqrt(amplitude)),
        length_scales=tuple(rounded(scale) for scale in scales),
        linear=rounded(np.sqrt(linear)),
        noise=rounded(np.sqrt(noise)),
    )


def spread(number: int, most: int) -> NDArray[np.int64]:
    """At most so many places out of `number`, evenly spaced."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(np.int64))


def rounded(value: float) -> float:
    """To `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _most_probable(expected: Expectation) -> Callable[..., tuple[Any, float]]:
    """An optimizer for scikit-learn: the likelihood times a log-normal probability of each parameter."""
    from scipy.optimize import minimize

    scales = len(expected.kernel.length_scales)
    # The kernel has variances, whose logarithms stray twice as far as those of deviations.
    stray = np.array([2 * expected.others_stray, *[expected.scales_stray] * scales, *[2 * expected.others_stray] * 2])

    def optimizer(objective: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:  # noqa: ARG001
        def loss(theta: Floats) -> tuple[float, Floats]:
            value, gradient = objective(theta)
            apart = (theta - start) / stray
            return value + (apart @ apart) / 2, gradient + apart / stray

        # Six strays are as good as never; without them a wild step of the search overflows.
        box = np.column_stack([start - 6 * stray, start + 6 * stray])
        found = minimize(loss, start, jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": 60})
        return found.x, found.fun

    return optimizer


def _members(group: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
