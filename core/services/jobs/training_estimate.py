"""What a request for trainings would make, and whether its job's quality is of such trainings."""

from __future__ import annotations

from collections.abc import Sequence

from edgefront.core.quality.predictor import in_words
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import recommendation
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.plan import chosen_for, plan_for
from edgefront.core.states import KeyRole
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate
from edgefront.core.wire.candidates import CandidateView
from edgefront.core.wire.jobs import NO_LIMITS, Limits, TrainingBudget
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
        other = _other_budget(database, principal, candidates, limits, tokens)
    return TrainingEstimate(
        trainings=len(plan.subjects),
        recipe=plan.recipe.name,
        dataset=plan.dataset,
        tokens=tokens,
        other_budget=other,
    )


def _other_budget(
    database: Database, principal: Principal, candidates: Sequence[Candidate], limits: Limits, tokens: int
) -> OtherBudgetView | None:
    """The difference of candidates of one target, None where there is none."""
    first, ids = candidates[0], [candidate.id for candidate in candidates]
    own_tokens = (first.predicted or {}).get("train_tokens")
    if own_tokens is None or max(tokens / own_tokens, own_tokens / tokens) <= MAX_FACTOR:
        return None
    own = recommendation.answer(database, principal, first.job_id, first.target_id, limits)
    asked = TrainingBudget(train_tokens=tokens)
    best = recommendation.answer(database, principal, first.job_id, first.target_id, limits, asked).recommended
    return OtherBudgetView(
        job_id=first.job_id,
        target_id=first.target_id,
        own=own_tokens,
        train_tokens=tokens,
        recommended=best,
        is_among=best is not None and best.id in ids,
        sentence=f"The job's quality is of models trained on {in_words(own_tokens)} tokens, and this training sees at "
        f"most {in_words(tokens)} tokens: {_instead(own.recommended, best, ids)}.",
    )


def _instead(before: CandidateView | None, best: CandidateView | None, ids: list[str]) -> str:
    if best is None:
        return "no measured model is within the limits"
    name = f"candidate {best.number} ({best.id})"
    if best.id in ids:
        return "for this length, too, " + ("it is the recommended model" if len(ids) == 1 else f"{name} is recommended")
    if before is not None and before.id == best.id:
        return f"{name} is recommended for either length"
    return f"for this length {name} is recommended instead"
