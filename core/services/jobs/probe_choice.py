"""Which small trainings make a job's answer surest: the models that it compares, and the candidates to train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefront.core.cost.shapes import Shapes
from edgefront.core.data.prepared.prepared import read_manifest
from edgefront.core.errors import Conflict, InvalidInput
from edgefront.core.proxies.quality_law import law_about
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.probes import Question, choose
from edgefront.core.quality.shared_law import SharedLaw
from edgefront.core.quality.shipped import law_for
from edgefront.core.quality.training_time import Pace
from edgefront.core.recipes.default import default_recipe
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import recommendation
from edgefront.core.services.jobs.queries import probes as rows
from edgefront.core.services.jobs.recommendation import Known
from edgefront.core.services.quality import law_queries, laws
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.trainings import paces
from edgefront.core.services.trainings.claims import comparability_key
from edgefront.core.services.trainings.datasets import find_dataset
from edgefront.core.services.trainings.lifecycle import PlannedTrainings, plan_trainings
from edgefront.core.services.trainings.plan import TrainingPlan
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.formatting import stack_in_words
from edgefront.core.states import CandidateRole
from edgefront.core.store.database import Database
from edgefront.core.training.vocabulary import with_vocabulary
from edgefront.core.wire.candidates import CandidateView
from edgefront.core.wire.jobs import TrainingBudget
from edgefront.core.wire.probes import ProbeAnswer, ProbePlan, ProbeRatio, ProbeRequest, ProbeTraining
from edgefront.core.wire.recommendations import RecommendationView
from edgefront.core.wire.trainings import TrainingRequest

COST_WEIGHT = 0.5
"""Exponent of a training's FLOPs by which its gain is divided: five probes cost 0.2 to 0.7 of what five models drawn
at random cost, and the interval is at most a quarter wider than with 0 (LTS's tables, each left out).
"""
FLOPS = 6
"""FLOPs of a training for each token and decoder parameter (Kaplan et al. 2020, arXiv 2001.08361, §2.1)."""


@dataclass(frozen=True)
class ChosenTrainings:
    """A probe's plan with the trainings that it makes."""

    plan: ProbePlan
    trainings: tuple[PlannedTrainings, ...]


def choose_trainings(
    database: Database, principal: Principal, job_id: str, asked: ProbeRequest, settings: Settings
) -> ChosenTrainings:
    """The trainings that narrow the interval of the job's answer most for their cost, and what is expected of them.

    Raises:
        InvalidInput: no law is about the space's models; recipe, data set or bounds are invalid; names the field.
        NotFound: no such job or target.
        Conflict: nothing measured is within the limits, or every measured candidate was trained in this way.
    """
    with database.read() as session:
        state = recommendation.read(session, principal, job_id, asked.target, asked.limits)
    if state.request is None:
        raise InvalidInput(f"job {job_id} has a request that this release cannot read", allowed="another job")
    if state.request.space.inherit is not None:
        raise InvalidInput(
            "the models of this job are parts of one, and no trainings from their beginning tell what cuts cost",
            field="job",
            value=job_id,
            allowed="another job; the model is healed with `edgefront train submit --candidate ID --inherit`",
        )
    base = law_for(space_of(state.request.space))
    if base is None or state.law is None:
        law_about(space_of(state.request.space))  # says why there is none
    assert isinstance(base, SharedLaw), "the law that comes first of a family is shared by tables"
    assert state.law is not None
    answer = state.recommendation()
    first, second = compared_models(state, answer)
    architectures = [Architecture.model_validate(each.architecture) for each in state.candidates]
    asked = asked.model_copy(update={"recipe": asked.recipe or default_recipe(architectures)})

    def planned(candidate: CandidateView) -> PlannedTrainings:
        return plan_trainings(database, principal, _training(asked, candidate), settings)

    how = planned(first).plan
    tokens = how.recipe.tokens_within(asked.budget.steps, asked.budget.tokens)
    budget = asked.budget.model_dump(mode="json", exclude_none=True)
    key = comparability_key(how.recipe, budget, how.dataset_digest, None)
    with database.read() as session:
        version = rows.newest_law(session, key, base.origin.name)
        refined = None if version is None else laws.named(session, laws.reference(version))
        trained = {model.digest for model in law_queries.trained_alike(session, key)}
        pace = paces.pace_on_device(session, how.device, how.gpus)
    law = refined if isinstance(refined, SharedLaw) else base
    if law.study.budgets:
        asked_budget = state.request if state.request.fields else TrainingBudget(train_tokens=tokens)
        law = laws.for_budget(law, asked_budget)
    candidates = list(
        {each.digest: each for each in state.candidates if each.latency_ms and each.digest not in trained}.values()
    )
    question = Question(law, _shapes([first, second]), _shapes(candidates), float(tokens))
    costs = [FLOPS * each.decoder_parameters * tokens for each in candidates]
    probes = choose(question, asked.trainings, costs, COST_WEIGHT)
    if not probes.chosen:
        raise Conflict("every measured candidate has been trained in this way already: there is nothing to learn more")
    chosen = [candidates[place] for place in probes.chosen]
    seconds = [None] * len(chosen) if pace is None else _seconds(chosen, _vocabulary(how, settings), pace, tokens)
    ratio = _ratio(law, first, second)
    middle, half = ratio.ratio, probes.half_widths[1]
    plan = ProbePlan(
        target_id=state.target_id,
        target=state.target,
        limits=state.limits,
        dataset=how.dataset,
        recipe=how.recipe.name,
        tokens=tokens,
        seconds=sum(each for each in seconds if each is not None) if pace is not None else None,
        before=ProbeAnswer(sentence=answer.sentence, ratio=_ratio(state.law, first, second)),
        expected=ratio.model_copy(update={"low": middle * np.exp(-half), "high": middle * np.exp(half)}),
        trainings=tuple(
            ProbeTraining(
                candidate_id=candidate.id,
                number=candidate.number,
                name=stack_in_words(candidate.architecture["blocks"]),
                decoder_parameters=candidate.decoder_parameters,
                seconds=duration,
            )
            for candidate, duration in zip(chosen, seconds, strict=True)
        ),
    )
    return ChosenTrainings(plan, tuple(planned(candidate) for candidate in chosen))


def compared_models(state: Known, answer: RecommendationView) -> tuple[CandidateView, CandidateView]:
    """The models on whose ratio the answer depends: the best searched one and the stock model; or, where no stock model
    is within the limits, the largest that was measured.
    """
    best, stock = answer.recommended, answer.baseline
    if best is None:
        raise Conflict(f"{answer.sentence} There is no answer yet that trainings could make surer.")
    if best.role == CandidateRole.BASELINE:
        searched = [each for each in state.candidates if each.role == CandidateRole.SEARCH and each.latency_ms]
        stock, best = best, max(searched, key=lambda each: each.proxy, default=None) if answer.runners_up else None
    if stock is None:
        measured = [each for each in state.candidates if each.role == CandidateRole.BASELINE and each.latency_ms]
        stock = max(measured, key=lambda each: (each.decoder_parameters, each.id), default=None)
    if best is None or stock is None:
        raise Conflict("one model alone was measured: there is nothing to compare it with")
    return best, stock


def _training(asked: ProbeRequest, candidate: CandidateView) -> TrainingRequest:
    return TrainingRequest(
        name=f"probe {candidate.number}",
        candidate=candidate.id,
        dataset=asked.dataset,
        recipe=asked.recipe,
        overrides=asked.overrides,
        licence=asked.licence,
        budget=asked.budget,
        requires=asked.requires,
        seed=asked.seed,
    )


def _vocabulary(how: TrainingPlan, settings: Settings) -> int | None:
    """Tokens of the data's vocabulary; None before it is prepared here."""
    if how.dataset_digest is None:
        return None
    return read_manifest(find_dataset(how.dataset, settings.data_folder, how.dataset_digest)).vocab_size


def _seconds(
    candidates: Sequence[CandidateView], vocab_size: int | None, pace: Pace, tokens: int
) -> list[float | None]:
    """Seconds of each candidate's training on so many tokens, with the vocabulary of its data where that is known."""
    described = [Architecture.model_validate(each.architecture) for each in candidates]
    if vocab_size is not None:
        described = [with_vocabulary(architecture, vocab_size) for architecture in described]
    return [float(seconds) for seconds in tokens * pace.seconds(Shapes.of(described))]


def _shapes(candidates: Sequence[CandidateView]) -> Shapes:
    return Shapes.of([Architecture.model_validate(each.architecture) for each in candidates])


def _ratio(law: QualityLaw, first: CandidateView, second: CandidateView) -> ProbeRatio:
    predicted = law.ratio(_shapes([first]), _shapes([second]))
    return ProbeRatio(
        candidate_id=first.id,
        reference_id=second.id,
        ratio=float(predicted.perplexity[0]),
        low=float(predicted.low[0]),
        high=float(predicted.high[0]),
        law=law.origin.name,
        label=law.label,
    )


def answer_of(state: Known) -> ProbeAnswer:
    """The job's answer as it is now, with the ratio of the two models that it compares, if it compares two."""
    answer = state.recommendation()
    try:
        pair = compared_models(state, answer)
    except Conflict:
        return ProbeAnswer(sentence=answer.sentence, ratio=None)
    return ProbeAnswer(sentence=answer.sentence, ratio=None if state.law is None else _ratio(state.law, *pair))
