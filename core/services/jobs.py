"""Jobs: create, look at, pause, resume, cancel, delete."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from core.services.keys import Principal
from core.wire.jobs import JobPage, JobRequest, JobView


def create_job(
    session: Session, principal: Principal, request: JobRequest, idempotency_key: str | None, now: datetime
) -> JobView:
    """Stores a job with its targets and sends `advance` for each.

    The same `idempotency_key` of the same owner with the same request answers with the job made then.

    Raises:
        InvalidInput: space, algorithm settings, baselines or a target make no sense; names the field.
        NotFound: no such device or device class.
        Conflict: the key was used with another request.
    """
    raise NotImplementedError


def get_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """The job with its targets' progress. NotFound if there is none or it is another owner's."""
    raise NotImplementedError


def list_jobs(
    session: Session, principal: Principal, now: datetime, *, cursor: str | None = None, limit: int = 50
) -> JobPage:
    """Jobs by falling age of creation, the newest first: one's own, or all for an admin."""
    raise NotImplementedError


def pause_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """No further launches; what is being measured is still taken in. Pausing a paused job changes nothing."""
    raise NotImplementedError


def resume_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """Goes on where it was paused. Conflict if the job has ended."""
    raise NotImplementedError


def cancel_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """Ends the job for good; keeps what it found. Cancelling a cancelled job changes nothing; Conflict if finished."""
    raise NotImplementedError


def delete_job(session: Session, principal: Principal, job_id: str, now: datetime) -> None:
    """Removes the job, its candidates and events. Measurements stay: they are knowledge of the devices."""
    raise NotImplementedError
