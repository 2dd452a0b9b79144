"""Jobs with one answer over all their targets: what one target has found saves the others launches.

The best published model within limits is looked for in every format and runtime. What another target of the same device
has within the same limits need not be beaten twice: there only better ones are looked for, and only the best of the job
is measured again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import Goal
from edgefront.core.measurement.variants import format_of
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.search.interface import Incumbent
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.stored import LIMITS, PROTOCOL
from edgefront.core.store.tables import Target


def has_one_answer(request: JobRequest) -> bool:
    """Whether the job looks for one model over all its targets, not for one on each."""
    return request.space.published is not None and request.goal == Goal.BEST_WITHIN_LIMITS


def incumbent_of(session: Session, target: Target) -> Incumbent | None:
    """The best that the job's other targets of this device have measured within the same limits."""
    return max(
        (incumbent for _, incumbent in _others(session, target)), key=lambda incumbent: incumbent.rank, default=None
    )


def target_ahead(session: Session, target: Target) -> Target | None:
    """The target with the best model within the limits, if that is better than this one's."""
    other, incumbent = max(_others(session, target), key=lambda other: other[1].rank, default=(None, None))
    own = _best(session, target)
    return other if incumbent is not None and (own is None or incumbent.rank > own.rank) else None


def best_of_job(session: Session, target: Target) -> Incumbent | None:
    """The best of the target and of the others that have one answer with it."""
    every = [_best(session, target), incumbent_of(session, target)]
    return max((best for best in every if best is not None), key=lambda best: best.rank, default=None)


def bits_of(target: Target) -> int:
    """Bits of a weight, as the target measures models."""
    return BITS[format_of(PROTOCOL.read(target.protocol))]


def together(targets: Sequence[Target]) -> list[list[Target]]:
    """The targets that have one answer together: those of one device (class) with the same limits, in their order."""
    groups: list[list[Target]] = []
    for target in targets:
        group = next((group for group in groups if _same_place(group[0], target)), None)
        if group is None:
            groups.append([target])
        else:
            group.append(target)
    return groups


def _same_place(target: Target, other: Target) -> bool:
    return target.device_key == other.device_key and LIMITS.read(target.limits) == LIMITS.read(other.limits)


def _others(session: Session, target: Target) -> list[tuple[Target, Incumbent]]:
    siblings = job_queries.targets(session, [target.job_id])
    others = [other for other in siblings if other.id != target.id and _same_place(other, target)]
    return [(other, incumbent) for other in others if (incumbent := _best(session, other)) is not None]


def _best(session: Session, target: Target) -> Incumbent | None:
    best = candidate_queries.best_within_limits(session, target.id)
    if best is None:
        return None
    return Incumbent(best.digest, best.proxy, bits_of(target), target.name)
