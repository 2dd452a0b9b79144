"""Fits a scaling law, with a length scale for each feature, to one table of models with the same training, and predicts
models without their fold. `scripts/make_quality_laws.py` makes the shipped laws of one table with it.

Kernel parameters are the maximum a posteriori estimate, with scikit-learn. The scaling law is valid for the table's
data, split, recipe and budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.stats import t
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.gaussian_process import Kernel, Process, evenly_spaced
from edgefront.core.quality.covariance import LengthScales
from edgefront.core.quality.features import BLOCK_NAMES, names_of_blocks, rounded_features
from edgefront.core.quality.predictor import Origin, Prediction
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.stored import MIN_ROWS, law_of_table

Floats = NDArray[np.float64]

MAX_ROWS = 400
"""Maximum number of used models, evenly spaced by perplexity, because more models make a prediction slower."""
COVERAGE = 0.95
ROWS_FOR_KERNEL = 300
"""Maximum number of rows that kernel parameters are fitted to."""
DIGITS = 5
"""Significant digits of kernel parameters, so that stored parameters are exact."""

# Prior medians, on which LTS's two tables and HW-GPT-Bench's roughly agree.
_SCALES = (12.0, 5.0, 3.0, 8.0, 12.0, 12.0, 5.0, 4.0, 5.0, 9.0, 6.0, 15.0)
_FOLDS = 10


@dataclass(frozen=True)
class KernelPrior:
    """Log-normal prior of a kernel's parameters. `kernel` has the medians. The other two fields are standard deviations
    of logarithms: one for the length scales, one for all other parameters.
    """

    kernel: Kernel
    scales_std: float = 0.5
    others_std: float = 0.5


_EXPECTED = KernelPrior(Kernel(amplitude=0.1, length_scales=_SCALES, linear=0.05, noise=0.006))


def fit_table(shapes: Shapes, log_perplexity: ArrayLike, origin: Origin) -> ScalingLaw:
    """Fits a scaling law to these models. Deterministic.

    Raises `InvalidInput` if there are fewer than five different models, or if all perplexities are equal.
    """
    logs: Floats = np.array(log_perplexity, dtype=np.float64).round(6)
    inputs = rounded_features(shapes)
    _check(inputs, logs)
    # Sorted, so that the order of rows has no effect. Duplicate rows count as one training.
    _, order = np.unique(np.column_stack([logs, inputs[:, ::-1]]), axis=0, return_index=True)
    kept = order[evenly_spaced(len(order), MAX_ROWS)]
    blocks, low, high = names_of_blocks(shapes), inputs.min(0), inputs.max(0)
    kinds = frozenset(name for index, name in enumerate(BLOCK_NAMES) if (blocks == index).any())
    inputs, logs = inputs[kept], logs[kept]
    scales = LengthScales(_EXPECTED.kernel, inputs.mean(0), float(logs.mean()), len(order), low, high, kinds)
    left = logs - scales.expected(inputs)
    kernel = most_probable(inputs, left, _EXPECTED)
    mean, deviation = leave_one_out(Process(kernel, inputs, left))
    widening, quantile = _calibrated((left - mean) / deviation, len(np.unique(inputs, axis=0)))
    return law_of_table(origin, replace(scales, kernel=kernel, widening=widening, quantile=quantile), inputs, logs)


def folds(inputs: Floats) -> list[NDArray[np.bool_]]:
    """Returns the masks of up to ten random folds of rows. Deterministic. Rows with equal features share a fold."""
    _, first, shape = np.unique(inputs, axis=0, return_index=True, return_inverse=True)
    shapes = len(first)
    drawn = np.empty(shapes)
    drawn[np.argsort(first)] = np.random.Generator(np.random.PCG64(0)).random(shapes)
    place = (np.argsort(np.argsort(drawn, kind="stable"), kind="stable") % _FOLDS)[shape.reshape(-1)]
    return [place == index for index in range(min(_FOLDS, shapes))]


def cross_validated(
    shapes: Shapes, log_tokens: Floats, fit_without: Callable[[NDArray[np.bool_]], ScalingLaw]
) -> Prediction | None:
    """Predicts each model by a scaling law fitted without the model's fold; None for a single shape. `fit_without` fits
    the scaling law to the models outside a mask.
    """
    masks = folds(rounded_features(shapes))
    if len(masks) < 2:
        return None
    logs, widths, beyond = (np.empty(len(shapes)) for _ in range(3))
    for left in masks:
        prediction = fit_without(left).at(shapes.take(left), log_tokens[left])
        logs[left], widths[left], beyond[left] = prediction.log_perplexity, prediction.half_width, prediction.beyond
    return Prediction(logs, widths, beyond)


def most_probable(inputs: Floats, targets: Floats, expected: KernelPrior) -> Kernel:
    """The maximum a posteriori kernel, from at most `ROWS_FOR_KERNEL` evenly spaced targets. Deterministic."""
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


def rounded(value: float) -> float:
    """Rounds a kernel parameter to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def _optimizer(expected: KernelPrior) -> Callable[..., tuple[Any, float]]:
    """Returns an optimizer for scikit-learn that adds the log prior to the log likelihood."""
    scales = len(expected.kernel.length_scales)
    # scikit-learn's parameters are logarithms of variances: twice the logarithms of standard deviations.
    stray = np.array([2 * expected.others_std, *[expected.scales_std] * scales, *[2 * expected.others_std] * 2])

    def optimizer(objective: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:
        def loss(theta: Floats) -> tuple[float, Floats]:
            value, gradient = objective(theta)
            apart = (theta - start) / stray
            return value + (apart @ apart) / 2, gradient + apart / stray

        # Bounds of six prior standard deviations, because an unbounded step of the optimizer may overflow.
        box = np.column_stack([start - 6 * stray, start + 6 * stray])
        optimum = minimize(loss, start, jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": 60})
        return optimum.x, optimum.fun

    return optimizer


def leave_one_out(process: Process) -> tuple[Floats, Floats]:
    """(n,) mean and (n,) standard deviation of each target, predicted without all targets of the same input.

    Uses the closed form (Rasmussen & Williams 2006, §5.4.2) and the same kernel.
    """
    precision = process._inverse.T @ process._inverse
    mean, deviation = np.empty(len(process.targets)), np.empty(len(process.targets))
    _, group = np.unique(process.inputs, axis=0, return_inverse=True)
    for members in _members(group.reshape(-1)):
        covariance = np.linalg.inv(precision[np.ix_(members, members)])
        mean[members] = process.targets[members] - covariance @ process._weights[members]
        deviation[members] = np.sqrt(np.diag(covariance))
    return mean, deviation


def _members(group: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _check(inputs: Floats, logs: Floats) -> None:
    shapes = len(np.unique(inputs, axis=0))
    if shapes < MIN_ROWS:
        raise InvalidInput(
            f"a scaling law needs models of at least {MIN_ROWS} different shapes, not {shapes}",
            field="table",
            value=shapes,
            allowed=f"models of at least {MIN_ROWS} different shapes",
        )
    if np.ptp(logs) == 0:
        raise InvalidInput(
            f"the perplexities of models must differ, but all {len(logs)} models have {np.exp(logs[0]):.6g}",
            field="perplexity",
            value=float(np.exp(logs[0])),
            allowed="perplexities that differ",
        )


def _calibrated(scores: Floats, shapes: int) -> tuple[float, float]:
    """Returns a pair from standardised leave-one-out residuals: the factor of all standard deviations, and the quantile
    of Student's t. Models of one shape count as one model. The fitted kernel costs up to 8 degrees of freedom. The
    prior is worth 4 residuals of size 1.
    """
    before = 4
    freedom = shapes - min(8.0, 0.4 * shapes) + before
    widening = float(np.sqrt((scores @ scores * (shapes / len(scores)) + before) / freedom))
    return rounded(widening), rounded(float(t.ppf((1 + COVERAGE) / 2, freedom)))
