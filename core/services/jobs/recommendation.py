"""The recommendation of a target: the best measured model within limits, from what is known, without a new job."""

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
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import ACTIVE_TARGETS, CandidateRole
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import launches_needed
from edgefront.core.model_files.model_file import NUMBERS, ModelFormat, formats_of
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.schemas.jobs import NO_BUDGET, NO_LIMITS, Limits, TrainingBudget
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
from edgefront.core.services.jobs.candidates import candidate_view
from edgefront.core.services.jobs.comparison import baseline_of, starts_from_model, unmeasured_depth
from edgefront.core.services.jobs.frontier import dominance_of
from edgefront.core.services.jobs.measured_models import MAX_NEAR, MeasuredModels, near_in_words
from edgefront.core.services.jobs.progress import added_note
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.views import trained_views
from edgefront.core.services.quality import laws
from edgefront.core.services.quality.expected import law_note, perplexities, perplexity_of
from edgefront.core.services.quality.trust import trained_of
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST, LIMITS, PROTOCOL
from edgefront.core.services.trainings import paces
from edgefront.core.store.database import Database
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Job, Target

MAX_CANDIDATES = 500
"""Models within the limits that are compared at most: the best by the proxy, or by the training that was asked for, and
those that were trained.
"""
MAX_NEAREST = 10
"""Candidates nearest to the limits that are read where none is within them."""


@dataclass(frozen=True, kw_only=True)
class Known(MeasuredModels):
    """What was read of a target: all that a recommendation follows from."""

    job_id: str
    target_id: str
    target: str
    active: bool
    protocol: MeasurementProtocol | None
    """It is None where it cannot be read."""
    own_limits: Limits
    added: str
    """How a target that was added later came to its candidates."""
    own_law: PerplexityPredictor | None
    """That of the job's search, for the budget that it searched for."""
    near: tuple[CandidateView, ...]
    """Just beyond the limits, with a higher score than all within."""
    trainers: tuple[str, ...]
    """Workers whose pace of training is known; none where the law knows one budget."""

    @property
    def predicts_anew(self) -> bool:
        """Whether it was asked for another training than the one that the job ranks by, or trainings have taught more
        since its search.
        """
        return self.law is not None and self.own_law is not None and not self.law.predicts_as(self.own_law)

    def short(self) -> str:
        return self.recommended(self._predicted()).short

    def recommendation(self) -> RecommendationView:
        """Computed without a session."""
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
        """The candidates with their perplexity after the training that was asked for."""
        if not self.predicts_anew:
            return self.candidates
        architectures = [Architecture.model_validate(candidate.architecture) for candidate in self.candidates]
        qualities = perplexities(self.law, architectures)
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

        runners_up = tuple(RunnerUpView(candidate=views[option.id], trade=trade) for option, trade in chosen.runners_up)
        shown = [
            view(chosen.best),
            view(chosen.baseline),
            view(chosen.nearest),
            *(runner_up.candidate for runner_up in runners_up),
        ]
        ids = {candidate.id for candidate in shown if candidate is not None}
        return RecommendationView(
            job_id=self.job_id,
            target_id=self.target_id,
            target=self.target,
            limits=self.limits,
            by=chosen.by,
            proxy=self.proxy,
            perplexity_of=perplexity_of(
                (candidate.predicted.law for candidate in shown if candidate and candidate.predicted), self.law
            ),
            training=self._training(),
            sentence=chosen.sentence,
            short=chosen.short,
            note=self._note(view(chosen.best)),
            recommended=view(chosen.best),
            baseline=view(chosen.baseline),
            own_model=starts_from_model(self.request),
            inherit=None if self.request is None else self.request.space.inherit,
            runners_up=runners_up,
            nearest=view(chosen.nearest),
            moves=tuple(LimitMove(limit=move.limit, to=move.to, candidate_id=move.option.id) for move in chosen.moves),
            download=_download(self.protocol, view(chosen.best)),
            trained=tuple(score for score in self.trained if score.candidate_id in ids),
        )

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

    def _note(self, best: CandidateView | None) -> str:
        parts = []
        if self.active:
            parts.append("The search is not finished: this is what is known by now.")
        elif self.limits != self.own_limits:
            own = str(OptionLimits(**self.own_limits.model_dump()))
            looked = f"within {own}" if own else "without limits"
            parts.append(f"The search looked {looked}: one within the limits asked for may find a better model.")
        near = [] if best is None else [(model_in_words(one.architecture), one) for one in self.near]
        parts += [self._once(best), near_in_words(near, self.limits), self.added]
        if self.request is not None:
            parts.append(law_note(self.request, self.law, {score.dataset for score in self.trained}))
        return " ".join(text for text in parts if text)

    def _once(self, best: CandidateView | None) -> str:
        """Says that the best was measured by one launch only, if that is less certain than was asked for."""
        if best is None or best.launches != 1 or best.latency_ms is None or self.protocol is None:
            return ""
        further, end = 1, "say how far its latency may be off"
        if best.latency_half_width_ms is not None:
            width = best.latency_half_width_ms / best.latency_ms
            needed = launches_needed(width, self.protocol.precision, self.protocol.max_launches)
            further = (needed or self.protocol.max_launches) - 1
            end = "say its latency more precisely" if needed is None else "confirm its latency"
        if further < 1:
            return ""
        launches = "1 further launch" if further == 1 else f"{further} further launches"
        who = "the job as far as its budget permits" if self.active else "edgefront measure on the device"
        return f"This is provisional: the model was measured once. {launches}, made by {who}, would {end}."


def answer(
    database: Database,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    asked: Limits = NO_LIMITS,
    budget: TrainingBudget = NO_BUDGET,
) -> RecommendationView:
    """The recommendation of a target. Raises as `read`.

    For another training than the job's, and by what trainings have taught since, every measured model within the
    limits is predicted, which takes one to two seconds for 20,000 of them.
    """
    with database.read() as session:
        state = read(session, principal, job_id, target, asked, budget)
        rivals = candidate_queries.genomes_within(session, state.target_id, state.limits) if state.predicts_anew else {}
        unbuilt = [id_ for id_, genome in rivals.items() if not genome]
        described = candidate_queries.architectures(session, unbuilt) if unbuilt else {}
    if len(rivals) <= MAX_CANDIDATES:
        return state.recommendation()
    best = _best_by_law(state, {id_: genome for id_, genome in rivals.items() if genome}, described)
    with database.read() as session:
        state = read(session, principal, job_id, target, asked, budget, best)
    return state.recommendation()


def _best_by_law(state: Known, genomes: Mapping[str, Genome], described: Mapping[str, Document]) -> list[str]:
    """Ids of the best by the law for the training that was asked for, of models by genome or by architecture."""
    assert state.law is not None
    assert state.request is not None
    expected: dict[str, float] = {}
    if genomes:
        shapes = PopulationShapes(space_of(state.request.space)).of_genomes(list(genomes.values()))
        expected |= zip(genomes, state.law.expected(shapes).tolist(), strict=True)
    if described:
        shapes = Shapes.of([Architecture.model_validate(architecture) for architecture in described.values()])
        expected |= zip(described, state.law.expected(shapes).tolist(), strict=True)
    return heapq.nsmallest(MAX_CANDIDATES, expected, key=lambda id_: (expected[id_], id_))


def read(
    session: Session,
    principal: Principal,
    job_id: str,
    target: str | None = None,
    asked: Limits = NO_LIMITS,
    budget: TrainingBudget = NO_BUDGET,
    best: Collection[str] = (),
) -> Known:
    """What is known of a target (by id or name; None: the job's first); limits that are not given are the target's.
    With a `budget` perplexities are predicted for models that are trained so long, of which `best` are the ids of the
    best; if absent, the best by the proxy are read.

    NotFound if there is no such job or target; InvalidInput for a limit on a time that the target does not measure, for
    a training budget where the job's law knows one alone, and for a trainer whose pace is unknown.
    """
    job = job_of(session, principal, job_id)
    row = target_of(session, job, target)
    protocol = PROTOCOL.read_or(row.protocol, None)
    for field, limit in (("max_first_token_ms", asked.first_token_ms), ("max_token_ms", asked.token_ms)):
        if limit is not None and (protocol is None or protocol.mode != "generate"):
            raise InvalidInput(
                f"{field}: the target {row.name!r} measures no generations, so it has no such time",
                field=field,
                value=limit,
                allowed="no value, or a target of mode generate",
            )
    own = LIMITS.read_or(row.limits, Limits())
    limits = own.model_copy(update=asked.model_dump(exclude_none=True))
    return known_of(session, job, row, limits, budget, best)


def known_of(
    session: Session,
    job: Job,
    row: Target,
    limits: Limits,
    budget: TrainingBudget = NO_BUDGET,
    best: Collection[str] = (),
) -> Known:
    """What is known of a target within these limits; else as `read`."""
    trained = trained_of(session, row.id)
    searched = (
        candidate_queries.by_ids(session, best)
        if best
        else candidate_queries.best_within(session, row.id, limits, MAX_CANDIDATES)
    )
    highest = max((candidate.proxy for candidate in searched), default=math.inf)
    near = candidate_queries.just_beyond(session, row.id, limits, MAX_NEAR, score=highest)
    left = {score.candidate_id for score in trained} - {candidate.id for candidate in searched}
    searched += candidate_queries.some_within(session, row.id, limits, left) if left else []
    searched = searched or candidate_queries.nearest_to(session, row.id, limits, MAX_NEAREST)
    baseline = baseline_of(session, row.id)
    request = JOB_REQUEST.read_or(job.request, None)
    candidates = [*candidate_queries.baselines(session, row.id), *searched]
    own_law = laws.known_law_of(session, job, request)
    law, _ = laws.law_of_answers(session, job, request, {score.digest for score in trained})
    if budget != NO_BUDGET:
        if law is None:
            laws.check_no_budget(budget, "the models of this job")
        else:
            law = laws.for_budget(law, paces.with_pace(session, job.owner, budget))
    return Known(
        job_id=job.id,
        target_id=row.id,
        target=row.name,
        proxy=row.proxy,
        active=row.state in ACTIVE_TARGETS,
        protocol=PROTOCOL.read_or(row.protocol, None),
        own_limits=LIMITS.read_or(row.limits, Limits()),
        limits=limits,
        added="" if request is None else added_note(session, request, row),
        request=request,
        candidates=tuple(candidate_view(candidate, baseline) for candidate in candidates),
        trained=trained_views(trained),
        law=law,
        own_law=own_law,
        near=tuple(candidate_view(candidate, baseline) for candidate in near),
        dominance=dominance_of(job),
        trainers=tuple(paces.trainers(session, job.owner)) if own_law is not None and own_law.train_budget else (),
    )


def _time_view(law: PerplexityPredictor) -> TrainTimeView | None:
    return None if law.train_time is None else TrainTimeView(hours=law.train_time.hours, trainer=law.train_time.trainer)


def _download(protocol: MeasurementProtocol | None, best: CandidateView | None) -> str:
    """The options that give the file which this protocol measures: GGUF for llama.cpp, else ONNX, which generates where
    generations were measured and the model has such a file.
    """
    if protocol is None:
        return "--format onnx"
    format_: ModelFormat = "onnx"
    if protocol.runtime == "llamacpp":
        format_ = "gguf"
    elif protocol.mode == "generate" and best is not None:
        generating: ModelFormat = "onnx-generate"
        if generating in formats_of(Architecture.model_validate(best.architecture)):
            format_ = generating
    return f"--format {format_}" + (f" --weights {protocol.weights}" if protocol.weights in NUMBERS[format_] else "")
