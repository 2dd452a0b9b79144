"""Says before a training starts where its length is not the one that its job's quality is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.recipes.default import MODERN
from edgefront.core.recipes.recipe import Recipe

if TYPE_CHECKING:
    from edgefront.client import Client
    from edgefront.core.wire.trainings import TrainingRequest

MAX_FACTOR = 2.0
"""Budgets that differ by less recommend nearly the same: the Gemstones' best shapes move over decades of tokens."""


def budget_note(client: Client, request: TrainingRequest) -> str:
    """One sentence with what would be recommended instead; empty where the job's law knows one budget alone, where the
    budgets agree, and for what is no part of a job.
    """
    from edgefront.core.quality.law import in_words

    job, target = _job_of(client, request)
    if job is None:
        return ""
    answer = client.jobs.recommendation(job, target=target)
    if answer.training is None:
        return ""
    tokens, own = tokens_of(client, request), answer.training.own
    if tokens is None or max(tokens / own, own / tokens) <= MAX_FACTOR:
        return ""
    other = client.jobs.recommendation(job, target=target, train_tokens=tokens)
    before, after = answer.recommended, other.recommended
    instead = "the recommended model stays the same"
    if after is not None and (before is None or after.id != before.id):
        instead = f"by that budget {after.id} is recommended instead"
    return (
        f"the job's quality is of models trained on {in_words(own)} tokens, and this training sees at most "
        f"{in_words(tokens)}: {instead} (edgefront job recommend {job} --train-tokens {tokens})"
    )


def tokens_of(client: Client, request: TrainingRequest) -> int | None:
    """Tokens that a training by this request sees at most, its limit of hours apart; None where there is no such
    recipe.
    """
    recipes = {view.name: view for view in client.catalogue.recipes()}
    view = recipes.get(request.recipe or MODERN)
    if view is None:
        return None
    recipe = Recipe.parse(view.recipe).overridden(request.overrides)
    return recipe.tokens_within(request.budget.steps, request.budget.tokens)


def _job_of(client: Client, request: TrainingRequest) -> tuple[str | None, str | None]:
    """Job and target of what is to be trained."""
    if request.frontier is not None:
        return request.frontier.job, request.frontier.target
    if request.candidate is not None:
        candidate = client.candidates.get(request.candidate)
        return candidate.job_id, candidate.target_id
    return None, None
