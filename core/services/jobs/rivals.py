"""Jobs with one answer over all their targets: what one target has found saves the others launches.

The best published model within limits is looked for in every format and runtime. What another target of the same device
has within the same limits need not be beaten twice: there only better ones are looked for, and only the best of the job
is measured again.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from edgefront.core.measurement.variants import format_of
from edgefront.core.number_formats import BITS
from edgefront.core.search.interface import Rival
from edgefront.core.services.jobs.queries import candidates, jobs
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.states import Goal
from edgefront.core.store.tables import Target
from edgefront.core.wire.jobs import JobRequest


def has_one_answer(request: JobRequest) -> bool:
    """Whether the job looks for one model over all its targets, not for one on each."""
    return request.space.published is not None and request.goal == Goal.BEST_WITHIN_LIMITS


def rival_of(session: Session, target: Target) -> Rival | None:
    """The best that the job's other targets of this device have measured within the same limits."""
    best = max(_others(session, target), key=lambda other: other[1].rank, default=None)
    return None if best is None else best[1]


def target_ahead(session: Session, target: Target) -> Target | None:
    """The target with the best model within the limits, if that is better than this one's."""
    other, rival = max(_others(session, target), key=lambda other: other[1].rank, default=(None, None))
    own = _best(session, target)
    return other if rival is not None and (own is None or rival.rank > own.rank) else None


def _others(session: Session, target: Target) -> list[tuple[Target, Rival]]:
    others = [
        other
        for other in jobs.targets(session, [target.job_id])
        if other.id != target.id and other.device_key == target.device_key and other.limits == target.limits
    ]
    return [(other, rival) for other in others if (rival := _best(session, other)) is not None]


def _best(session: Session, target: Target) -> Rival | None:
    best = candidates.best_within_limits(session, target.id)
    if best is None:
        return None
    return Rival(best.digest, best.proxy, BITS[format_of(PROTOCOL.read(target.protocol))], target.name)
