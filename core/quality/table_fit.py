"""Fits a scaling law, with a length scale for each feature, to one table of models with the same training. The scaling
law is valid for the table's data, split, recipe and budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.gaussian_process import Kernel, KernelPrior, Process, evenly_spaced, most_probable, rounded
from edgefront.core.quality.covariance import LengthScales
from edgefront.core.quality.features import BLOCK_NAMES, names_of_blocks, rounded_features
from edgefront.core.quality.predictor import Origin, Prediction
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.scaling_study import ScalingStudy, StudyTable

Floats = NDArray[np.float64]

MIN_ROWS = 5
"""Minimum number of trained models in a table."""
MAX_ROWS = 400
"""Maximum number of used models, evenly spaced by perplexity, because more models make a prediction slower."""
COVERAGE = 0.95

# Prior medians, on which LTS's two tables and HW-GPT-Bench's roughly agree.
_SCALES = (12.0, 5.0, 3.0, 8.0, 12.0, 12.0, 5.0, 4.0, 5.0, 9.0, 6.0, 15.0)
_EXPECTED = KernelPrior(Kernel(amplitude=0.1, length_scales=_SCALES, linear=0.05, noise=0.006))
_EXPECTED_AROUND_BASE = KernelPrior(Kernel(amplitude=0.05, length_scales=_SCALES, linear=0.03, noise=0.006))
_SLOPE_STD = 0.2
"""Prior standard deviation of `LengthScales.slope` around 1."""

_FOLDS = 10


def fit_table(shapes: Shapes, log_perplexity: ArrayLike, origin: Origin, base: ScalingLaw | None = None) -> ScalingLaw:
    """Fits a scaling law to these models. If `base` (the scaling law of another table) is given, the predictions of
    `base` are the prior mean. Deterministic.

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
    expected, slope, level = _EXPECTED, 1.0, float(logs.mean())
    if base is not None:
        low, high, kinds = np.minimum(low, base.low), np.maximum(high, base.high), kinds | base.kinds
        expected, around = _EXPECTED_AROUND_BASE, base.of_features(inputs)
        # Slope of ln perplexity against the predictions of the base, by ridge regression around 1.
        apart, left = around - around.mean(), logs - logs.mean()
        stiffness = expected.kernel.amplitude**2 / _SLOPE_STD**2
        slope = rounded(1 + float(apart @ (left - apart)) / (float(apart @ apart) + stiffness))
        level -= slope * float(around.mean())
    scales = LengthScales(expected.kernel, inputs.mean(0), level, len(order), low, high, kinds, base=base, slope=slope)
    left = logs - scales.expected(inputs)
    kernel = most_probable(inputs, left, expected)
    mean, deviation = Process(kernel, inputs, left).leave_one_out()
    widening, quantile = _calibrated((left - mean) / deviation, len(np.unique(inputs, axis=0)))
    return law_of_table(origin, replace(scales, kernel=kernel, widening=widening, quantile=quantile), inputs, logs)


def law_of_table(origin: Origin, scales: LengthScales, inputs: Floats, log_perplexity: Floats) -> ScalingLaw:
    """Creates a table's scaling law from a fitted process, (n, 12) features and (n,) ln perplexities to 6 decimals."""
    zeros = np.zeros(len(inputs))
    tables = (StudyTable(origin.name, origin.data, 1.0, 1.0),)
    study = ScalingStudy(
        origin.name, scales, tables, inputs, zeros, zeros.astype(np.int64), log_perplexity, budgets=False
    )
    return ScalingLaw(origin, study, 0, True, 0.0, None, base=None if scales.base is None else scales.base.origin.name)


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
    from scipy.stats import t

    before = 4
    freedom = shapes - min(8.0, 0.4 * shapes) + before
    widening = float(np.sqrt((scores @ scores * (shapes / len(scores)) + before) / freedom))
    return rounded(widening), rounded(float(t.ppf((1 + COVERAGE) / 2, freedom)))
