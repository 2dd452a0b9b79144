"""Models just beyond the limits: one launch excludes none, and an answer names those that are left there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy.orm import Session

from edgefront.core.pareto.options import UNITS, OptionLimits
from edgefront.core.services.jobs.queries import candidates, demand
from edgefront.core.services.jobs.rivals import best_of_job, bits_of, has_one_answer
from edgefront.core.services.stored import LIMITS
from edgefront.core.states import LIVE_LAUNCHES, Goal, LaunchState
from edgefront.core.store.tables import Candidate, Target
from edgefront.core.units import MB, rounded
from edgefront.core.wire.candidates import CandidateView
from edgefront.core.wire.jobs import JobRequest, Limits

MOST = 4
"""Models of a target that get a second launch because they are just beyond the limits: the nearest."""
NAMED = 3
"""And models that an answer names."""
LAUNCHES = 2


def excluded_once(session: Session, request: JobRequest, target: Target) -> list[str]:
    """Measurement ids of models that would change the answer, and that one launch alone put just beyond the limits."""
    near = _near(session, request, target)
    counts = demand.launch_counts(session, {str(row.measurement_id) for row in near})
    return [
        str(row.measurement_id)
        for row in near
        if sum(counts[str(row.measurement_id)].values()) - counts[str(row.measurement_id)][LaunchState.CANCELLED]
        < LAUNCHES
        and not any(counts[str(row.measurement_id)][state] for state in LIVE_LAUNCHES)
    ]


def _near(session: Session, request: JobRequest, target: Target) -> Sequence[Candidate]:
    limits = LIMITS.read(target.limits)
    score, ties = None, False
    if has_one_answer(request):
        best = best_of_job(session, target)
        score, ties = (float("-inf"), True) if best is None else (best.quality, bits_of(target) > best.bits)
    elif request.goal == Goal.BEST_WITHIN_LIMITS:
        answer = candidates.best_within_limits(session, target.id)
        score = float("-inf") if answer is None else answer.proxy
    return candidates.just_beyond(session, target.id, limits, MOST, score=score, ties=ties)


def in_words(near: Iterable[tuple[str, CandidateView]], limits: Limits) -> str:
    """A sentence that names models just beyond the limits; empty if there are none."""
    said = [f"{name}: {_beyond(candidate, limits)}" for name, candidate in near]
    return f"Better, but just beyond the limits: {'; '.join(said[:NAMED])}." if said else ""


def _beyond(candidate: CandidateView, limits: Limits) -> str:
    """`42.8 ms, one launch, 7 % beyond`: of the limit that it exceeds most."""
    values = {
        "latency_ms": candidate.latency_ms,
        "memory_mb": (candidate.memory_bytes or 0) / MB,
        "first_token_ms": candidate.first_token_ms,
        "token_ms": candidate.token_ms,
    }
    given = OptionLimits(**limits.model_dump()).given
    share, name = max(((values[name] or 0.0) / limit - 1, name) for name, limit in given.items())
    launches = "one launch" if candidate.launches == 1 else f"{candidate.launches} launches"
    return f"{rounded(values[name] or 0.0, 3)} {UNITS[name]}, {launches}, {rounded(max(0.1, 100 * share), 2)} % beyond"
