"""Use cases on jobs: submit, extend, get, list, pause, resume, cancel and delete."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, ErrorCollector, InvalidInput
from edgefront.core.common.states import (
    ACTIVE_TARGETS,
    LIVE_JOBS,
    JobEventKind,
    JobState,
    KeyRole,
    Purpose,
    TargetState,
)
from edgefront.core.schemas.jobs import MAX_TARGETS, AddedTargetRequest, JobPage, JobRequest, JobView, TargetRequest
from edgefront.core.services import event_log, tasks
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.cursor import newest_page
from edgefront.core.services.event_log import Entry
from edgefront.core.services.idempotency import add_once, check_key, check_same, request_digest
from edgefront.core.services.jobs import supernet_plan
from edgefront.core.services.jobs.job_views import job_views
from edgefront.core.services.jobs.placement import Placement, place_target, place_targets
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.resolve import resolve
from edgefront.core.services.jobs.resolved import ResolvedJob, check_target
from edgefront.core.services.jobs.transitions import change_job, end_job, end_targets
from edgefront.core.services.quality import laws
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.store.database import Database, enqueue
from edgefront.core.store.tables import Job, Target

MAX_PAGE = 200


def submit_job(
    database: Database,
    principal: Principal,
    request: JobRequest,
    validate_limits: Callable[[JobRequest], None],
    idempotency_key: str | None = None,
    settings: Settings | None = None,
) -> JobView:
    """Resolves a request, stores the job with its targets, and enqueues the first search step (`advance`) of each
    target.

    The request is resolved outside a transaction. A repeated request with the same `idempotency_key` returns the first
    request's job. `settings` locate the data for searches that train; by default they are read from the environment.
    `validate_limits` raises for limits that no model can meet (`prediction.estimates`).

    Raises:
        InvalidInput: space, algorithm settings, baselines or a target are invalid; the error names the field.
        NotFound: the device or device class does not exist.
        Conflict: the key was used with another request.
    """
    principal.require(KeyRole.USER)
    digest = request_digest(request.model_dump(mode="json"))
    if idempotency_key is not None:
        check_key(idempotency_key)
        with database.read() as session:
            former = job_queries.find_by_key(session, principal.owner, idempotency_key)
            if former is not None:
                return _same(session, former, digest, database.now(session))
    job = resolve(database, principal, request, settings).checked()
    validate_limits(job.request)
    with database.write() as session:
        return _create(session, principal, job, digest, idempotency_key, database.now(session))


def _create(
    session: Session,
    principal: Principal,
    resolved: ResolvedJob,
    digest: str,
    idempotency_key: str | None,
    now: datetime,
) -> JobView:
    """Stores a resolved job. `digest` is the digest of the client's original request, without defaults."""
    request = resolved.request
    errors = ErrorCollector()
    placements = place_targets(session, request, errors)
    errors.raise_first()
    job = Job(
        name=str(request.name),
        owner=principal.owner,
        request=request.model_dump(mode="json"),
        law=laws.document_to_keep(resolved.law),
        request_digest=digest,
        idempotency_key=idempotency_key,
        state=JobState.RUNNING,
        created_at=now,
        updated_at=now,
    )
    former = add_once(session, [job], lambda: job_queries.find_by_key(session, principal.owner, idempotency_key or ""))
    if former is not None:
        return _same(session, former, digest, now)
    for position, target in enumerate(request.targets):
        _add_target(session, job, target, placements[position], request, position)
    event_log.append(session, job.id, [Entry(JobEventKind.JOB_STATE, {"state": JobState.RUNNING, "reason": None})], now)
    return _view(session, job, now)


def _add_target(
    session: Session,
    job: Job,
    requested: TargetRequest,
    placement: Placement,
    request: JobRequest,
    position: int,
) -> None:
    """Stores a target of the job, and enqueues its first search step (`advance`)."""
    target = Target(
        job_id=job.id,
        position=position,
        name=placement.name,
        device_key=placement.device_key,
        protocol=requested.protocol.model_dump(mode="json"),
        protocol_digest=requested.protocol.digest,
        limits=requested.limits.model_dump(mode="json"),
        seed=target_seed(request.seed, position),
        proxy=request.proxy,
        state=TargetState.BASELINES,
    )
    session.add(target)
    session.flush()
    enqueue(session, tasks.ADVANCE, target_id=target.id)


def target_seed(job_seed: int, position: int) -> int:
    """Returns the 63-bit seed of a target's search, unrelated to the seeds of other targets and of adjacent jobs."""
    key = hashlib.sha256(f"edgefront/target/{job_seed}/{position}".encode("ascii")).digest()
    return int.from_bytes(key[:8], "big") >> 1


def extend_job(
    database: Database,
    principal: Principal,
    job_id: str,
    added: AddedTargetRequest,
    validate_limits: Callable[[JobRequest], None],
) -> JobView:
    """Adds a target to a job, and sets a finished job to running again.

    The new target measures the job's baselines, about ten widely different candidates of the job, and the candidates
    that are predicted to matter on the target's device. Checks run outside the transaction. `validate_limits` raises
    for limits that no model can meet on the device (`prediction.estimates`).

    Raises:
        InvalidInput: the target is invalid, or another target has the same device and protocol; the error names the
            field.
        NotFound: the job, device or device class does not exist.
        Conflict: the job was cancelled or has failed, or has `MAX_TARGETS` targets.
    """
    principal.require(KeyRole.USER)
    with database.read() as session:
        job = job_of(session, principal, job_id)
        _must_be(job, (*LIVE_JOBS, JobState.FINISHED), "extended: submit it again with the further target")
        request = JOB_REQUEST.read(job.request)
        resolved = ResolvedJob.of(request, laws.law_of(session, job, request))
    first = request.targets[0]
    target = TargetRequest(
        name=added.name,
        device=added.device,
        device_class=added.device_class,
        protocol=added.protocol or first.protocol,
        limits=added.limits or first.limits,
        added=True,
    )
    check_target(resolved, target, validate_limits)
    with database.write() as session:
        now = database.now(session)
        job, targets = _locked(session, principal, job_id)
        _must_be(job, (*LIVE_JOBS, JobState.FINISHED), "extended: submit it again with the further target")
        request = JOB_REQUEST.read(job.request)  # another target may have been added meanwhile
        if len(targets) >= MAX_TARGETS:
            raise Conflict(f"job {job.id} already has {MAX_TARGETS} targets, the maximum for a job")
        placement = place_target(session, target, [other.name for other in targets])
        for other in targets:
            if (other.device_key, other.protocol_digest) == (placement.device_key, target.protocol.digest):
                field, value = ("device", target.device) if target.device else ("device_class", target.device_class)
                raise InvalidInput(
                    f"{field}: target {other.name!r} of the job already measures by this protocol on this {field}",
                    field=field,
                    value=value,
                    allowed="another device, device class or protocol",
                )
        job.request = request.model_copy(update={"targets": (*request.targets, target)}).model_dump(mode="json")
        _add_target(session, job, target, placement, request, len(request.targets))
        if job.state == JobState.FINISHED:
            job.finished_at = None
            change_job(session, job, JobState.RUNNING, None, now)
        else:
            job.updated_at = now
        return _view(session, job, now)


def get_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """Returns the job with its targets' progress. Raises `NotFound` for an unknown job or another owner's job."""
    return _view(session, job_of(session, principal, job_id), now)


def list_jobs(
    session: Session,
    principal: Principal,
    now: datetime,
    *,
    state: JobState | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> JobPage:
    """Returns a page of jobs, newest first: the caller's own jobs, or all jobs for an admin or a viewer."""
    principal.require(KeyRole.USER, KeyRole.VIEWER)
    owner = None if principal.reads_all else principal.owner
    jobs, following = newest_page(session, Job, cursor, max(1, min(limit, MAX_PAGE)), owner=owner, state=state)
    return JobPage(items=tuple(job_views(session, jobs, now)), next_cursor=following)


def pause_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """Pauses a job: no further launches start, and running launches may still report. Idempotent."""
    job, targets = _locked(session, principal, job_id)
    if job.state == JobState.PAUSED:
        return _view(session, job, now)
    _must_be(job, LIVE_JOBS, "paused")
    withdrawn = demand.withdraw(session, [target.id for target in targets], now)
    # Launches that were not started are not charged: the resumed job requests them again.
    unspent = Counter(launch.target_id for launch in withdrawn if launch.purpose == Purpose.REFINEMENT)
    for target in targets:
        target.refinements -= unspent[target.id]
    supernet_plan.pause_or_resume(session, [target.id for target in targets], JobState.PAUSED, now)
    change_job(session, job, JobState.PAUSED, None, now)
    return _view(session, job, now)


def resume_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """Resumes a paused job. The pause does not count as search time. Raises `Conflict` if the job has ended."""
    job, targets = _locked(session, principal, job_id)
    if job.state == JobState.RUNNING:
        return _view(session, job, now)
    _must_be(job, LIVE_JOBS, "resumed")
    paused = job_queries.last_event_of_kind(session, job.id, JobEventKind.JOB_STATE)
    for target in targets:
        if target.state not in ACTIVE_TARGETS:
            continue
        if target.started_at is not None and paused is not None:
            target.started_at += now - max(paused.created_at, target.started_at)
        enqueue(session, tasks.ADVANCE, target_id=target.id)
    supernet_plan.pause_or_resume(session, [target.id for target in targets], JobState.RUNNING, now)
    change_job(session, job, JobState.RUNNING, None, now)
    return _view(session, job, now)


def cancel_job(session: Session, principal: Principal, job_id: str, now: datetime) -> JobView:
    """Ends the job permanently and keeps its results. Idempotent. Raises `Conflict` if the job is finished."""
    job, targets = _locked(session, principal, job_id)
    if job.state == JobState.CANCELLED:
        return _view(session, job, now)
    _must_be(job, LIVE_JOBS, "cancelled")
    end_targets(
        session, [target for target in targets if target.state in ACTIVE_TARGETS], TargetState.CANCELLED, "", now
    )
    end_job(session, job, JobState.CANCELLED, None, now)
    return _view(session, job, now)


def delete_job(session: Session, principal: Principal, job_id: str, now: datetime) -> None:
    """Deletes the job with its candidates and events. Measurements stay, because other jobs may reuse them."""
    job, targets = _locked(session, principal, job_id)
    withdrawn = demand.withdraw(session, [target.id for target in targets], now)
    demand.remove_launches(session, [launch.id for launch in withdrawn])
    supernet_plan.withdraw(session, [target.id for target in targets], now)
    unmeasured = demand.unmeasured(session, job.id)
    job_queries.remove(session, job.id)
    demand.forget_unmeasured(session, unmeasured)


def _locked(session: Session, principal: Principal, job_id: str) -> tuple[Job, list[Target]]:
    """Locks and returns the job and its targets, for a change by the job's owner."""
    principal.require(KeyRole.USER)
    job = job_of(session, principal, job_id)
    targets = job_queries.lock_targets(session, job.id)
    locked = job_queries.lock_job(session, job.id)
    if locked is None:  # deleted meanwhile
        return job_of(session, principal, job_id), []
    return locked, targets


def _must_be(job: Job, states: Sequence[JobState], action: str) -> None:
    if job.state not in states:
        raise Conflict(f"job {job.id} is {job.state} and cannot be {action}")


def _same(session: Session, former: Job, digest: str, now: datetime) -> JobView:
    check_same(former.request_digest, digest, f"job {former.id}")
    return _view(session, former, now)


def _view(session: Session, job: Job, now: datetime) -> JobView:
    return job_views(session, [job], now)[0]
