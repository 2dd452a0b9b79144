"""Evaluates scaling laws on a table of trained models that they were not fitted to, treating some or none as known.

`OwnDataStudy` imitates a user who has new data without trained models, or with the perplexities of a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.errors import InvalidInput
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


@dataclass(frozen=True, eq=False)
class UnseenModels:
    """Trained models of a table, and a scaling law that was fitted without them."""

    law: ScalingLaw
    models: TrainedModels
    left_out: int
    """Number of rows to which the scaling law had been fitted; it was refitted without these rows."""

    @classmethod
    def of(cls, rows: Sequence[Row], quality: Quality, law: ScalingLaw | None = None) -> UnseenModels | None:
        """Returns the models among `rows` that `law` covers, or None if it covers no row.

        Default: the law that was fitted to users' own data for the most common model family.

        Raises `InvalidInput` if `law` was fitted to these rows alone.
        """
        if log_perplexity(quality.column, 1.0) is None:
            return None
        usable = [row for row in rows if number_in(row, quality.column) is not None]
        described = (described_model(number, row) for number, row in enumerate(usable, 1))
        families = ["" if architecture is None else family(architecture) or "" for architecture in described]
        covered = [name for name in families if name and (law is not None or own_data_law(name) is not None)]
        if not covered:
            return None
        if law is None:
            most_common = Counter(covered).most_common(1)[0][0]
            law, covered = own_data_law(most_common), [most_common]
            assert law is not None
        models = trained_models([row for row, name in zip(usable, families, strict=True) if name in covered], quality)
        models = models.take(models.first)
        if models.log_tokens is None or not law.study.budgets:
            models = replace(models, log_tokens=np.full(len(models.first), law.log_train_tokens))
        return cls(*_without(law, models))

    def scores(self, tokens: float | None) -> dict[str, float]:
        """Digest of each model → minus the predicted ln perplexity, after this number of training tokens if known."""
        law = self.law if tokens is None or not self.law.study.budgets else self.law.at_tokens(tokens)
        digests = (architecture.digest for architecture in self.models.architectures)
        return dict(zip(digests, (-law.expected(self.models.shapes)).tolist(), strict=True))

    def study(self) -> OwnDataStudy | None:
        """Evaluates the scaling law as if the models were a user's own; None for fewer than three models."""
        law, models = self.law, _sampled(self.models, self.law.token_range)
        model = _model_of(models)
        count = int(model.max()) + 1
        if count < MIN_PAIRS:
            return None
        held, held_ratios, _, half_width_ratios = _coverage(law, models, shifted=True)
        after = tuple(_after(law, models, model, known) for known in TRAININGS if known + MIN_PAIRS <= count)
        return OwnDataStudy(law.origin.name, count, self.left_out, held, held_ratios, half_width_ratios, after)


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


def _without(law: ScalingLaw, models: TrainedModels) -> tuple[ScalingLaw, TrainedModels, int]:
    """Refits the scaling law without the rows of `models`. Returns the fields of `UnseenModels`."""
    given = {tuple(row) for row in np.column_stack([features(models.shapes), models.log_perplexity]).round(6).tolist()}

    def seen(inputs: Floats, logs: Floats) -> NDArray[np.bool_]:
        return np.array([tuple(row) in given for row in np.column_stack([inputs, logs]).round(6).tolist()], np.bool_)

    study, own = law.study, law.own
    in_study = seen(study.inputs, study.log_perplexity)
    in_own = np.zeros(0, np.bool_) if own is None else seen(own.inputs, own.log_perplexity)
    if in_study.all():
        raise InvalidInput(
            f"law: {law.origin.name} was fitted to the models of this table",
            field="law",
            value=law.origin.name,
            allowed="a table of other models; `quality fit` prints the accuracy on the law's own",
        )
    if in_study.any():
        law = replace(law, study=study.without(in_study))
    if own is not None and in_own.any():
        law = replace(law, own=own.take(~in_own))
    return law, models, int(in_study.sum() + in_own.sum())


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
