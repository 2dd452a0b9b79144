"""Incumbents: the best measured models so far, in jobs that look for a single model over all targets (devices).

A job that searches published models looks for the best model within the limits over all formats and runtimes. Targets
with the same device and limits share one answer and search one after another, in the order of the request. A target
skips models that cannot beat the incumbent, the best model of the other targets with this answer. Only the job's best
model is measured again, after all searches.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import Goal, TargetState
from edgefront.core.measurement.variants import format_of
from edgefront.core.schemas.jobs import JobRequest, Limits
from edgefront.core.search.interface import Incumbent
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.stored import LIMITS, PROTOCOL
from edgefront.core.store.tables import Target


def has_one_answer(request: JobRequest) -> bool:
    """Whether the job looks for a single model over all targets (devices), instead of one model per target."""
    return request.space.published is not None and request.goal == Goal.BEST_WITHIN_LIMITS


def incumbent_of(session: Session, target: Target) -> Incumbent | None:
    """Returns the best measured model of the job's other targets with this device and limits; None without a model."""
    return next((incumbent for other, incumbent in _ranked(session, target) if other is not target), None)


def is_searching(session: Session, target: Target, request: JobRequest, *, before: bool = False) -> bool:
    """Whether another target with this answer still searches; `before`: only targets before this one that a device can
    measure now.
    """
    return has_one_answer(request) and any(
        other is not target
        and other.state in (TargetState.BASELINES, TargetState.SEARCHING)
        and not (request.targets[other.position].added or request.targets[target.position].added)
        and (not before or (other.position < target.position and _is_measurable(session, other)))
        for other in _group(session, target)
    )


def _is_measurable(session: Session, target: Target) -> bool:
    protocol = PROTOCOL.read_or(target.protocol, None)
    devices = job_queries.devices_of(session, target.device_key)
    return protocol is not None and any(can_run(device.facts, protocol) for device in devices)


def target_ahead(session: Session, target: Target) -> Target | None:
    """Returns the target with equal device and limits whose best model is better or faster; None without one."""
    best = next((other for other, _ in _ranked(session, target)), target)
    return None if best is target else best


def best_of_job(session: Session, target: Target) -> Incumbent | None:
    """Returns the best model of this target and all targets with equal device and limits; None if there is no model."""
    return next((incumbent for _, incumbent in _ranked(session, target)), None)


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


def _ranked(session: Session, target: Target) -> list[tuple[Target, Incumbent]]:
    """Returns the targets with this answer, each with its best model: the best first, of equal ones the fastest."""
    bests = [
        (other, incumbent) for other in _group(session, target) if (incumbent := _best(session, other)) is not None
    ]
    return sorted(bests, key=lambda each: (each[1].rank, -each[1].latency_ms, each[0] is target), reverse=True)


def _group(session: Session, target: Target) -> list[Target]:
    """Returns the job's targets with this answer."""
    targets = job_queries.targets(session, [target.job_id])
    return [target if other.id == target.id else other for other in targets if _group_of(other) == _group_of(target)]


def _best(session: Session, target: Target) -> Incumbent | None:
    best = candidate_queries.best_within_limits(session, target.id)
    if best is None:
        return None
    return Incumbent(best.digest, best.proxy, bits_of(target), target.name, best.latency_ms or 0.0)
