"""Compares predicted perplexities with those of trained models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.quality.predictor import Prediction
from edgefront.core.training.proxies.study import slices_of


@dataclass(frozen=True)
class PredictionAccuracy:
    """Accuracy of predictions of left-out models, compared with the trained models' perplexities."""

    models: int
    spearman: float | None
    """Spearman's ρ over all models; None for too few models."""
    ratio: float
    """Median ratio of trained to predicted perplexity."""
    held_after_shift: float
    """Share of the models whose perplexity, divided by `ratio`, is inside the predicted 95 % interval."""


def prediction_accuracy(log_perplexity: NDArray[np.float64], prediction: Prediction) -> PredictionAccuracy:
    """Compares the prediction for each model with the perplexity of the trained model."""
    errors = log_perplexity - prediction.log_perplexity
    shift = float(np.median(errors))
    return PredictionAccuracy(
        models=len(errors),
        spearman=slices_of(-log_perplexity, -prediction.log_perplexity)[0].spearman,
        ratio=float(np.exp(shift)),
        held_after_shift=float(np.mean(np.abs(errors - shift) <= prediction.half_width)),
    )
