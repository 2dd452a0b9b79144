"""Gaussian processes, for scaling laws and for the residuals of a latency model.

| symbol | here | meaning |
| --- | --- | --- |
| x, x′ | `rows`, `inputs` | (q,) input rows |
| c | `centre` | (q,) mean of the inputs |
| ℓ | `length_scales` | (q,) length scales |
| k(x, x′) | `Kernel.between` | amplitude² · Matérn5/2((x − x′) / ℓ) + linear² · (1 + (x − c)·(x′ − c)) |
| σ | `noise` | standard deviation of the noise of a target |
| L | | Cholesky factor of K + σ²I, the covariance of the targets; `_inverse` is L⁻¹ |
| y | `targets` | (n,) targets |
| α | `_weights` | (K + σ²I)⁻¹ y; the mean of a prediction is k(x, inputs) · α |

The posterior is exact (Rasmussen & Williams 2006, §2.2). Columns are not standardised, so length scales learnt from one
set of inputs apply to another set. Kernel parameters come from a grid (`from_grid`), equal on every platform, or from
maximum a posteriori estimation with scikit-learn (`most_probable`).
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
"""Number of rows that are predicted together, so that the covariances fit into the CPU's cache."""
ROWS_FOR_KERNEL = 300
"""Maximum number of rows that kernel parameters are fitted to."""
DIGITS = 5
"""Significant digits of kernel parameters, so that stored parameters are exact."""
_MIN_VARIANCE = 1e-12
_TIE = 1e-6
"""Maximum difference of log likelihoods that is a tie. In a tie the earlier kernel of the grid wins on every platform.
"""


def matern52(first: Floats, second: Floats) -> Floats:
    """Matérn 5/2 correlations (n, m) of rows (n, q) and (m, q) (Rasmussen & Williams 2006, eq. 4.17), with columns in
    units of their length scales.
    """
    square = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)[None, :] - 2 * first @ second.T
    distance = np.sqrt(5 * np.maximum(square, 0.0))
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


@dataclass(frozen=True)
class Kernel:
    """Parameters of the covariance function. All except length scales are standard deviations in the targets' unit."""

    amplitude: float
    length_scales: tuple[float, ...]
    """Length scale of each input column, in the column's unit."""
    linear: float
    """Standard deviation of the linear part's slopes, per unit of an input column."""
    noise: float
    """Standard deviation of the noise of one target."""

    def between(self, first: Floats, second: Floats, centre: Floats) -> Floats:
        """(n, m) covariance, without noise, of the targets of `first` (n, q) and of `second` (m, q)."""
        scales = np.array(self.length_scales)
        smooth = self.amplitude**2 * matern52((first - centre) / scales, (second - centre) / scales)
        if not self.linear:
            return np.asarray(smooth)
        return np.asarray(smooth + self.linear**2 * (1 + (first - centre) @ (second - centre).T))

    def variance(self, rows: Floats, centre: Floats) -> Floats:
        """(n,) prior variance, including noise, of one target of each row."""
        signal = self.amplitude**2 + self.linear**2 * (1 + ((rows - centre) ** 2).sum(1))
        return np.asarray(signal + self.noise**2)


@dataclass(frozen=True, eq=False)
class Process:
    """Posterior of a Gaussian process given `targets` (n,) at `inputs` (n, q)."""

    kernel: Kernel
    inputs: Floats
    targets: Floats
    noise: Floats | float = 1.0
    """(n,) noise variance of each target, in units of the kernel's noise variance."""

    @cached_property
    def centre(self) -> Floats:
        return np.asarray(self.inputs.mean(0))

    @cached_property
    def _inverse(self) -> Floats:
        """(n, n) inverse L⁻¹ of the Cholesky factor of the targets' covariance."""
        covariance = self.kernel.between(self.inputs, self.inputs, self.centre)
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise**2 * self.noise
        return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)))

    @cached_property
    def _weights(self) -> Floats:
        return np.asarray(self._inverse.T @ (self._inverse @ self.targets))

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """(n,) mean and (n,) standard deviation, including noise, of one target of each row."""
        mean, deviation = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            near = self.kernel.between(rows[part], self.inputs, self.centre)
            explained = ((near @ self._inverse.T) ** 2).sum(1)
            mean[part] = near @ self._weights
            left = self.kernel.variance(rows[part], self.centre) - explained
            deviation[part] = np.sqrt(np.maximum(left, self.kernel.noise**2))
        return mean, deviation

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """(n,) mean and (n,) standard deviation of each target, predicted without all targets of the same input.

        Uses the closed form (Rasmussen & Williams 2006, §5.4.2) and the same kernel.
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
    """The kernel with the greatest marginal likelihood among all pairs of length scales (q,) and ratio of signal to
    noise variance. None if no kernel's log likelihood exceeds the log likelihood of pure noise by more than `gain`.

    Kernels have no linear part. Variances are in units of the noise variance, which is estimated for each kernel.
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
class KernelPrior:
    """Log-normal prior of a kernel's parameters. `kernel` has the medians. The other two fields are standard deviations
    of logarithms: one for the length scales, one for all other parameters.
    """

    kernel: Kernel
    scales_std: float = 0.5
    others_std: float = 0.5


def most_probable(inputs: Floats, targets: Floats, expected: KernelPrior) -> Kernel:
    """The maximum a posteriori kernel, from at most `ROWS_FOR_KERNEL` evenly spaced targets. Deterministic."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # a late import: scikit-learn loads slowly
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
    """Returns at most `most` evenly spaced indices below `number`."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(np.int64))


def rounded(value: float) -> float:
    """Rounds a kernel parameter to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _optimizer(expected: KernelPrior) -> Callable[..., tuple[Any, float]]:
    """Returns an optimizer for scikit-learn that adds the log prior to the log likelihood."""
    from scipy.optimize import minimize

    scales = len(expected.kernel.length_scales)
    # scikit-learn's parameters are logarithms of variances: twice the logarithms of standard deviations.
    stray = np.array([2 * expected.others_std, *[expected.scales_std] * scales, *[2 * expected.others_std] * 2])

    def optimizer(objective: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:  # noqa: ARG001
        def loss(theta: Floats) -> tuple[float, Floats]:
            value, gradient = objective(theta)
            apart = (theta - start) / stray
            return value + (apart @ apart) / 2, gradient + apart / stray

        # Bounds of six prior standard deviations, because an unbounded step of the optimizer may overflow.
        box = np.column_stack([start - 6 * stray, start + 6 * stray])
        optimum = minimize(loss, start, jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": 60})
        return optimum.x, optimum.fun

    return optimizer


def _members(group: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
