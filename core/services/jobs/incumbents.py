"""Incumbents: the best measured models so far, in jobs that look for a single model over all targets (devices).

A job that searches published models looks for the best model within the limits over all formats and runtimes. Targets
with the same device and limits share one answer. A target skips models that cannot beat the incumbent, the best model
of the other targets with this answer. Only the job's best model is measured again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import Goal
from edgefront.core.measurement.variants import format_of
from edgefront.core.schemas.jobs import JobRequest, Limits
from edgefront.core.search.interface import Incumbent
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.stored import LIMITS, PROTOCOL
from edgefront.core.store.tables import Target


def has_one_answer(request: JobRequest) -> bool:
    """Whether the job looks for a single model over all targets (devices), instead of one model per target."""
    return request.space.published is not None and request.goal == Goal.BEST_WITHIN_LIMITS


def incumbent_of(session: Session, target: Target) -> Incumbent | None:
    """Returns the best measured model of the job's other targets with this device and limits; None without a model."""
    incumbents = (incumbent for _, incumbent in _others(session, target))
    return max(incumbents, key=lambda incumbent: incumbent.rank, default=None)


def target_ahead(session: Session, target: Target) -> Target | None:
    """Returns the target with equal device and limits whose best model beats this target's best; None without one."""
    other, incumbent = max(_others(session, target), key=lambda other: other[1].rank, default=(None, None))
    own = _best(session, target)
    return other if incumbent is not None and (own is None or incumbent.rank > own.rank) else None


def best_of_job(session: Session, target: Target) -> Incumbent | None:
    """Returns the best model of this target and all targets with equal device and limits; None if there is no model."""
    every = [_best(session, target), incumbent_of(session, target)]
    return max((best for best in every if best is not None), key=lambda best: best.rank, default=None)


def bits_of(target: Target) -> int:
    """Returns the bits per weight in the target's number format."""
    return BITS[format_of(PROTOCOL.read(target.protocol))]


def grouped_by_answer(targets: Sequence[Target]) -> list[list[Target]]:
    """Groups targets by answer: targets with equal device key and equal limits share one answer."""
    groups: dict[tuple[str, Limits], list[Target]] = {}
    for target in targets:
        groups.setdefault(_group_of(target), []).append(target)
    return list(groups.values())


def _group_of(target: Target) -> tuple[str, Limits]:
    return target.device_key, LIMITS.read(target.limits)


def _others(session: Session, target: Target) -> list[tuple[Target, Incumbent]]:
    siblings = job_queries.targets(session, [target.job_id])
    others = [other for other in siblings if other.id != target.id and _group_of(other) == _group_of(target)]
    return [(other, incumbent) for other in others if (incumbent := _best(session, other)) is not None]


def _best(session: Session, target: Target) -> Incumbent | None:
    best = candidate_queries.best_within_limits(session, target.id)
    if best is None:
        return None
    return Incumbent(best.digest, best.proxy, bits_of(target), target.name)
