"""Recommendation for a target: the best model within limits, from the measurements so far."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.formatting import layers_in_words, model_in_words
from edgefront.core.architectures.space import Genome
from edgefront.core.common.states import ACTIVE_TARGETS, CandidateRole
from edgefront.core.common.units import rounded
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.model_file import ModelFormat, formats_of
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.schemas.jobs import NO_BUDGET, NO_LIMITS, Limits, PredictionBudget
from edgefront.core.schemas.predictions import PredictedView
from edgefront.core.schemas.recommendations import (
    LimitMove,
    RecommendationView,
    RunnerUpView,
    TrainingBudgetView,
    TrainTimeView,
)
from edgefront.core.search.pareto.options import Option, OptionLimits
from edgefront.core.search.pareto.recommendation import Recommendation
from edgefront.core.search.population_shapes import PopulationShapes
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of, target_of
from edgefront.core.services.jobs.answers.candidates import candidate_view
from edgefront.core.services.jobs.answers.frontier_view import trained_views
from edgefront.core.services.jobs.answers.measured_models import (
    MAX_NEAR,
    MeasuredModels,
    check_times_measured,
    near_in_words,
    other_ways,
)
from edgefront.core.services.jobs.comparison import baseline_of, starts_from_model, unmeasured_depth
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.progress import added_note
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.quality import laws
from edgefront.core.services.quality import queries as score_queries
from edgefront.core.services.quality.expected import is_of, law_note, perplexities, perplexity_of
from edgefront.core.services.quality.learning import SPLIT
from edgefront.core.services.quality.trust import trained_of
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.services.trainings import paces
from edgefront.core.store.database import Database
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Job, Target

MAX_CANDIDATES = 500
"""Maximum number of models within the limits that a recommendation compares: the best by proxy, or by predicted
perplexity for the requested training. Trained models are compared in addition.
"""
MAX_NEAREST = 10
"""Number of candidates nearest to the limits that are read if no candidate is within the limits."""


@dataclass(frozen=True, kw_only=True)
class RecommendationInputs(MeasuredModels):
    """Inputs from which a target's recommendation is computed, read in one transaction."""

    job_id: str
    target_id: str
    target: str
    active: bool
    protocol: MeasurementProtocol | None
    """Measurement protocol of the target; None if the stored protocol is unreadable."""
    own_limits: Limits
    """Limits in the job's request, which `limits` may replace."""
    added: str
    """Note on how many candidates were measured, if the target was added later; else empty."""
    own_law: PerplexityPredictor | None
    """Scaling law of the job's search, for the search's own training budget; None without a scaling law."""
    near: tuple[CandidateView, ...]
    """Models just beyond the limits with a higher score than every model within the limits."""
    devices: tuple[Document, ...]
    """Facts of the target's devices."""
    datasets: frozenset[str]
    """Data sets that models of the target were trained on."""
    alike: str
    """Options of `edgefront train submit` for the training of the models that are trained alike; empty without one."""
    trainers: tuple[str, ...]
    """Names of training workers with a known speed; empty if the scaling law supports no training budget."""

    @property
    def needs_prediction(self) -> bool:
        """Whether the answer needs another scaling law or another training budget than the search."""
        return self.law is not None and self.own_law is not None and not self.law.predicts_as(self.own_law)

    def short(self) -> str:
        return self.recommended(self._predicted()).short

    def recommendation(self) -> RecommendationView:
        """Computes the recommendation from these inputs, without a database session."""
        predicted = self._predicted()
        baselines = [candidate for candidate in self.candidates if candidate.role == CandidateRole.BASELINE]
        deeper = unmeasured_depth(self.request, baselines, self.limits)
        chosen = self.recommended(
            predicted,
            inherits=isinstance(self.law, PruningPredictor),
            deeper="" if deeper is None else layers_in_words(deeper.canonical["blocks"]),
        )
        return self._view(chosen, predicted)

    def _predicted(self) -> Sequence[CandidateView]:
        """Returns the candidates with the perplexity predicted for the requested training, in intervals that hold what
        trained models reached.
        """
        if not self.needs_prediction and self.widening == 1:
            return self.candidates
        architectures = [Architecture.model_validate(candidate.architecture) for candidate in self.candidates]
        qualities = perplexities(self.law, architectures, self.widening)
        return [
            candidate.model_copy(
                update={"predicted": (candidate.predicted or PredictedView()).model_copy(update=quality)}
            )
            for candidate, quality in zip(self.candidates, qualities, strict=True)
        ]

    def _view(self, chosen: Recommendation, candidates: Sequence[CandidateView]) -> RecommendationView:
        views = {candidate.id: candidate for candidate in candidates}

        def view(option: Option | None) -> CandidateView | None:
            return None if option is None else views[option.id]

        named = (chosen.best, chosen.baseline, chosen.nearest, chosen.surest, *(each for each, _ in chosen.runners_up))
        protocols = () if self.protocol is None else (self.protocol,)
        runners_up = tuple(RunnerUpView(candidate=views[option.id], trade=trade) for option, trade in chosen.runners_up)
        shown = [views[option.id] for option in named if option is not None]
        ids = {candidate.id for candidate in shown}
        return RecommendationView(
            job_id=self.job_id,
            target_id=self.target_id,
            target=self.target,
            limits=self.limits,
            by=chosen.by,
            proxy=self.proxy,
            perplexity_of=perplexity_of(
                (candidate.predicted.law for candidate in shown if candidate.predicted), self.law
            ),
            training=self._training(),
            sentence=f"{chosen.sentence} {self._near(chosen)}".strip()
            + ("" if chosen.nearest is None else other_ways(self.request, protocols, self.devices)),
            short=chosen.short,
            note=self._note(),
            recommended=view(chosen.best),
            baseline=view(chosen.baseline),
            surest=view(chosen.surest),
            own_model=starts_from_model(self.request),
            inherit=None if self.request is None else self.request.space.inherit,
            inherit_data=self.law.origin.data if isinstance(self.law, PruningPredictor) else None,
            runners_up=runners_up,
            nearest=view(chosen.nearest),
            moves=tuple(LimitMove(limit=move.limit, to=move.to, candidate_id=move.option.id) for move in chosen.moves),
            standings={
                option.id: OptionLimits(**self.limits.model_dump()).standings(option)
                for option in named
                if option is not None
            },
            download=_download(self.protocol, view(chosen.best)),
            train=self._train([candidate for candidate in shown if candidate is not None and chosen.best is not None]),
            trained=tuple(score for score in self.trained if score.candidate_id in ids),
        )

    def _train(self, shown: Sequence[CandidateView]) -> str:
        trained = {score.candidate_id for score in self.trained if score.ranks}
        left = next((candidate.id for candidate in shown if candidate.id not in trained), None)
        return "" if left is None else f"--candidate {left} {self.alike}".strip()

    def _training(self) -> TrainingBudgetView | None:
        if self.law is None or self.own_law is None or not self.law.train_budget:
            return None
        least, most = self.law.token_range or (None, None)
        return TrainingBudgetView(
            train_tokens=self.law.train_tokens,
            train_time=_time_view(self.law),
            own=self.own_law.train_tokens,
            own_time=_time_view(self.own_law),
            known_from=least,
            known_to=most,
            trainers=self.trainers,
        )

    def _note(self) -> str:
        parts = []
        if self.active:
            parts.append("The search is not finished, so this answer rests on the measurements so far.")
        elif self.limits != self.own_limits:
            own = str(OptionLimits(**self.own_limits.model_dump()))
            within = f"within {own}" if own else "without limits"
            parts.append(f"The search looked {within}. A search within the requested limits may find a better model.")
        parts.append(self.added)
        if self.request is not None:
            parts.append(law_note(self.request, self.law, self.datasets))
        if self.widening > 1:
            parts.append(
                "A trained model's perplexity is outside its predicted interval, so all intervals of predicted "
                f"perplexity are {rounded(self.widening, 2)} times as wide as the scaling law says."
            )
        return " ".join(text for text in parts if text)

    def _near(self, chosen: Recommendation) -> str:
        near = [] if chosen.best is None else [(model_in_words(model.architecture), model) for model in self.near]
        return near_in_words(near, self.limits)


def answer(
    database: Database,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    limits: Limits = NO_LIMITS,
    budget: PredictionBudget = NO_BUDGET,
) -> RecommendationView:
    """Returns the recommendation for a target. Arguments and errors are those of `read_inputs`.

    If scaling law or training budget differ from those of the search, the perplexity of every measured model within the
    limits is predicted. For 20,000 models this takes one to two seconds.
    """
    with database.read() as session:
        inputs = read_inputs(session, principal, job_id, target, limits, budget)
        genomes: dict[str, Genome] = {}
        if inputs.needs_prediction:
            genomes = candidate_queries.genomes_within(session, inputs.target_id, inputs.limits)
        without_genome = [id_ for id_, genome in genomes.items() if not genome]
        architectures = candidate_queries.architectures(session, without_genome) if without_genome else {}
    if len(genomes) <= MAX_CANDIDATES:
        return inputs.recommendation()
    best = _best_by_law(inputs, {id_: genome for id_, genome in genomes.items() if genome}, architectures)
    with database.read() as session:
        inputs = read_inputs(session, principal, job_id, target, limits, budget, best)
    return inputs.recommendation()


def _best_by_law(
    inputs: RecommendationInputs, genomes: Mapping[str, Genome], architectures: Mapping[str, Document]
) -> list[str]:
    """Returns the ids of the `MAX_CANDIDATES` models with the lowest predicted perplexities, in ascending order."""
    assert inputs.law is not None
    assert inputs.request is not None
    expected: dict[str, float] = {}
    if genomes:
        shapes = PopulationShapes(space_of(inputs.request.space)).of_genomes(list(genomes.values()))
        expected |= zip(genomes, inputs.law.expected(shapes).tolist(), strict=True)
    if architectures:
        shapes = Shapes.of([Architecture.model_validate(architecture) for architecture in architectures.values()])
        expected |= zip(architectures, inputs.law.expected(shapes).tolist(), strict=True)
    return heapq.nsmallest(MAX_CANDIDATES, expected, key=lambda id_: (expected[id_], id_))


def read_inputs(
    session: Session,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    limits: Limits = NO_LIMITS,
    budget: PredictionBudget = NO_BUDGET,
    best: Collection[str] = (),
) -> RecommendationInputs:
    """Reads the inputs of the recommendation for `target` (an id or a name; None: the job's first target).

    `limits` replace the target's limits. `budget` is the training for which perplexities are predicted. `best` are the
    ids of the models to compare; if empty, the models with the best proxy are compared.

    Raises `NotFound` if there is no such job or target. Raises `InvalidInput` for a limit on a time that the target
    does not measure, for a training budget that the job's scaling law does not support, or for a training machine with
    an unknown speed.
    """
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    check_times_measured(row, limits)
    own = LIMITS.read_or(row.limits, Limits())
    return inputs_within(session, job, row, own.model_copy(update=limits.model_dump(exclude_none=True)), budget, best)


def inputs_within(
    session: Session,
    job: Job,
    row: Target,
    limits: Limits,
    budget: PredictionBudget = NO_BUDGET,
    best: Collection[str] = (),
) -> RecommendationInputs:
    """Reads the inputs of a target's recommendation within exactly these limits. Other arguments: see `read_inputs`."""
    trained = trained_of(session, row.id)
    searched = (
        candidate_queries.by_ids(session, best)
        if best
        else candidate_queries.best_within(session, row.id, limits, MAX_CANDIDATES)
    )
    highest = max((candidate.proxy for candidate in searched), default=math.inf)
    near = candidate_queries.just_beyond(session, row.id, limits, MAX_NEAR, score=highest)
    missing = {score.candidate_id for score in trained} - {candidate.id for candidate in searched}
    searched += candidate_queries.some_within(session, row.id, limits, missing) if missing else []
    searched = searched or candidate_queries.nearest_to(session, row.id, limits, MAX_NEAREST)
    baseline = baseline_of(session, row.id)
    request = JOB_REQUEST.read_or(job.request, None)
    protocol = PROTOCOL.read_or(row.protocol, None)
    candidates = [*candidate_queries.baselines(session, row.id), *searched]
    own_law = laws.readable_law_of(session, job, request)
    law, _ = laws.law_of_answers(session, job, request, {score.training_id for score in trained if score.alike})
    if budget != NO_BUDGET:
        if law is None:
            laws.check_no_budget(budget, "the models of this job")
        else:
            law = laws.for_budget(law, paces.with_pace(session, job.owner, budget))
    ranking = {score.training_id for score in trained if score.alike and not score.too_short}
    absolute = None if law is None or isinstance(law, PruningPredictor) else law.origin.data
    reached = {
        score.candidate_id: score.value
        for score in (score_queries.trained(session, row.id) if absolute and ranking else ())
        if absolute and score.training_id in ranking and score.split == SPLIT and is_of(absolute, score.data)
    }
    return RecommendationInputs(
        job_id=job.id,
        target_id=row.id,
        target=row.name,
        proxy=row.proxy,
        active=row.state in ACTIVE_TARGETS,
        protocol=protocol,
        threads=None if protocol is None else protocol.threads,
        own_limits=LIMITS.read_or(row.limits, Limits()),
        limits=limits,
        added="" if request is None else added_note(session, request, row),
        request=request,
        candidates=tuple(candidate_view(candidate, baseline) for candidate in candidates),
        trained=trained_views(trained),
        reached=reached,
        alike=next((score.options for score in trained if score.training_id in ranking), ""),
        datasets=frozenset(score.data for score in trained),
        law=law,
        own_law=own_law,
        near=tuple(candidate_view(candidate, baseline) for candidate in near),
        dominance=dominance_of(job),
        devices=tuple(device.facts for device in job_queries.devices_of(session, row.device_key)),
        trainers=tuple(paces.trainers(session, job.owner)) if own_law is not None and own_law.train_budget else (),
    )


def _time_view(law: PerplexityPredictor) -> TrainTimeView | None:
    return None if law.train_time is None else TrainTimeView(hours=law.train_time.hours, trainer=law.train_time.trainer)


def _download(protocol: MeasurementProtocol | None, best: CandidateView | None) -> str:
    """Returns the options of `edgefront model download` for the format that the protocol measures: GGUF for llama.cpp,
    `onnx-generate` for mode generate if the model supports that format, else ONNX.
    """
    format_: ModelFormat = "onnx"
    if protocol is not None and protocol.runtime == "llamacpp":
        format_ = "gguf"
    elif protocol is not None and protocol.mode == "generate" and best is not None:
        generating: ModelFormat = "onnx-generate"
        if generating in formats_of(Architecture.model_validate(best.architecture)):
            format_ = generating
    return f"--format {format_}"
