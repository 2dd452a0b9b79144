"""What a target says of its search: why it ended, and what a person should know besides."""

from __future__ import annotations

from sqlalchemy.orm import Session

from edgefront.core.services.jobs.resolved import SearchPlan
from edgefront.core.services.measuring import remeasure
from edgefront.core.services.measuring.queries import launches
from edgefront.core.store.tables import Target

DISTURBED = 0.75
"""Share of the launches from which their conditions are worth a sentence."""


def joined(*texts: str) -> str:
    """Sentences in one line; empty ones are left out."""
    return " ".join(text for text in texts if text)


def opening(baselines: int, measured: int, plan: SearchPlan) -> str:
    """Note about the baselines and the algorithm."""
    without = baselines - measured
    note = f"{without} of {baselines} baselines could not be measured; the comparison uses the others."
    return joined(note if without else "", plan.algorithm.note)


def spent(budget: int | None, left: int | None, generations: int) -> str:
    """Which bound ended the search: that on candidates, of which `left` remain, or the algorithm's on generations."""
    if left is not None and left <= 0:
        return f"The budget of {budget:,} candidate{'' if budget == 1 else 's'} was spent."
    return f"All {generations:,} generations of the algorithm were made."


def ended(why: str) -> str:
    """`why` is a sentence."""
    return f"The search ended: {why[:1].lower()}{why[1:]}"


def closing(session: Session, target: Target) -> str:
    """The note of a target that has finished: why its search ended, and what makes its latencies uncertain."""
    return joined(
        target.note, _short_of_launches(session, target), _disturbed(*launches.conditions(session, target.id))
    )


def _short_of_launches(session: Session, target: Target) -> str:
    if not target.refinements or not remeasure.is_short_of_launches(session, target):
        return ""
    further = f"{target.refinements:,} further launch{'' if target.refinements == 1 else 'es'}"
    return f"The budget of {further} was spent while some latencies were still uncertain."


def _disturbed(done: int, marked: int) -> str:
    if marked < DISTURBED * max(1, done):
        return ""
    return (
        f"{marked:,} of {done:,} launches were made in disturbed conditions, such as other load on the device (a "
        "candidate's page lists them): their latencies are less certain."
    )
