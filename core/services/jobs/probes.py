"""Probes of a job: the few small trainings that make its answer surest, and its move to the law that they refine.

The trainings are ordinary ones of the pool. A row remembers for which job they are made. Once all have ended and their
law is refitted, whoever notices first (the worker of the refit, or the sweep) requests the job's move, which is that of
`jobs.law`: nothing waits in between, and nothing is lost when processes end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

import numpy as np
from sqlalchemy.orm import Session

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import Conflict, InvalidInput, NotFound
from edgefront.core.proxies.quality_law import law_about
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.probes import Question, choose
from edgefront.core.quality.shared_law import SharedLaw
from edgefront.core.quality.shipped import law_for
from edgefront.core.recipes.default import default_recipe
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.idempotency import add_once, check_key, check_same, request_digest
from edgefront.core.services.jobs import law as job_law
from edgefront.core.services.jobs import recommendation
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.queries import probes as rows
from edgefront.core.services.jobs.recommendation import Known
from edgefront.core.services.quality import law_queries, laws
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST, PROBE_PLAN
from edgefront.core.services.trainings.claims import comparability_key
from edgefront.core.services.trainings.lifecycle import PlannedTrainings, create_planned, plan_trainings
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.formatting import stack_in_words
from edgefront.core.states import ENDED_TRAININGS, CandidateRole, KeyRole, ProbeState
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Probe, Training
from edgefront.core.wire.jobs import CandidateView
from edgefront.core.wire.probes import ProbeAnswer, ProbePlan, ProbeRatio, ProbeRequest, ProbeTraining, ProbeView
from edgefront.core.wire.recommendations import RecommendationView
from edgefront.core.wire.trainings import TrainingRequest

COST_WEIGHT = 0.5
"""Exponent of a training's FLOPs by which its gain is divided: five probes cost 0.2 to 0.7 of what five models drawn
at random cost, and the interval is at most a quarter wider than with 0 (LTS's tables, each left out).
"""
FLOPS = 6
"""FLOPs of a training for each token and decoder parameter (Kaplan et al. 2020, arXiv 2001.08361, §2.1)."""


# Starting ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chosen:
    """A plan with the trainings that it makes."""

    plan: ProbePlan
    trainings: tuple[PlannedTrainings, ...]


def start(
    database: Database,
    principal: Principal,
    job_id: str,
    asked: ProbeRequest,
    settings: Settings,
    idempotency_key: str | None = None,
) -> ProbeView:
    """Chooses the trainings, and stores them unless a plan alone is asked for. The same `idempotency_key` of the same
    owner with the same request returns what was started the first time.

    Raises:
        InvalidInput: no law is about the space's models; recipe, data set or bounds are invalid; names the field.
        NotFound: no such job or target.
        Conflict: nothing measured is within the limits, or trainings of the job are under way already.
        BoundReached: the owner has as many trainings as the admin allows.
    """
    principal.require(KeyRole.USER)
    digest = request_digest({"job": job_id, **asked.model_dump(mode="json", exclude_defaults=True)})
    with database.read() as session:
        former = None
        if idempotency_key is not None:
            check_key(idempotency_key)
            former = rows.find_by_key(session, principal.owner, idempotency_key)
        if former is None and not asked.dry_run:
            _check_none_open(session, job_of(session, principal, job_id))
    if former is not None:
        check_same(former.request_digest, digest, f"probe {former.id}")
        return view(database, principal, job_id)
    chosen = _choose(database, principal, job_id, asked, settings)
    if asked.dry_run:
        return ProbeView(**dict(chosen.plan), id=None, job_id=job_id, state=ProbeState.PLANNED)
    with database.write() as session:
        job = job_rows.lock_job(session, job_id) or job_of(session, principal, job_id)
        _store(session, principal, job, chosen, settings, (digest, idempotency_key), database.now(session))
    return view(database, principal, job_id)


def _store(
    session: Session,
    principal: Principal,
    job: Job,
    chosen: _Chosen,
    settings: Settings,
    request: tuple[str, str | None],
    now: datetime,
) -> None:
    """The probe with its trainings, under the job's lock. `request` is its digest and idempotency key."""
    digest, key = request
    probe = Probe(
        job_id=job.id, owner=principal.owner, request_digest=digest, idempotency_key=key, plan={}, created_at=now
    )

    def former() -> Probe | None:
        return None if key is None else rows.find_by_key(session, principal.owner, key)

    first = former()
    if first is None:
        _check_none_open(session, job)
        first = add_once(session, [probe], former)
    if first is not None:  # another request was faster with the same key
        check_same(first.request_digest, digest, f"probe {first.id}")
        return
    made = [create_planned(session, principal, each, settings, now)[0] for each in chosen.trainings]
    trainings = tuple(
        planned.model_copy(update={"training_id": training.id})
        for planned, training in zip(chosen.plan.trainings, made, strict=True)
    )
    plan = chosen.plan.model_copy(update={"trainings": trainings})
    probe.plan = PROBE_PLAN.versioned(plan.model_dump(mode="json"))
    session.flush()


def _check_none_open(session: Session, job: Job) -> None:
    probe = rows.newest(session, job.id)
    if probe is not None and probe.finished_at is None:
        raise Conflict(
            f"trainings of job {job.id} are under way already (probe {probe.id}): wait until they have ended, or "
            "cancel them"
        )


# Choosing ------------------------------------------------------------------------------------------------------------


def _choose(database: Database, principal: Principal, job_id: str, asked: ProbeRequest, settings: Settings) -> _Chosen:
    with database.read() as session:
        state = recommendation.read(session, principal, job_id, asked.target, asked.limits)
    if state.request is None:
        raise InvalidInput(f"job {job_id} has a request that this release cannot read", allowed="another job")
    base = law_for(space_of(state.request.space))
    if base is None or state.law is None:
        law_about(space_of(state.request.space))  # says why there is none
    assert isinstance(base, SharedLaw), "the law that comes first of a family is shared by tables"
    assert state.law is not None
    answer = state.recommendation()
    first, second = _pair(state, answer)
    architectures = [Architecture.model_validate(each.architecture) for each in state.candidates]
    asked = asked.model_copy(update={"recipe": asked.recipe or default_recipe(architectures)})

    def planned(candidate: CandidateView) -> PlannedTrainings:
        return plan_trainings(database, principal, _training(asked, candidate), settings)

    how = planned(first).plan
    tokens = how.recipe.tokens_within(asked.budget.steps, asked.budget.tokens)
    budget = asked.budget.model_dump(mode="json", exclude_none=True)
    manner = comparability_key(how.recipe, budget, how.dataset_digest, None)
    with database.read() as session:
        version = rows.newest_law(session, manner, base.origin.name)
        refined = None if version is None else laws.named(session, laws.reference(version))
        trained = {model.digest for model in law_queries.trained_alike(session, manner)}
        ended = rows.ended_on(session, how.device, how.gpus)
    paces = [FLOPS * each.decoder_parameters * each.tokens / each.seconds for each in ended]
    law = refined if isinstance(refined, SharedLaw) else base
    if law.study.budgets:
        asked_tokens = state.request.train_tokens
        law = replace(law, log_train_tokens=float(np.log(tokens if asked_tokens is None else asked_tokens)))
    candidates = list(
        {each.digest: each for each in state.candidates if each.latency_ms and each.digest not in trained}.values()
    )
    question = Question(law, _shapes([first, second]), _shapes(candidates), float(tokens))
    costs = [FLOPS * each.decoder_parameters * tokens for each in candidates]
    probes = choose(question, asked.trainings, costs, COST_WEIGHT)
    if not probes.chosen:
        raise Conflict("every measured candidate has been trained in this way already: there is nothing to learn more")
    seconds = [costs[place] / median(paces) if paces else None for place in probes.chosen]
    chosen = [candidates[place] for place in probes.chosen]
    ratio = _ratio(law, first, second)
    middle, half = ratio.ratio, probes.half_widths[1]
    plan = ProbePlan(
        target_id=state.target_id,
        target=state.target,
        limits=state.limits,
        dataset=how.dataset,
        recipe=how.recipe.name,
        tokens=tokens,
        seconds=sum(each for each in seconds if each is not None) if paces else None,
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
    return _Chosen(plan, tuple(planned(candidate) for candidate in chosen))


def _pair(state: Known, answer: RecommendationView) -> tuple[CandidateView, CandidateView]:
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
    )


# Reading -------------------------------------------------------------------------------------------------------------


def view(database: Database, principal: Principal, job_id: str) -> ProbeView:
    """The job's latest probe. NotFound if there is no such job, or it is another owner's, or it has none."""
    with database.read() as session:
        job = job_of(session, principal, job_id)
        probe = rows.newest(session, job.id)
        if probe is None:
            raise NotFound(f"job {job_id} has no probe: no trainings to make its answer surer were started")
        plan = PROBE_PLAN.read(probe.plan)
        trainings = rows.trainings(session, [each.training_id for each in plan.trainings if each.training_id])
        state = _state(probe, job, list(trainings.values()))
        after = None
        if state == ProbeState.DONE:
            after = recommendation.read(session, principal, job_id, plan.target_id, plan.limits)
    shown = []
    for each in plan.trainings:
        training = trainings.get(each.training_id or "")
        shown.append(each.model_copy(update={"state": None if training is None else training.state}))
    return ProbeView(
        **dict(plan) | {"trainings": tuple(shown)},
        id=probe.id,
        job_id=job_id,
        state=state,
        law=probe.law,
        reason=probe.reason,
        after=None if after is None else _answer(after),
        created_at=probe.created_at,
        finished_at=probe.finished_at,
    )


def _state(probe: Probe, job: Job, trainings: Sequence[Training]) -> ProbeState:
    if probe.finished_at is None:
        ended = all(training.state in ENDED_TRAININGS for training in trainings)
        return ProbeState.LEARNING if ended else ProbeState.TRAINING
    if probe.law is None:
        return ProbeState.FAILED
    return ProbeState.MOVING if job.wanted_law == probe.law else ProbeState.DONE


def _answer(state: Known) -> ProbeAnswer:
    answer = state.recommendation()
    try:
        pair = _pair(state, answer)
    except Conflict:
        return ProbeAnswer(sentence=answer.sentence, ratio=None)
    return ProbeAnswer(sentence=answer.sentence, ratio=None if state.law is None else _ratio(state.law, *pair))


# Moving --------------------------------------------------------------------------------------------------------------


def move_learnt(session: Session, now: datetime) -> None:
    """Requests the moves of the jobs whose trainings have ended and whose law was refitted; called after each refit,
    and by the sweep.
    """
    for probe in rows.open_probes(session):
        ids = _training_ids(probe)
        trainings = rows.trainings(session, ids)
        if any(training.state not in ENDED_TRAININGS for training in trainings.values()):
            continue
        learnt = dict(rows.manners(session, ids))
        if any(rows.is_refit_wanted(session, manner) for manner in set(learnt.values())):
            continue
        job = job_rows.lock_job(session, probe.job_id)
        still_open = rows.read_open(session, probe.id)
        if job is not None and still_open is not None:
            _finish(session, job, still_open, trainings, learnt, now)


def _finish(
    session: Session,
    job: Job,
    probe: Probe,
    trainings: Mapping[str, Training],
    learnt: Mapping[str, str],
    now: datetime,
) -> None:
    """`trainings` are all that there still are, by id; `learnt` the manner of those that ended with a perplexity."""
    asked = len(_training_ids(probe))
    probe.finished_at = now
    if not learnt:
        reasons = [f"{each.id} is {each.state}: {each.reason or 'no perplexity'}" for each in trainings.values()]
        probe.reason = f"no training ended with a perplexity: {'; '.join(reasons) or 'all were deleted'}"
        return
    request = JOB_REQUEST.read_or(job.request, None)
    base = None if request is None else law_for(space_of(request.space))
    version = None if base is None else rows.newest_law(session, next(iter(learnt.values())), base.origin.name)
    if version is None:
        probe.reason = "no law of the job's family could be refined by the trainings"
        return
    if len(learnt) < asked:
        probe.reason = f"{asked - len(learnt)} of {asked} trainings ended without a perplexity"
    probe.law = laws.reference(version)
    session.flush()
    job_law.request_move(session, job, probe.law, now)


def _training_ids(probe: Probe) -> list[str]:
    return [each.training_id for each in PROBE_PLAN.read(probe.plan).trainings if each.training_id]
