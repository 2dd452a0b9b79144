"""Fits scaling laws to tables of trained models, and evaluates their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.covariance import LengthScales
from edgefront.core.quality.features import rounded_features
from edgefront.core.quality.predictor import Origin, PerplexityPredictor, Prediction
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.shipped import family, laws_for_table, own_data_law
from edgefront.core.quality.table_fit import cross_validated, fit_table, folds
from edgefront.core.training.proxies.study import slices_of
from edgefront.core.training.proxies.table import Quality, Row, number_in
from edgefront.core.training.proxies.trained import TrainedModels, described_model, training_identity
from edgefront.core.training.proxies.trained import log_perplexity as log_of


@dataclass(frozen=True)
class LawEvaluation:
    """Evaluation of one scaling law on a table of trained models, for the models that the scaling law covers.

    Shares of intervals are None if the table's column of quality is not a perplexity.
    """

    law: str
    data: str
    models: int
    learnt_from: int
    """Number of models that the scaling law was fitted to; each is predicted by leave-one-out."""
    extrapolated: int
    """Number of models outside the ranges of shapes that the scaling law was fitted to."""
    held: float | None
    """Share of the models whose perplexity is inside the predicted 95 % interval."""
    ratio: float | None
    """Median ratio of trained to predicted perplexity, because other data, tokens and budgets shift all models."""
    held_after_shift: float | None
    """Share of the models whose perplexity, divided by `ratio`, is inside the predicted 95 % interval."""


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
    held, ratio, held_after_shift = _coverage(errors, prediction.half_width)
    rho = {part.percent: part.spearman for part in slices_of(-log_perplexity, -prediction.log_perplexity)}
    return PredictionAccuracy(
        models=len(errors),
        spearman=rho[100],
        best_half=rho[50],
        best_30=rho[30],
        best_tenth=rho[10],
        error=float(np.sqrt(np.mean(errors**2))),
        held=held,
        ratio=ratio,
        held_after_shift=held_after_shift,
    )


def evaluate_laws(
    rows: Sequence[Row], quality: Quality, law: PerplexityPredictor | None = None, train_tokens: float | None = None
) -> tuple[dict[str, float], tuple[LawEvaluation, ...]]:
    """Evaluates scaling laws on a table. Returns minus the predicted ln perplexity by model digest, and evaluations.

    `law` predicts all models; if None, each model is predicted by the scaling law of its family with the least
    extrapolation over the table. A scaling law that depends on training tokens predicts for `train_tokens`. Rows
    without architecture or quality, and repeated rows, are skipped.
    """
    models = list(
        {
            training_identity(architecture, row, quality): (architecture, number)
            for index, row in enumerate(rows, 1)
            if (number := number_in(row, quality.column)) is not None
            and (architecture := described_model(index, row)) is not None
            and family(architecture) is not None
        }.values()
    )
    architectures = [architecture for architecture, _ in models]
    logs = [log_of(quality.column, number) for _, number in models]
    truth = np.array([np.nan if log is None else log for log in logs])
    laws = laws_for_table(architectures) if law is None else [law] * len(models)
    scores: dict[str, float] = {}
    evaluations = []
    for name, each_law in {each.origin.name: each for each in laws if each is not None}.items():
        is_covered = np.array([each is not None and each.origin.name == name for each in laws])
        part = [architecture for architecture, covered in zip(architectures, is_covered, strict=True) if covered]
        budget = train_tokens if each_law.token_range is not None else None
        values, result = _evaluated(each_law if budget is None else each_law.at_tokens(budget), part, truth[is_covered])
        scores |= values
        evaluations.append(result)
    return scores, tuple(evaluations)


def _evaluated(
    law: PerplexityPredictor, architectures: Sequence[Architecture], truth: NDArray[np.float64]
) -> tuple[dict[str, float], LawEvaluation]:
    prediction, is_of_table = law.out_of_sample(Shapes.of(architectures), truth)
    errors = truth - prediction.log_perplexity
    held = _coverage(errors, prediction.half_width) if np.isfinite(errors).all() else (None, None, None)
    return (
        {
            architecture.digest: -value
            for architecture, value in zip(architectures, prediction.log_perplexity.tolist(), strict=True)
        },
        LawEvaluation(
            law=law.origin.name,
            data=law.origin.data,
            models=len(architectures),
            learnt_from=int(is_of_table.sum()),
            extrapolated=int(prediction.extrapolated.sum()),
            held=held[0],
            ratio=held[1],
            held_after_shift=held[2],
        ),
    )


def _coverage(errors: Floats, half_width: Floats) -> tuple[float, float, float]:
    """Returns: share of intervals that contain the result; median ratio; share after dividing results by the ratio."""
    shift = float(np.median(errors))
    shares = (float(np.mean(np.abs(errors - moved) <= half_width)) for moved in (0.0, shift))
    return next(shares), float(np.exp(shift)), next(shares)


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    law: PerplexityPredictor
    folds: PredictionAccuracy | None
    """Accuracy by cross-validation, where no fold was fitted to the models it predicts; None for a single model."""
    notes: tuple[str, ...]


def fit(models: TrainedModels, origin: Origin, prior: PerplexityPredictor | None = None) -> Fitted:
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
    if prior is not None and not isinstance(prior, ScalingLaw):
        raise InvalidInput(
            f"prior: {prior.origin.name} predicts only the submodels of one model",
            field="prior",
            value=prior.origin.name,
            allowed="a scaling law, such as own-data-gpt2 or llama-dolma-cooled",
        )
    if prior is not None and not isinstance(prior.study.prior, LengthScales):
        return _refined(models, origin, prior, budgets)
    family = origin.family or "several or unknown families"
    if budgets:
        named = f"prior: {prior.origin.name} has" if prior else f"tokens: scaling laws of {family} have"
        raise InvalidInput(
            f"{named} one budget, but the table's models were trained on different numbers of tokens",
            field="prior" if prior else "tokens",
            allowed="models that were trained on equally many tokens, or decoders that own-data-llama covers",
        )
    notes = []
    if models.log_tokens is not None:
        notes.append("all models were trained on equally many tokens: the scaling law is valid for this budget only")
    law = fit_table(models.shapes, models.log_perplexity, origin, prior)
    shapes, reached = models.once
    learnt = set() if prior is None else set(map(tuple, prior.study.inputs.tolist()))
    described = zip(models.architectures, rounded_features(models.shapes).tolist(), strict=True)
    seen = len({architecture.digest for architecture, row in described if tuple(row) in learnt})
    if prior is not None and seen:
        notes.append(
            f"{prior.origin.name} was fitted to {seen} of these architectures; predictions of other "
            "architectures are less accurate than those of the folds"
        )
    return Fitted(law, prediction_accuracy(reached, cross_validated(shapes, reached, prior)), tuple(notes))


def _refined(models: TrainedModels, origin: Origin, prior: ScalingLaw, budgets: bool) -> Fitted:
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
    if budgets and not prior.study.budgets:
        raise InvalidInput(
            f"prior: {name} has one budget, but the table's models were trained on different numbers of tokens",
            field="prior",
            value=name,
            allowed="models that were trained on equally many tokens, or a scaling law that depends on training tokens",
        )
    models = models.take(models.first)
    if not prior.study.budgets:
        models = replace(models, log_tokens=np.full(len(models.first), prior.log_train_tokens))
    assert models.log_tokens is not None
    law = prior.refined(models.as_own_trainings(prior), origin)
    law = replace(law, log_train_tokens=float(models.log_tokens.max()))
    predicted = _cross_validated(models, prior)
    if predicted is None:
        return Fitted(law, None, ("a single model cannot show how well the scaling law predicts other models",))
    return Fitted(law, prediction_accuracy(models.log_perplexity, predicted), ())


def _cross_validated(models: TrainedModels, prior: ScalingLaw) -> Prediction | None:
    """Predicts each model by a scaling law fitted without models of equal features; None if only one model is given."""
    assert models.log_tokens is not None
    inputs = rounded_features(models.shapes)
    masks = folds(inputs)
    if len(masks) < 2:
        return None
    logs, widths, beyond = np.empty(len(inputs)), np.empty(len(inputs)), np.empty(len(inputs))
    for left_out in masks:
        features = {tuple(row) for row in inputs[left_out].tolist()}
        seen = np.array([tuple(row) in features for row in prior.study.inputs.tolist()])
        without = replace(prior, study=prior.study.without(seen)) if seen.any() else prior
        others = models.take(np.flatnonzero(~left_out))
        law = without.refined(others.as_own_trainings(prior), prior.origin)
        predicted = law.at(models.shapes.take(left_out), models.log_tokens[left_out])
        logs[left_out], widths[left_out] = predicted.log_perplexity, predicted.half_width
        beyond[left_out] = predicted.beyond
    return Prediction(logs, widths, beyond)
