"""Judges quality laws on tables of trained models: what they predict, and how far it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.proxies.study import slices_of
from edgefront.core.proxies.table import Quality, Row, number_in
from edgefront.core.proxies.trained import described, identity
from edgefront.core.proxies.trained import log_perplexity as log_of
from edgefront.core.quality.predictor import PerplexityPredictor, Prediction
from edgefront.core.quality.shipped import family, laws_for_table
from edgefront.core.spaces.architecture import Architecture


@dataclass(frozen=True)
class Judged:
    """One law on the models of a table that it is asked about. Shares are of these; None where quality is no
    perplexity.
    """

    law: str
    data: str
    models: int
    learnt_from: int
    """Models that are in the law's own table: each is predicted without it (leave-one-out)."""
    extrapolated: int
    """Models beyond the ranges of the law."""
    held: float | None
    """Share of the 95 % intervals that hold the perplexity."""
    ratio: float | None
    """Median of trained by predicted perplexity: other data, other tokens and other budgets shift all models."""
    held_after_shift: float | None
    """Share of the intervals that hold it after that ratio is taken out."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Agreement:
    """How predictions of models that were left out agree with what they reached."""

    models: int
    spearman: float | None
    """Spearman's ρ over all models; None of too few."""
    best_half: float | None
    best_30: float | None
    best_tenth: float | None
    """Spearman's ρ over the best tenth by perplexity."""
    error: float
    """Root mean square, in ln perplexity: about the relative error."""
    held: float
    """Share of the 95 % intervals that hold."""
    ratio: float
    """Median of reached by predicted perplexity."""
    held_after_shift: float
    """Share of the intervals that hold after that ratio is taken out."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def agreement(log_perplexity: NDArray[np.float64], prediction: Prediction) -> Agreement:
    """Compares one prediction for each model with the perplexity that it reached."""
    apart = log_perplexity - prediction.log_perplexity
    shift = float(np.median(apart))
    rho = {part.percent: part.spearman for part in slices_of(-log_perplexity, -prediction.log_perplexity)}
    return Agreement(
        models=len(apart),
        spearman=rho[100],
        best_half=rho[50],
        best_30=rho[30],
        best_tenth=rho[10],
        error=float(np.sqrt(np.mean(apart**2))),
        held=float(np.mean(np.abs(apart) <= prediction.half_width)),
        ratio=float(np.exp(shift)),
        held_after_shift=float(np.mean(np.abs(apart - shift) <= prediction.half_width)),
    )


def judge(
    rows: Sequence[Row], quality: Quality, law: PerplexityPredictor | None = None, train_tokens: float | None = None
) -> tuple[dict[str, float], tuple[Judged, ...]]:
    """Digest → minus predicted ln perplexity of each model that a law is about, and how each law did.

    `law` judges all models of its kind of families; without it each model has, of the laws of its family, the one that
    extrapolates least over the table; one that knows the training budget is asked about `train_tokens`. Rows without an
    architecture or a quality are left out, and repeats of others.
    """
    models = list(
        {
            identity(architecture, row, quality): (architecture, number)
            for place, row in enumerate(rows, 1)
            if (number := number_in(row, quality.column)) is not None
            and (architecture := described(place, row)) is not None
            and family(architecture) is not None
        }.values()
    )
    architectures = [architecture for architecture, _ in models]
    truth = np.array([_log(quality, number) for _, number in models])
    chosen = laws_for_table(architectures) if law is None else [law] * len(models)
    scores: dict[str, float] = {}
    judged = []
    for name, asked_law in {each.origin.name: each for each in chosen if each is not None}.items():
        mine = np.array([each is not None and each.origin.name == name for each in chosen])
        part = [architecture for architecture, is_mine in zip(architectures, mine, strict=True) if is_mine]
        budget = train_tokens if asked_law.token_range is not None else None
        values, result = _judged(asked_law if budget is None else asked_law.at_tokens(budget), part, truth[mine])
        scores |= values
        judged.append(result)
    return scores, tuple(judged)


def _judged(
    law: PerplexityPredictor, architectures: Sequence[Architecture], truth: NDArray[np.float64]
) -> tuple[dict[str, float], Judged]:
    prediction, is_of_table = law.out_of_sample(Shapes.of(architectures), truth)
    apart = truth - prediction.log_perplexity
    finite = bool(np.isfinite(apart).all())
    shift = float(np.median(apart)) if finite else 0.0
    return (
        {
            architecture.digest: -value
            for architecture, value in zip(architectures, prediction.log_perplexity.tolist(), strict=True)
        },
        Judged(
            law=law.origin.name,
            data=law.origin.data,
            models=len(architectures),
            learnt_from=int(is_of_table.sum()),
            extrapolated=int(prediction.extrapolated.sum()),
            held=float(np.mean(np.abs(apart) <= prediction.half_width)) if finite else None,
            ratio=float(np.exp(shift)) if finite else None,
            held_after_shift=float(np.mean(np.abs(apart - shift) <= prediction.half_width)) if finite else None,
        ),
    )


def _log(quality: Quality, number: float) -> float:
    value = log_of(quality.column, number)
    return float("nan") if value is None else value
