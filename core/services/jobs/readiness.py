"""Whether a target has a next step to take."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput
from edgefront.core.services.jobs import progress
from edgefront.core.services.jobs.queries import candidates as candidate_rows
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.resolved import sizes_of
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.states import ACTIVE_TARGETS, LIVE_LAUNCHES, CandidateState, JobState, Purpose, TargetState
from edgefront.core.store.tables import Target
from edgefront.core.wire.jobs import JobRequest


def due(session: Session, target: Target, now: datetime) -> bool:
    """Whether `search.advance` has a step to do for this target. Cheap: it is called in each transaction."""
    job = job_rows.find(session, target.job_id)
    if job is None or job.state != JobState.RUNNING or target.state not in ACTIVE_TARGETS:
        return False
    try:
        request = JOB_REQUEST.read(job.request)
        if progress.out_of_time(session, request, target, now):
            return True
    except InvalidInput:  # `advance` ends the target and says why
        return True
    if target.state == TargetState.REFINING:
        return not demand.has_live_launch(session, target)
    if target.settled < target.candidates:
        return False
    if candidate_rows.any_waiting(session, target.id) or demand.has_live_launch(session, target, Purpose.REPEAT):
        return False
    return target.state != TargetState.BASELINES or baselines_complete(session, request, target)


def baselines_complete(session: Session, request: JobRequest, target: Target) -> bool:
    """Whether every baseline has its result, from as many launches as the job wants unless one failed, and none is
    launched again.
    """
    baselines = candidate_rows.baselines(session, target.id)
    if not baselines or any(baseline.state == CandidateState.WAITING for baseline in baselines):
        return False
    if demand.has_live_launch(session, target, Purpose.REPEAT):
        return False
    unsure = [
        row.measurement_id
        for row in baselines
        if row.measurement_id and row.launches < sizes_of(request).baseline_launches
    ]
    counts = demand.launch_counts(session, unsure)
    return not any(counts[id_][state] for id_ in unsure for state in LIVE_LAUNCHES)
