"""Fits scaling laws to tables of trained models, and evaluates their predictions by cross-validation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.covariance import LengthScales
from edgefront.core.quality.features import rounded_features
from edgefront.core.quality.predictor import Origin, Prediction
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.shipped import own_data_law
from edgefront.core.quality.table_fit import cross_validated, fit_table
from edgefront.core.training.proxies.study import slices_of
from edgefront.core.training.proxies.trained import TrainedModels


@dataclass(frozen=True)
class PredictionAccuracy:
    """Accuracy of predictions of left-out models, compared with the trained models' perplexities."""

    models: int
    spearman: float | None
    """Spearman's ρ over all models; None for too few models."""
    best_half: float | None
    best_30: float | None
    best_tenth: float | None
    """Spearman's ρ over the best tenth by perplexity."""
    error: float
    """Root mean square error in ln perplexity, approximately the relative error of perplexity."""
    held: float
    """Share of the 95 % intervals that contain the trained model's perplexity."""
    ratio: float
    """Median ratio of trained to predicted perplexity."""
    held_after_shift: float
    """Share of the models whose perplexity, divided by `ratio`, is inside the predicted 95 % interval."""


def prediction_accuracy(log_perplexity: NDArray[np.float64], prediction: Prediction) -> PredictionAccuracy:
    """Compares the prediction for each model with the perplexity of the trained model."""
    errors = log_perplexity - prediction.log_perplexity
    shift = float(np.median(errors))
    rho = {part.percent: part.spearman for part in slices_of(-log_perplexity, -prediction.log_perplexity)}
    return PredictionAccuracy(
        models=len(errors),
        spearman=rho[100],
        best_half=rho[50],
        best_30=rho[30],
        best_tenth=rho[10],
        error=float(np.sqrt(np.mean(errors**2))),
        held=float(np.mean(np.abs(errors) <= prediction.half_width)),
        ratio=float(np.exp(shift)),
        held_after_shift=float(np.mean(np.abs(errors - shift) <= prediction.half_width)),
    )


_FOLD = Origin("fold", "fold")


@dataclass(frozen=True)
class Fitted:
    law: ScalingLaw
    folds: PredictionAccuracy | None
    """Accuracy by cross-validation, where no fold was fitted to the models it predicts; None for a single model."""
    notes: tuple[str, ...]


def fit(models: TrainedModels, origin: Origin, prior: ScalingLaw | None = None) -> Fitted:
    """Fits a scaling law to these models.

    If the models have numbers of training tokens, or `prior` was fitted to several tables, the models refine the prior
    (default: the scaling law for users' own data of the family); one training suffices. Otherwise a Gaussian process is
    fitted to at least five models, around `prior` if given. Raises `InvalidInput` if tokens differ and no scaling law
    that depends on training tokens covers the models.
    """
    budgets = models.log_tokens is not None and len(np.unique(models.log_tokens)) > 1
    if prior is None and models.log_tokens is not None:
        shared = own_data_law(origin.family)
        prior = shared if shared is not None and shared.study.budgets else None
    if budgets and (prior is None or not prior.study.budgets):
        family = origin.family or "several or unknown families"
        named = f"prior: {prior.origin.name} has" if prior else f"tokens: scaling laws of {family} have"
        raise InvalidInput(
            f"{named} one budget, but the table's models were trained on different numbers of tokens",
            field="prior" if prior else "tokens",
            allowed="models that were trained on equally many tokens, or decoders that own-data-llama covers",
        )
    if prior is not None and not isinstance(prior.study.prior, LengthScales):
        return _refined(models, origin, prior)
    notes = []
    if models.log_tokens is not None:
        notes.append("all models were trained on equally many tokens: the scaling law is valid for this budget only")
    law = fit_table(models.shapes, models.log_perplexity, origin, prior)
    once = models.take(models.first)
    shapes, reached = once.shapes, once.log_perplexity
    learnt = set() if prior is None else set(map(tuple, prior.study.inputs.tolist()))
    described = zip(models.architectures, rounded_features(models.shapes).tolist(), strict=True)
    seen = len({architecture.digest for architecture, row in described if tuple(row) in learnt})
    if prior is not None and seen:
        notes.append(
            f"{prior.origin.name} was fitted to {seen} of these architectures; predictions of other "
            "architectures are less accurate than those of the folds"
        )
    predicted = cross_validated(
        shapes, np.zeros(len(shapes)), lambda left: fit_table(shapes.take(~left), reached[~left], _FOLD, prior)
    )
    assert predicted is not None  # `fit_table` needs several shapes
    return Fitted(law, prediction_accuracy(reached, predicted), tuple(notes))


def _refined(models: TrainedModels, origin: Origin, prior: ScalingLaw) -> Fitted:
    name = prior.origin.name
    if prior.own is not None:
        raise InvalidInput(
            f"prior: {name} has already been refined by trainings; put old and new trainings into one table",
            field="prior",
            value=name,
            allowed="a scaling law that has not been refined by trainings",
        )
    if prior.study.budgets and models.log_tokens is None:
        raise InvalidInput(
            f"prior: {name} depends on the training tokens, which the table lacks",
            field="prior",
            value=name,
            allowed="a table with a column tokens",
        )
    models = models.take(models.first)
    if not prior.study.budgets:
        models = replace(models, log_tokens=np.full(len(models.first), prior.log_train_tokens))
    assert models.log_tokens is not None
    law = prior.refined(models.as_own_trainings(prior), origin)
    law = replace(law, log_train_tokens=float(models.log_tokens.max()))
    inputs = rounded_features(models.shapes)

    def without(left: NDArray[np.bool_]) -> ScalingLaw:
        features = {tuple(row) for row in inputs[left].tolist()}
        seen = np.array([tuple(row) in features for row in prior.study.inputs.tolist()])
        unseen = replace(prior, study=prior.study.without(seen)) if seen.any() else prior
        return unseen.refined(models.take(np.flatnonzero(~left)).as_own_trainings(prior), _FOLD)

    predicted = cross_validated(models.shapes, models.log_tokens, without)
    if predicted is None:
        return Fitted(law, None, ("a single model cannot show how well the scaling law predicts other models",))
    return Fitted(law, prediction_accuracy(models.log_perplexity, predicted), ())
