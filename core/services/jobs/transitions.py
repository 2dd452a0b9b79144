"""State changes of targets and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.states import ACTIVE_TARGETS, LIVE_JOBS, CandidateState, JobEventKind, JobState, TargetState
from edgefront.core.services import event_log
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs.frontier import candidate_entry
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.supernet_plan import withdraw as withdraw_supernets
from edgefront.core.store.tables import Job, Target


def change_state(session: Session, target: Target, state: TargetState, note: str, now: datetime) -> None:
    """Sets a target's state and note, and appends the change to the job's event log."""
    target.state, target.note = state, note
    event_log.append(
        session, target.job_id, [Entry(JobEventKind.TARGET_STATE, {"state": state, "note": note}, target.id)], now
    )


def end_target(session: Session, target: Target, state: TargetState, note: str, now: datetime) -> None:
    """Ends a target as finished, failed or cancelled. Ends also the job if no other target is active."""
    end_targets(session, [target], state, note, now)
    job = job_queries.lock_job(session, target.job_id)
    if job is None or job.state not in LIVE_JOBS:
        return
    states = job_queries.target_states(session, job.id)
    if any(target_state in ACTIVE_TARGETS for target_state in states.values()):
        return
    failed = [other.name for other in job_queries.targets(session, [job.id]) if states[other.id] == TargetState.FAILED]
    if len(failed) == len(states):
        reason = note if len(states) == 1 else f"All {len(states)} targets failed."
        end_job(session, job, JobState.FAILED, reason, now)
    else:
        end_job(session, job, JobState.FINISHED, f"Failed on: {', '.join(failed)}." if failed else None, now)


def end_targets(session: Session, targets: Sequence[Target], state: TargetState, note: str, now: datetime) -> None:
    """Ends locked targets. Withdraws launches that no other target needs, and cancels candidates without a result."""
    demand.withdraw(session, [target.id for target in targets], now)
    withdraw_supernets(session, [target.id for target in targets], now)
    for target in targets:
        target.finished_at = now
        waiting = candidate_queries.waiting(session, target.id)
        for candidate in waiting:
            candidate.state = CandidateState.CANCELLED
        candidate_queries.write(session, waiting)
        event_log.append(session, target.job_id, [candidate_entry(candidate) for candidate in waiting], now)
        change_state(session, target, state, note, now)


def end_job(session: Session, job: Job, state: JobState, reason: str | None, now: datetime) -> None:
    """Sets a job's final state and finish time, and appends the change to the event log."""
    job.finished_at = now
    change_job(session, job, state, reason, now)


def change_job(session: Session, job: Job, state: JobState, reason: str | None, now: datetime) -> None:
    """Sets a job's state and reason, and appends the change to the event log."""
    job.state, job.reason, job.updated_at = state, reason, now
    event_log.append(session, job.id, [Entry(JobEventKind.JOB_STATE, {"state": state, "reason": reason})], now)
