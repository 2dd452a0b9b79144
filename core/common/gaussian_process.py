"""Gaussian processes: of quality laws, and of what a sum of costs leaves unexplained of a latency.

The covariance of two rows x, y is amplitude²·Matérn5/2(x, y) with a length scale for each column, plus
linear²·(1 + (x − c)·(y − c)) around the mean c of the rows that were seen, plus noise² for a row with itself. Columns
are not standardised: their units mean the same wherever rows come from, which is what lets a small table begin with the
length scales of others. The posterior is exact (Rasmussen & Williams 2006, §2.2), by numpy alone. A kernel's parameters
are chosen from a grid (`from_grid`), the same on every platform, or are the most probable ones (`most_probable`),
fitted by scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CHUNK = 4096
"""Rows that are predicted at once: what fits into a cache of the CPU."""
ROWS_FOR_KERNEL = 300
"""Most rows that the kernel's parameters are fitted to: more change them little and take long."""
DIGITS = 5
"""Significant digits of the kernel's parameters, so that what is stored is what is used."""
_MIN_VARIANCE = 1e-12
_TIE = 1e-6
"""Difference of log likelihoods that counts as none: a later kernel of the grid has to be better by more, whatever a
platform's last digits are."""


def matern52(first: Floats, second: Floats) -> Floats:
    """Matérn 5/2 correlations (n, m) of rows (n, q) and (m, q) (Rasmussen & Williams 2006, eq. 4.17), with columns in
    units of their length scales.
    """
    square = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)[None, :] - 2 * first @ second.T
    distance = np.sqrt(5 * np.maximum(square, 0.0))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


@dataclass(frozen=True)
class Kernel:
    """Parameters of the covariance. All but the length scales are standard deviations in the unit of the targets."""

    amplitude: float
    length_scales: tuple[float, ...]
    """One a column, in its unit: so far apart, two rows still tell about each other."""
    linear: float
    """Per unit of a column."""
    noise: float
    """Standard deviation of the noise of one target."""

    def between(self, first: Floats, second: Floats, centre: Floats) -> Floats:
        """(n, m) covariance without the noise."""
        scales = np.array(self.length_scales)
        smooth = self.amplitude**2 * matern52((first - centre) / scales, (second - centre) / scales)
        if not self.linear:
            return np.asarray(smooth)
        return np.asarray(smooth + self.linear**2 * (1 + (first - centre) @ (second - centre).T))

    def variance(self, rows: Floats, centre: Floats) -> Floats:
        """(n,) of one target of each row before anything is known, the noise included."""
        signal = self.amplitude**2 + self.linear**2 * (1 + ((rows - centre) ** 2).sum(1))
        return np.asarray(signal + self.noise**2)


@dataclass(frozen=True, eq=False)
class Process:
    """What is known after `targets` (n,) were seen at `inputs` (n, q)."""

    kernel: Kernel
    inputs: Floats
    targets: Floats
    noise: Floats | float = 1.0
    """(n,) variance of each target's noise, in units of the kernel's."""

    @cached_property
    def centre(self) -> Floats:
        return np.asarray(self.inputs.mean(0))

    @cached_property
    def _inverse(self) -> Floats:
        """Inverse of the Cholesky factor of the covariance of all targets."""
        covariance = self.kernel.between(self.inputs, self.inputs, self.centre)
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise**2 * self.noise
        return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)))

    @cached_property
    def _weights(self) -> Floats:
        return np.asarray(self._inverse.T @ (self._inverse @ self.targets))

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """(n,) mean and (n,) standard deviation of one target of each row, its noise included."""
        mean, deviation = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            near = self.kernel.between(rows[part], self.inputs, self.centre)
            explained = ((near @ self._inverse.T) ** 2).sum(1)
            mean[part] = near @ self._weights
            left = self.kernel.variance(rows[part], self.centre) - explained
            deviation[part] = np.sqrt(np.maximum(left, self.kernel.noise**2))
        return mean, deviation

    def covariance(self, rows: Floats, others: Floats) -> Floats:
        """(n, m) covariance, without noise, of the values at rows (n, q) and others (m, q) after what was seen."""
        near, far = (self._inverse @ self.kernel.between(self.inputs, part, self.centre) for part in (rows, others))
        return np.asarray(self.kernel.between(rows, others, self.centre) - near.T @ far)

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


# Choosing a kernel ---------------------------------------------------------------------------------------------------


def from_grid(
    inputs: Floats, targets: Floats, length_scales: Sequence[Floats], ratios: Sequence[float], gain: float
) -> Kernel | None:
    """The kernel with the greatest marginal likelihood of those with these (q,) length scales and ratios of signal to
    noise variance; None unless its log likelihood is greater by `gain` than that of noise alone.

    There is no linear part, and the variances are in units of the noise's, which is the likeliest for each kernel.
    """
    count, chosen = len(targets), None
    best = -count / 2 * np.log(max(float(np.mean(targets**2)), _MIN_VARIANCE)) + gain
    for scales in length_scales:
        roots, vectors = np.linalg.eigh(matern52(inputs / scales, inputs / scales))
        squares = (vectors.T @ targets) ** 2
        for ratio in ratios:
            variances = ratio * np.maximum(roots, 0) + 1
            noise = max(float(np.mean(squares / variances)), _MIN_VARIANCE)
            likelihood = -count / 2 * np.log(noise) - np.log(variances).sum() / 2
            if likelihood > best + _TIE:
                best, chosen = likelihood, Kernel(float(np.sqrt(ratio)), tuple(map(float, scales)), 0.0, 1.0)
    return chosen


@dataclass(frozen=True)
class Expectation:
    """What is thought of a kernel before any target is seen: its parameters, and how far their logarithms may stray."""

    kernel: Kernel
    scales_stray: float = 0.5
    others_stray: float = 0.5


def most_probable(inputs: Floats, targets: Floats, expected: Expectation) -> Kernel:
    """The most probable kernel for these targets, given what is expected of it.

    The same inputs and targets give the same kernel; of many rows every so many count.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor  # here: only who fits waits for it to load
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

    if len(inputs) > ROWS_FOR_KERNEL:
        kept = evenly_spaced(len(inputs), ROWS_FOR_KERNEL)
        inputs, targets = inputs[kept], targets[kept]
    start, wide = expected.kernel, (1e-12, 1e12)
    covariance = (
        ConstantKernel(start.amplitude**2, wide) * Matern(start.length_scales, wide, nu=2.5)
        + ConstantKernel(start.linear**2, wide) * DotProduct(1.0, "fixed")
        + WhiteKernel(start.noise**2, wide)
    )
    process = GaussianProcessRegressor(covariance, alpha=0.0, optimizer=_optimizer(expected))
    process.fit(inputs - inputs.mean(0), targets)
    amplitude, *scales, linear, noise = np.exp(process.kernel_.theta)
    return Kernel(
        amplitude=rounded(np.sqrt(amplitude)),
        length_scales=tuple(rounded(scale) for scale in scales),
        linear=rounded(np.sqrt(linear)),
        noise=rounded(np.sqrt(noise)),
    )


def evenly_spaced(number: int, most: int) -> NDArray[np.int64]:
    """At most `most` places out of `number`, evenly spaced."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(np.int64))


def rounded(value: float) -> float:
    """Rounds to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _optimizer(expected: Expectation) -> Callable[..., tuple[Any, float]]:
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
        optimum = minimize(loss, start, jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": 60})
        return optimum.x, optimum.fun

    return optimizer


def _members(group: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
