"""Measured models of a target, from which a recommendation chooses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.formatting import layers_in_words, model_in_words
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import MEASURED_CANDIDATES, CandidateRole
from edgefront.core.common.units import rounded
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.variants import format_of, variants_of
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.schemas.candidates import CandidateView, TrainedView
from edgefront.core.schemas.jobs import JobRequest, Limits
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.search.pareto.options import (
    MEMORY_SPREAD,
    UNITS,
    Estimate,
    Option,
    OptionLimits,
    Ratio,
    independent,
)
from edgefront.core.search.pareto.recommendation import Recommendation, recommend
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.jobs.comparison import starts_from_model
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Target

MAX_NEAR = 3
"""Maximum number of models beyond the limits that an answer names."""


@dataclass(frozen=True, kw_only=True)
class MeasuredModels:
    """Measured models of a target, with the limits, scaling law and dominance relation that rank them."""

    proxy: str
    limits: Limits
    request: JobRequest | None
    """The job's request; None if the stored request is unreadable."""
    threads: int | None = None
    """Threads of a launch; None if the stored protocol is unreadable."""
    candidates: tuple[CandidateView, ...]
    """Baselines, and the measured models that are within the limits, or nearest to the limits if none is within."""
    trained: tuple[TrainedView, ...]
    reached: Mapping[str, float]
    """Candidate id → perplexity that it reached on the scaling law's data and split, in trainings that rank."""
    law: PerplexityPredictor | None
    """The job's scaling law, for the requested training budget; None without a scaling law."""
    dominance: Dominance

    def short(self) -> str:
        """Returns the recommendation in a few words (`RecommendationView.short`)."""
        return self.recommended(self.candidates).short

    def recommended(
        self, candidates: Sequence[CandidateView], *, inherits: bool = False, deeper: str = ""
    ) -> Recommendation:
        """Recommends the best candidate within the limits (`core.search.pareto.recommendation.recommend`)."""
        trained = {score.candidate_id: score.perplexity for score in self.trained if score.ranks}
        options = [
            option_of(candidate, trained.get(candidate.id), self.proxy, self.threads)
            for candidate in candidates
            # Excludes candidates that wait for a second launch, and unreadable architectures.
            if candidate.state in MEASURED_CANDIDATES and candidate.architecture
        ]
        return recommend(
            options,
            OptionLimits(**self.limits.model_dump()),
            self.proxy,
            own=starts_from_model(self.request),
            ratio=independent if self.law is None else self._ratio,
            dominance=self.dominance,
            inherits=inherits,
            deeper=deeper,
        )

    @cached_property
    def widening(self) -> float:
        """Factor of the intervals of predicted perplexities: above 1 if a model reached one outside its interval."""
        models = [candidate for candidate in self.candidates if candidate.id in self.reached and candidate.architecture]
        if not models or self.law is None or self.law.relative_to or self.law.train_budget:
            return 1.0
        shapes = Shapes.of([Architecture.model_validate(candidate.architecture) for candidate in models])
        predicted, reached = self.law.predict(shapes), [self.reached[candidate.id] for candidate in models]
        return max(1.0, float((abs(np.log(reached) - predicted.log_perplexity) / predicted.half_width).max()))

    def _ratio(self, option: Option, other: Option) -> Ratio:
        """Predicts the ratio of two models' perplexities. Prediction errors that both models share cancel out."""
        assert self.law is not None
        for one in (option, other):  # cached: the stock model is compared with many options
            if one.id not in self._shapes:
                described = next(candidate.architecture for candidate in self.candidates if candidate.id == one.id)
                self._shapes[one.id] = Shapes.of([Architecture.model_validate(described)])
        predicted = self.law.ratio(self._shapes[option.id], self._shapes[other.id])
        return Ratio(float(predicted.perplexity[0]), float(predicted.half_width[0]))

    @cached_property
    def _shapes(self) -> dict[str, Shapes]:
        return {}


def time_of(candidate: CandidateView, name: str) -> Estimate | None:
    """Returns the time `latency`, `first_token` or `token` in ms, with its interval; None if it was not measured."""
    time = getattr(candidate, f"{name}_ms")
    return None if time is None else Estimate.plus_minus(time, getattr(candidate, f"{name}_half_width_ms"))


BUSY = 0.1
"""Least share of the passes' time, taken by other programs, that an answer states."""


def conditions_of(candidate: CandidateView, threads: int | None) -> str:
    """Returns how a candidate was measured: `measured with 1 thread`, if in one launch, and if the device was busy."""
    words = f"measured with {threads} thread{'' if threads == 1 else 's'}" if threads else "measured"
    words += " in one launch" if candidate.launches == 1 else ""
    if (candidate.waited_share or 0.0) > BUSY:
        share = f"{100 * (candidate.waited_share or 0.0):.0f} %"
        return f"{words} while other programs took {share} of its time (--when-busy wait waits until they pause)"
    return f"{words} under conditions out of the ordinary" if candidate.marked else words


def option_of(
    candidate: CandidateView, trained: float | None, proxy: str, threads: int | None, name: str = "", bits: int = 32
) -> Option:
    predicted = candidate.predicted
    score = candidate.proxy
    if proxy == "quality_law" and predicted is not None and predicted.perplexity is not None:
        score = -math.log(predicted.perplexity)  # for the requested training
    stock = candidate.role == CandidateRole.BASELINE
    return Option(
        id=candidate.id,
        digest=candidate.digest,
        stock=stock,
        name=name
        or (layers_in_words(candidate.architecture["blocks"]) if stock else model_in_words(candidate.architecture)),
        parameters=candidate.decoder_parameters,
        score=score,
        latency=time_of(candidate, "latency") or Estimate(0.0),
        memory=Estimate(float(candidate.memory_bytes or 0), MEMORY_SPREAD),
        first_token=time_of(candidate, "first_token"),
        token=time_of(candidate, "token"),
        conditions=conditions_of(candidate, threads),
        predicted=None
        if predicted is None or predicted.perplexity is None
        else Estimate.between(predicted.perplexity, predicted.perplexity_low, predicted.perplexity_high),
        relative=predicted is not None and predicted.relative_to is not None,
        label="" if predicted is None else predicted.label,
        trained=trained,
        bits=bits,
    )


def check_times_measured(target: Target, limits: Limits) -> None:
    """Raises `InvalidInput` for a limit on a time that the target does not measure."""
    protocol = PROTOCOL.read_or(target.protocol, None)
    for field, limit in (("max_first_token_ms", limits.first_token_ms), ("max_token_ms", limits.token_ms)):
        if limit is not None and (protocol is None or protocol.mode != "generate"):
            raise InvalidInput(
                f"{field}: the target {target.name!r} measures no generations, so this time cannot be limited",
                field=field,
                value=limit,
                allowed="no value, or a target of mode generate",
            )


def other_ways(request: JobRequest | None, protocols: Sequence[MeasurementProtocol], facts: Sequence[Document]) -> str:
    """Returns a sentence on what else may fit on devices with these facts; empty if nothing is left to try."""
    if request is None or not protocols:
        return ""
    tried = {protocol.runtime for protocol in protocols if BITS[format_of(protocol)] <= 4}
    names = [
        str(variant.weights)
        for protocol in protocols
        for variant in variants_of(protocol)
        if BITS[format_of(variant)] == 4
        and variant.runtime not in tried
        and any(can_run(each, variant) for each in facts)
    ]
    option = "--weights" if request.space.published is None else "--formats"
    ways = [f"weights of 4 bits ({option} {','.join(dict.fromkeys(names))})"] if names else []
    cores = max((each["cores"] for each in facts), default=0)
    if all(protocol.provider == "cpu" and protocol.threads < cores for protocol in protocols):
        ways.append(f"more threads (--threads {cores})")
    if request.space.inherit is None:
        ways.append("a part of a pretrained model, cut and healed (edgefront find --model FOLDER --inherit)")
    return f" What else may fit: {', '.join(ways)}." if ways else ""


def near_in_words(near: Iterable[tuple[str, CandidateView]], limits: Limits) -> str:
    """Returns a sentence that names better models beyond the limits; empty if there are no such models."""
    models = [f"{name}: {_excess(candidate, limits)}" for name, candidate in near]
    return f"Better, but not within the limits: {'; '.join(models[:MAX_NEAR])}." if models else ""


def _excess(candidate: CandidateView, limits: Limits) -> str:
    """Describes the model's largest excess over a limit: `42.8 ± 1.4 ms, one launch, 7 % beyond` or `at the limit`."""
    option, given = option_of(candidate, None, "", None), OptionLimits(**limits.model_dump())
    share, name = max((option.value(name) / limit - 1, name) for name, limit in given.given.items())
    launches = "one launch" if candidate.launches == 1 else f"{candidate.launches} launches"
    stands = given.standings(option)[name].replace("beyond", f"{rounded(max(0.1, 100 * share), 2)} % beyond")
    return f"{option.figure(name)} {UNITS[name]}, {launches}, {stands}"
