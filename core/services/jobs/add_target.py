"""A target that is added to a job: another device for the candidates that the job has found."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from edgefront.core.errors import Conflict, InvalidInput
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.jobs.job_views import job_views
from edgefront.core.services.jobs.lifecycle import add_target
from edgefront.core.services.jobs.placement import Place, place_target
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.jobs.resolve import check_target
from edgefront.core.services.jobs.resolved import resolved
from edgefront.core.services.jobs.transitions import change_job
from edgefront.core.services.quality import laws
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.states import LIVE_JOBS, JobState, KeyRole
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Target
from edgefront.core.wire.jobs import AddedTargetRequest, JobRequest, JobView, TargetRequest

MAX_TARGETS = 16
"""Targets of a job, as when it is submitted."""


def extend_job(
    database: Database,
    principal: Principal,
    job_id: str,
    asked: AddedTargetRequest,
    in_reach: Callable[[JobRequest], None] | None = None,
) -> JobView:
    """Adds a target that measures the job's baselines and, of its candidates, about ten spread-out ones and those that
    are predicted to matter there. A finished job is running again. Planned before, in no transaction. `in_reach`
    refuses limits that nothing can meet there (`prediction.limits`).

    Raises:
        InvalidInput: the target makes no sense, or the job measures there by this protocol already; names the field.
        NotFound: no such job, device or device class.
        Conflict: the job was cancelled or has failed, or has as many targets as a job can have.
    """
    principal.require(KeyRole.USER)
    with database.read() as session:
        job = job_of(session, principal, job_id)
        _must_be_extensible(job)
        request = JOB_REQUEST.read(job.request)
        planned = resolved(request, laws.law_of(session, job, request))
    target = _target(planned.request, asked)
    check_target(planned, target, in_reach)
    with database.write() as session:
        job = job_of(session, principal, job_id)
        targets = job_rows.lock_targets(session, job.id)
        locked = job_rows.lock_job(session, job.id)
        if locked is None:  # deleted while we waited
            job = job_of(session, principal, job_id)
        _must_be_extensible(job)
        request = JOB_REQUEST.read(job.request)  # another target may have been added meanwhile
        if len(targets) >= MAX_TARGETS:
            raise Conflict(f"job {job.id} has {MAX_TARGETS} targets, which is the most that a job can have")
        place = place_target(session, target, [Place(existing.device_key, existing.name) for existing in targets])
        _refuse_twice(targets, place, target)
        _add(session, database, job, request, target, place, targets)
        return job_views(session, [job], database.now(session))[0]


def _target(request: JobRequest, asked: AddedTargetRequest) -> TargetRequest:
    first = request.targets[0]
    return TargetRequest(
        name=asked.name,
        device=asked.device,
        device_class=asked.device_class,
        protocol=asked.protocol or first.protocol,
        limits=asked.limits or first.limits,
        added=True,
    )


def _add(
    session: Session,
    database: Database,
    job: Job,
    request: JobRequest,
    target: TargetRequest,
    place: Place,
    others: list[Target],
) -> None:
    now = database.now(session)
    position = len(request.targets)
    extended = request.model_copy(update={"targets": (*request.targets, target)})
    job.request = extended.model_dump(mode="json")
    add_target(session, job, target, place, request, position, others[0].proxy_data)
    if job.state == JobState.FINISHED:
        job.finished_at = None
        change_job(session, job, JobState.RUNNING, None, now)
    else:
        job.updated_at = now


def _must_be_extensible(job: Job) -> None:
    if job.state not in (*LIVE_JOBS, JobState.FINISHED):
        raise Conflict(f"job {job.id} is {job.state} and cannot be extended: submit it again with the further target")


def _refuse_twice(targets: list[Target], place: Place, target: TargetRequest) -> None:
    for existing in targets:
        if (existing.device_key, existing.protocol_digest) == (place.device_key, target.protocol.digest):
            field, value = ("device", target.device) if target.device else ("device_class", target.device_class)
            raise InvalidInput(
                f"{field}: target {existing.name!r} of the job measures there by this protocol already",
                field=field,
                value=value,
                allowed="another device, device class or protocol",
            )
