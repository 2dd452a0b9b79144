"""What a request for trainings would make, and whether its job's quality is of such trainings."""

from __future__ import annotations

from edgefront.core.quality.law import in_words
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import recommendation
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.plan import chosen_for, plan_for
from edgefront.core.states import KeyRole
from edgefront.core.store.database import Database
from edgefront.core.wire.jobs import NO_LIMITS, CandidateView, Limits
from edgefront.core.wire.recommendations import TrainingBudgetView
from edgefront.core.wire.trainings import OtherBudgetView, TrainingEstimate, TrainingRequest

MAX_FACTOR = 2.0
"""Budgets that differ by less recommend nearly the same: the Gemstones' best shapes move over decades of tokens."""


def estimate(
    database: Database,
    principal: Principal,
    request: TrainingRequest,
    settings: Settings,
    limits: Limits = NO_LIMITS,
) -> TrainingEstimate:
    """What the request would make, without storing it. Takes up to seconds.

    `limits` are those of what is recommended for trainings of that length; those that are not given are the target's.
    Raises as `submit_trainings` does, but not for what the owner has already.
    """
    principal.require(KeyRole.USER)
    with database.read() as session:
        chosen = chosen_for(session, principal, request)
    plan = plan_for(request, chosen, settings)
    tokens = plan.recipe.tokens_within(request.budget.steps, request.budget.tokens)
    candidates = [subject.candidate for subject in plan.subjects if subject.candidate is not None]
    other = None
    if candidates:
        first = candidates[0]  # all are of one target
        ids = [candidate.id for candidate in candidates]
        other = _other_budget(database, principal, first.job_id, first.target_id, ids, limits, tokens)
    return TrainingEstimate(
        trainings=len(plan.subjects),
        recipe=plan.recipe.name,
        dataset=plan.dataset,
        tokens=tokens,
        other_budget=other,
    )


def _other_budget(
    database: Database,
    principal: Principal,
    job_id: str,
    target_id: str,
    ids: list[str],
    limits: Limits,
    tokens: int,
) -> OtherBudgetView | None:
    own = recommendation.answer(database, principal, job_id, target_id, limits)
    if own.training is None or not _differs(own.training, tokens):
        return None
    best = recommendation.answer(database, principal, job_id, target_id, limits, tokens).recommended
    return OtherBudgetView(
        job_id=job_id,
        target_id=target_id,
        own=own.training.own,
        train_tokens=tokens,
        recommended=best,
        is_among=best is not None and best.id in ids,
        sentence=f"The job's quality is of models trained on {in_words(own.training.own)} tokens, and this training "
        f"sees at most {in_words(tokens)} tokens: {_instead(own.recommended, best, ids)}.",
    )


def _differs(training: TrainingBudgetView, tokens: int) -> bool:
    return max(tokens / training.own, training.own / tokens) > MAX_FACTOR


def _instead(before: CandidateView | None, best: CandidateView | None, ids: list[str]) -> str:
    if best is None:
        return "no measured model is within the limits"
    name = f"candidate {best.number} ({best.id})"
    if best.id in ids:
        return "for this length, too, " + ("it is the recommended model" if len(ids) == 1 else f"{name} is recommended")
    if before is not None and before.id == best.id:
        return f"{name} is recommended for either length"
    return f"for this length {name} is recommended instead"
