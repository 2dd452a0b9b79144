"""A target's progress: planned candidates, remaining time, whether it has a next step, and a note for users."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import ACTIVE_TARGETS, LIVE_LAUNCHES, CandidateState, JobState, Purpose, TargetState
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.search.interface import PREDICTED, SPREAD
from edgefront.core.services.fleet.capability import can_run, unsupported_reason
from edgefront.core.services.fleet.device_keys import parsed
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.resolved import sizes_of
from edgefront.core.services.stored import JOB_REQUEST, PROTOCOL
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Job, Target

RECENT = 5
"""Number of the latest launches that give the current pace."""


def planned(request: JobRequest | None, target: Target) -> int | None:
    """Expected number of candidates at the end, with baselines; None if unknown."""
    if target.state not in (TargetState.BASELINES, TargetState.SEARCHING):
        return target.candidates
    try:
        if request is None or request.targets[target.position].added:  # as many as predictions recommend
            return None
        sizes = sizes_of(request)
    except InvalidInput:  # an unknown space or algorithm
        return None
    return sizes.baselines + sizes.candidates


def refinement_budget(request: JobRequest, target: Target, baselines: int) -> int:
    """Maximum number of refinement launches of a target with this many baselines: a share of its candidates."""
    return int(request.budget.refinement * max(0, target.candidates - baselines))


def seconds_left(job: Job, request: JobRequest | None, target: Target, now: datetime) -> float | None:
    """Seconds to the end at the average pace, with all refinement launches, within the time budget. None if unknown."""
    if target.state not in ACTIVE_TARGETS:
        return 0.0
    total = planned(request, target)
    if request is None or total is None:
        return None
    if job.state != JobState.RUNNING or target.started_at is None or target.launches_done < 2:
        return None
    elapsed = max(0.0, (now - target.started_at).total_seconds())
    pace = elapsed / target.launches_done
    budget = refinement_budget(request, target, sizes_of(request).baselines)
    left = max(0, total - target.settled) + max(0, budget - target.refinements)
    seconds = left * pace
    if request.budget.minutes is not None:
        seconds = min(seconds, max(0.0, request.budget.minutes * 60 - elapsed))
    return seconds


def launches_in_time(session: Session, request: JobRequest, target: Target, now: datetime) -> int | None:
    """Number of launches within the rest of the job's minutes, at the slower of the target's average pace and that of
    its last `RECENT` launches: later models of a search may be larger. None without a time budget, or before the
    target's first launch.
    """
    began = job_queries.first_start(session, target)
    if request.budget.minutes is None or began is None or target.started_at is None or not target.launches_done:
        return None
    left = request.budget.minutes * 60 - (now - began).total_seconds()
    pace = (now - target.started_at).total_seconds() / target.launches_done
    before = demand.finished_before(session, target, RECENT)
    if before is not None:
        pace = max(pace, (now - before).total_seconds() / RECENT)
    return int(max(0.0, left) / max(1e-3, pace))


def out_of_time(session: Session, request: JobRequest, target: Target, now: datetime) -> bool:
    """Whether the job's minutes have passed since its first launch on the target's device, for any of its targets.
    Pauses do not count.
    """
    return request.budget.minutes is not None and is_spent(request, job_queries.first_start(session, target), now)


def is_spent(request: JobRequest, began: datetime | None, now: datetime) -> bool:
    """Whether the job's minutes have passed since its first launch on a device (`began`)."""
    minutes = request.budget.minutes
    return minutes is not None and began is not None and (now - began).total_seconds() >= minutes * 60


def has_next_step(session: Session, target: Target, now: datetime) -> bool:
    """Whether `search.advance` has a step to do for this target. Cheap: it is called in each transaction."""
    job = job_queries.find(session, target.job_id)
    if job is None or job.state != JobState.RUNNING or target.state not in ACTIVE_TARGETS:
        return False
    try:
        request = JOB_REQUEST.read(job.request)
        if out_of_time(session, request, target, now):
            return True
    except InvalidInput:  # `advance` ends the target and says why
        return True
    if target.state == TargetState.REFINING:
        return not demand.has_live_launch(session, target)
    if target.settled < target.candidates:
        return False
    if candidate_queries.any_waiting(session, target.id) or demand.has_live_launch(session, target, Purpose.REPEAT):
        return False
    return target.state != TargetState.BASELINES or baselines_complete(session, request, target)


def baselines_complete(session: Session, request: JobRequest, target: Target) -> bool:
    """Whether every baseline has its result and no further launch of a baseline is pending."""
    baselines = candidate_queries.baselines(session, target.id)
    if not baselines or any(baseline.state == CandidateState.WAITING for baseline in baselines):
        return False
    if demand.has_live_launch(session, target, Purpose.REPEAT):
        return False
    incomplete = [
        row.measurement_id
        for row in baselines
        if row.measurement_id and row.launches < sizes_of(request).baseline_launches
    ]
    counts = demand.launch_counts(session, incomplete)
    return not any(counts[id_][state] for id_ in incomplete for state in LIVE_LAUNCHES)


def note(
    job: Job,
    target: Target,
    device: str,
    online: int,
    facts: Sequence[Document],
    scoring: int = 0,
    blocked_device: tuple[str, bool] | None = None,
) -> str:
    """A note for users: why the target ended, that it is paused, or that no online agent can measure for it.

    `facts` are those of the devices online; empty if they were not queried. `scoring` is the number of models that wait
    for their scores. `blocked_device` is a device of the target without launches (`job_queries.blocked_devices`).
    """
    parts = [target.note] if target.note else []
    if target.state in ACTIVE_TARGETS:
        if job.state == JobState.PAUSED:
            parts.append("Paused.")
        elif scoring:
            parts.append(f"Scoring {scoring} model{'s' if scoring > 1 else ''} by {target.proxy} before measuring.")
        elif online == 0 and blocked_device is not None:
            name, in_quarantine = blocked_device
            state, remedy = ("in quarantine", "trust it again") if in_quarantine else ("draining", "activate it")
            parts.append(
                f"The device {name!r} is {state}, and no other is online for {_kind(target)} {device!r}: "
                f"its owner or an admin may {remedy}."
            )
        elif online == 0:
            parts.append(f"No agent online for {_kind(target)} {device!r}: waiting for one.")
        elif facts:
            parts.append(_unsupported_note(target, device, facts))
    return " ".join(text for text in parts if text)


def added_note(session: Session, request: JobRequest, target: Target) -> str:
    """How many of the job's candidates were measured for a target that was added later; empty for other targets."""
    if not request.targets[target.position].added:
        return ""
    own = [
        sibling.id
        for sibling in job_queries.targets(session, [target.job_id])
        if not request.targets[sibling.position].added
    ]
    every, measured = (
        candidate_queries.architectures_scored(session, own),
        candidate_queries.measured_by_operator(session, target.id),
    )
    return (
        f"Added to the job later: {sum(measured.values())} of its {every} candidates were measured here "
        f"({measured.get(SPREAD, 0)} spread out to learn from, {measured.get(PREDICTED, 0)} predicted to matter), the "
        "others only predicted."
    )


def _unsupported_note(target: Target, device: str, facts: Sequence[Document]) -> str:
    """A message that none of these devices can run the target's protocol; empty if one can."""
    protocol = PROTOCOL.read_or(target.protocol, None)
    if protocol is None or any(can_run(device_facts, protocol) for device_facts in facts):
        return ""
    reasons = sorted({unsupported_reason(device_facts, protocol) for device_facts in facts} - {""})
    because = f" ({reasons[0]})" if reasons else ""
    return (
        f"No agent online for {_kind(target)} {device!r} can measure {protocol.runtime} on {protocol.provider} in "
        f"{protocol.number_format}{because}: waiting for one that can, or for a restart of its agent."
    )


def _kind(target: Target) -> str:
    return parsed(target.device_key)[0]
