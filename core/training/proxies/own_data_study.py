"""Evaluates scaling laws for users' own data on a table of trained models, treating some or none as known.

The study imitates a user who has new data without trained models, or with the perplexities of a few trained models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.gaussian_process import evenly_spaced
from edgefront.core.measurement.statistics import Z_95
from edgefront.core.quality.features import features
from edgefront.core.quality.scaling_law import ScalingLaw
from edgefront.core.quality.shipped import family, own_data_law
from edgefront.core.training.proxies.study import MIN_PAIRS
from edgefront.core.training.proxies.table import Quality, Row, number_in
from edgefront.core.training.proxies.trained import TrainedModels, described_model, log_perplexity, trained_models

Floats = NDArray[np.float64]

TRAININGS = (1, 3, 5, 10)
"""Numbers of models whose perplexities the scaling law is given."""
DRAWS = 4
"""Number of random samples of known models, over which shares are averaged."""
MAX_MODELS = 100
"""Maximum number of evaluated models; models of a larger table are drawn with a fixed seed."""
MAX_BUDGETS = 3
"""Maximum number of evaluated training lengths, spread over the most common numbers of training tokens."""


@dataclass(frozen=True)
class After:
    """Accuracy of predictions for the remaining models after `trainings` models of the table are known."""

    trainings: int
    held: float
    """Share of the intervals that contain the perplexity of one model."""
    held_ratios: float | None
    """Share of the intervals that contain the ratio of two models' perplexities after equal tokens."""
    half_width: float
    """Median half-width of the intervals, in ln perplexity."""
    half_width_ratios: float | None


@dataclass(frozen=True)
class OwnDataStudy:
    law: str
    models: int
    left_out: int
    """Number of rows to which the scaling law had been fitted; it was refitted without these rows."""
    held: float
    """Share of the 95 % intervals that contain one model's perplexity, after a shift of all predictions."""
    held_ratios: float | None
    """Share of the 95 % intervals that contain the ratio of two models' perplexities; no model is known."""
    half_width_ratios: float | None
    after: tuple[After, ...]


def own_data_study(rows: Sequence[Row], quality: Quality) -> OwnDataStudy | None:
    """Evaluates the most common model family. Returns None if no scaling law covers the family."""
    if log_perplexity(quality.column, 1.0) is None:
        return None
    usable = [row for row in rows if number_in(row, quality.column) is not None]
    described = (described_model(number, row) for number, row in enumerate(usable, 1))
    families = ["" if architecture is None else family(architecture) or "" for architecture in described]
    named = Counter(name for name in families if own_data_law(name) is not None)
    if not named:
        return None
    most_common = named.most_common(1)[0][0]
    law = own_data_law(most_common)
    assert law is not None
    models = trained_models([row for row, name in zip(usable, families, strict=True) if name == most_common], quality)
    models = models.take(models.first)
    if models.log_tokens is None or not law.study.budgets:
        models = replace(models, log_tokens=np.full(len(models.first), law.log_train_tokens))
    law, left_out = _without(law, models)
    models = _sampled(models, law.token_range)
    model = _model_of(models)
    count = int(model.max()) + 1
    if count < MIN_PAIRS:
        return None
    held, held_ratios, _, half_width_ratios = _coverage(law, models, shifted=True)
    after = tuple(_after(law, models, model, trainings) for trainings in TRAININGS if trainings + MIN_PAIRS <= count)
    return OwnDataStudy(law.origin.name, count, left_out, held, held_ratios, half_width_ratios, after)


def _model_of(models: TrainedModels) -> NDArray[np.int64]:
    """Returns an index of each row's architecture, [rows]; equal architectures have equal indices."""
    digests = [architecture.digest for architecture in models.architectures]
    return np.unique(np.array(digests), return_inverse=True)[1].reshape(-1).astype(np.int64)


def _sampled(models: TrainedModels, token_range: tuple[float, float] | None) -> TrainedModels:
    """Draws at most `MAX_MODELS` models and `MAX_BUDGETS` numbers of tokens, if possible within `token_range`."""
    if models.log_tokens is not None:
        low, high = token_range or (0.0, np.inf)
        in_range = (np.exp(models.log_tokens) >= low) & (np.exp(models.log_tokens) <= high)
        counted = Counter(models.log_tokens[in_range | ~in_range.any()].tolist())
        shared = sorted(tokens for tokens, count in counted.items() if count >= max(counted.values()) / 2)
        places = evenly_spaced(len(shared), MAX_BUDGETS)
        models = models.take(np.flatnonzero(np.isin(models.log_tokens, [shared[place] for place in places])))
    model = _model_of(models)
    if model.max() < MAX_MODELS:
        return models
    drawn = np.random.Generator(np.random.PCG64(0)).permutation(model.max() + 1)[:MAX_MODELS]
    return models.take(np.flatnonzero(np.isin(model, drawn)))


def _without(law: ScalingLaw, models: TrainedModels) -> tuple[ScalingLaw, int]:
    """Refits the scaling law without the rows of `models`. Returns the scaling law and the number of removed rows."""
    study = law.study
    given = {tuple(row) for row in np.column_stack([features(models.shapes), models.log_perplexity]).round(6).tolist()}
    rows = np.column_stack([study.inputs, study.log_perplexity]).round(6).tolist()
    seen = np.array([tuple(row) in given for row in rows], dtype=np.bool_)
    return (replace(law, study=study.without(seen)), int(seen.sum())) if seen.any() else (law, 0)


def _after(law: ScalingLaw, models: TrainedModels, model: NDArray[np.int64], count: int) -> After:
    """Evaluates with `count` known models; each field is a mean over several random choices of the known models."""
    draws = []
    for seed in range(DRAWS):
        drawn = np.random.Generator(np.random.PCG64(seed)).permutation(model.max() + 1)[:count]
        is_known = np.isin(model, drawn)
        refined = law.refined(models.take(np.flatnonzero(is_known)).as_own_trainings(law), law.origin)
        draws.append(_coverage(refined, models.take(np.flatnonzero(~is_known)), shifted=False))
    columns = ([value for value in column if value is not None] for column in zip(*draws, strict=True))
    means = (float(np.mean(column)) if column else None for column in columns)
    return After(count, *means)  # type: ignore[arg-type]


def _coverage(
    law: ScalingLaw, models: TrainedModels, *, shifted: bool
) -> tuple[float, float | None, float, float | None]:
    """Computes the fields of `After` except `trainings`. With `shifted`, all predictions get the best common shift."""
    assert models.log_tokens is not None
    mean, covariance = law.together(models.shapes, models.log_tokens)
    errors, variance = models.log_perplexity - mean, np.diag(covariance)
    first, second = np.triu_indices(len(errors), 1)
    equal = models.log_tokens[first] == models.log_tokens[second]
    first, second = first[equal], second[equal]
    of_pairs = Z_95 * np.sqrt(np.maximum(variance[first] + variance[second] - 2 * covariance[first, second], 0.0))
    pairs_held = np.abs(errors[first] - errors[second]) <= of_pairs
    if shifted:
        errors = errors - errors.mean()
        variance = np.maximum(variance - 2 * covariance.mean(1) + covariance.mean(), 0.0)
    half_width = Z_95 * np.sqrt(variance)
    return (
        float(np.mean(np.abs(errors) <= half_width)),
        float(np.mean(pairs_held)) if len(first) else None,
        float(np.median(half_width)),
        float(np.median(of_pairs)) if len(first) else None,
    )
