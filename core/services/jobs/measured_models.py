"""Measured models of a target as options that a recommendation chooses among."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from edgefront.core.cost.shapes import Shapes
from edgefront.core.pareto.dominance import Dominance
from edgefront.core.pareto.options import MEMORY_SPREAD, Option, OptionLimits, QualityRatio, independent
from edgefront.core.pareto.ratio import Figure, Ratio
from edgefront.core.pareto.recommendation import recommend
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.services.jobs.comparison import starts_from_model
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.formatting import layers_in_words, model_in_words
from edgefront.core.states import MEASURED_CANDIDATES, CandidateRole
from edgefront.core.store.sql import Document
from edgefront.core.wire.candidates import CandidateView, TrainedView
from edgefront.core.wire.jobs import JobRequest, Limits


class Compared(TypedDict):
    """How options are compared: arguments of `recommend`."""

    own: bool
    ratio: QualityRatio
    dominance: Dominance


@dataclass(frozen=True, kw_only=True)
class MeasuredModels:
    """Measured models, what they are compared by, and what they may take at most."""

    proxy: str
    limits: Limits
    request: JobRequest | None
    """It is None where it cannot be read."""
    candidates: tuple[CandidateView, ...]
    """Baselines, and measured models within the limits or nearest to them."""
    trained: tuple[TrainedView, ...]
    law: PerplexityPredictor | None
    """The job's, for the training budget that was asked for."""
    dominance: Dominance

    def short(self) -> str:
        """`RecommendationView.short`."""
        return recommend(self.options(self.candidates), self.option_limits, self.proxy, **self.compared).short

    @property
    def option_limits(self) -> OptionLimits:
        return OptionLimits(**self.limits.model_dump())

    @property
    def compared(self) -> Compared:
        ratio = independent if self.law is None else self._ratio
        return {"own": starts_from_model(self.request), "ratio": ratio, "dominance": self.dominance}

    def options(self, candidates: Sequence[CandidateView]) -> list[Option]:
        trained = {score.candidate_id: score.perplexity for score in self.trained}
        return [
            _option(candidate, trained.get(candidate.id), self.proxy)
            for candidate in candidates
            # One that waits for a second launch may be wrong; one without blocks cannot be read.
            if candidate.state in MEASURED_CANDIDATES and candidate.architecture
        ]

    def _ratio(self, option: Option, other: Option) -> Ratio:
        """Ratio of two perplexities by the job's law, which knows what two models have in common."""
        assert self.law is not None
        predicted = self.law.ratio(self._shape(option.id), self._shape(other.id))
        return Ratio(float(predicted.perplexity[0]), float(predicted.half_width[0]))

    def _shape(self, id_: str) -> Shapes:
        """Kept: the stock model is compared with one after the other."""
        if id_ not in self._shapes:
            self._shapes[id_] = Shapes.of([Architecture.model_validate(self._architectures[id_])])
        return self._shapes[id_]

    @cached_property
    def _shapes(self) -> dict[str, Shapes]:
        return {}

    @cached_property
    def _architectures(self) -> dict[str, Document]:
        return {candidate.id: candidate.architecture for candidate in self.candidates}


def _option(candidate: CandidateView, trained: float | None, proxy: str) -> Option:
    predicted = candidate.predicted
    score = candidate.proxy
    if proxy == "quality_law" and predicted is not None and predicted.perplexity is not None:
        score = -math.log(predicted.perplexity)  # for the training that was asked for
    stock = candidate.role == CandidateRole.BASELINE
    return Option(
        id=candidate.id,
        digest=candidate.digest,
        stock=stock,
        name=layers_in_words(candidate.architecture["blocks"]) if stock else model_in_words(candidate.architecture),
        parameters=candidate.decoder_parameters,
        score=score,
        latency=Figure.plus_minus(candidate.latency_ms or 0.0, candidate.latency_half_width_ms),
        memory=Figure(float(candidate.memory_bytes or 0), MEMORY_SPREAD),
        first_token_ms=candidate.first_token_ms,
        token_ms=candidate.token_ms,
        predicted=None
        if predicted is None or predicted.perplexity is None
        else Figure.between(predicted.perplexity, predicted.perplexity_low, predicted.perplexity_high),
        relative=predicted is not None and predicted.relative_to is not None,
        label="" if predicted is None else predicted.label,
        trained=trained,
    )
