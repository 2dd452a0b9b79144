"""Fits a scaling law to a table of trained models: of its own, or after the tables of another law."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.errors import InvalidInput
from edgefront.core.proxies.law_study import Agreement, agreement
from edgefront.core.proxies.trained import Trained
from edgefront.core.quality.covariance import LengthScales
from edgefront.core.quality.features import rounded_features
from edgefront.core.quality.predictor import Origin, PerplexityPredictor, Prediction
from edgefront.core.quality.scaling_law import OwnTrainings, ScalingLaw, own_trainings
from edgefront.core.quality.shipped import own_data_law
from edgefront.core.quality.table_fit import cross_validated, fit_table, folds

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    law: PerplexityPredictor
    folds: Agreement | None
    """Cross-validation, in which no fold knows a model that it predicts; None of one model."""
    notes: tuple[str, ...]


def fit(models: Trained, origin: Origin, prior: PerplexityPredictor | None = None) -> Fitted:
    """The law of these models.

    Where the table states tokens, or the `prior` is of several tables, that law (by default the one about the family's
    own data) learns from the models, from one training on. Else a process of the table's own is fitted to at least
    five models, around the `prior` if one is given. `InvalidInput` where tokens differ and no law of several budgets is
    about such models.
    """
    budgets = models.log_tokens is not None and len(np.unique(models.log_tokens)) > 1
    if prior is None and models.log_tokens is not None:
        shared = own_data_law(origin.family)
        prior = shared if shared is not None and shared.study.budgets else None
    if prior is not None and not isinstance(prior, ScalingLaw):
        raise InvalidInput(
            f"prior: {prior.origin.name} is of the cuts of one model, and predicts no others",
            field="prior",
            value=prior.origin.name,
            allowed="a scaling law, as own-data-gpt2 or llama-dolma-cooled",
        )
    if prior is not None and not isinstance(prior.study.prior, LengthScales):
        return _refined(models, origin, prior, budgets)
    family = origin.family or "several families, or of one that no table has"
    if budgets:
        named = f"prior: {prior.origin.name} knows" if prior else f"tokens: the models are {family}, whose laws know"
        raise InvalidInput(
            f"{named} one budget, and the table's models were trained on different numbers of tokens",
            field="prior" if prior else "tokens",
            allowed="models that were trained on equally many tokens, or decoders that own-data-llama is about",
        )
    notes = []
    if models.log_tokens is not None:
        notes.append("all models were trained on equally many tokens: the law knows that budget alone")
    law = fit_table(models.shapes, models.log_perplexity, origin, prior)
    shapes, reached = models.once
    if prior is not None and (seen := _seen(models, prior)):
        notes.append(
            f"{prior.origin.name} was learnt from {seen} of these architectures: of others predictions are worse than "
            "the folds'"
        )
    return Fitted(law, agreement(reached, cross_validated(shapes, reached, prior)), tuple(notes))


def _seen(models: Trained, law: ScalingLaw) -> int:
    """Number of the models whose features the law has learnt from."""
    learnt = set(map(tuple, law.study.inputs.tolist()))
    rows = zip(models.architectures, rounded_features(models.shapes).tolist(), strict=True)
    return len({architecture.digest for architecture, row in rows if tuple(row) in learnt})


def _refined(models: Trained, origin: Origin, prior: ScalingLaw, budgets: bool) -> Fitted:
    name = prior.origin.name
    if prior.own is not None:
        raise InvalidInput(
            f"prior: {name} was refined by trainings already; give them and the new ones in one table",
            field="prior",
            value=name,
            allowed="a law without trainings of one's own",
        )
    if prior.study.budgets and models.log_tokens is None:
        raise InvalidInput(
            f"prior: {name} knows the training budget, which the table does not state",
            field="prior",
            value=name,
            allowed="a table with a column tokens",
        )
    if budgets and not prior.study.budgets:
        raise InvalidInput(
            f"prior: {name} knows one budget, and the table's models were trained on different numbers of tokens",
            field="prior",
            value=name,
            allowed="models that were trained on equally many tokens, or a law that knows the training budget",
        )
    models = models.take(models.first)
    if not prior.study.budgets:
        models = replace(models, log_tokens=np.full(len(models.first), prior.log_train_tokens))
    assert models.log_tokens is not None
    law = prior.refined(_own(models, prior), origin)
    law = replace(law, log_train_tokens=float(models.log_tokens.max()))
    predicted = _cross_validated(models, prior)
    if predicted is None:
        return Fitted(law, None, ("one model alone: how well the law predicts others is unknown",))
    return Fitted(law, agreement(models.log_perplexity, predicted), ())


def _own(models: Trained, law: ScalingLaw) -> OwnTrainings:
    assert models.log_tokens is not None
    names = [architecture.digest for architecture in models.architectures]
    return own_trainings(law, models.shapes, models.log_tokens, models.log_perplexity, names)


def _cross_validated(models: Trained, prior: ScalingLaw) -> Prediction | None:
    """Each row predicted by a law that knows no model of its features; None where there is one model alone."""
    assert models.log_tokens is not None
    inputs = rounded_features(models.shapes)
    masks = folds(inputs)
    if len(masks) < 2:
        return None
    logs, widths, beyond = np.empty(len(inputs)), np.empty(len(inputs)), np.empty(len(inputs))
    for left in masks:
        mine = {tuple(row) for row in inputs[left].tolist()}
        seen = np.array([tuple(row) in mine for row in prior.study.inputs.tolist()])
        without = replace(prior, study=prior.study.without(seen)) if seen.any() else prior
        others = models.take(np.flatnonzero(~left))
        law = without.refined(_own(others, prior), prior.origin)
        predicted = law.at(models.shapes.take(left), models.log_tokens[left])
        logs[left], widths[left] = predicted.log_perplexity, predicted.half_width
        beyond[left] = predicted.beyond
    return Prediction(logs, widths, beyond)
