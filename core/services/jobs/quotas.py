"""What one owner has at once of jobs and launches, and whether more is allowed (`access.owners` says how much)."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.errors import BoundReached
from edgefront.core.services.access.owners import bounds_of
from edgefront.core.services.jobs.resolved import sizes_of
from edgefront.core.services.settings import OwnerSettings
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.states import ACTIVE_TARGETS, LIVE_JOBS
from edgefront.core.store.tables import Job, Launch, Target
from edgefront.core.store.tables.measurement import WANTED
from edgefront.core.wire.jobs import JobRequest


def check_bounds(session: Session, owner: str, request: JobRequest, bounds: OwnerSettings) -> None:
    """Raises `BoundReached` where a further job of the owner would exceed a bound; says which, and what to do.

    `bounds` are the settings, which hold for owners of whom an admin has said nothing else.
    """
    check_jobs(session, owner, bounds)
    check_launches(session, owner, len(request.targets) * _at_once(request), bounds)


def check_launches(session: Session, owner: str, asked: int, bounds: OwnerSettings) -> None:
    """Raises `BoundReached` where `asked` more launches at once could exceed what an owner's jobs may have waiting."""
    most, used = bounds_of(session, owner, bounds).waiting_launches, launches_at_once(session, owner)
    if used + asked > most:
        raise BoundReached(
            f"{used:,} launches of {owner!r} wait for devices, or may be asked for at once by running and paused jobs, "
            f"and this one would ask for {asked:,} at once; at most {most:,} may wait: choose smaller generations or "
            "fewer targets, cancel a job, wait, or ask an admin for more (owners.waiting_launches)",
            bound="owners.waiting_launches",
            used=used,
            most=most,
        )


def of_added_target(request: JobRequest) -> int:
    """How many launches a target that is added to a job asks for at once: its baselines', as it measures few others."""
    sizes = sizes_of(request)
    return sizes.baselines * sizes.baseline_launches


def _at_once(request: JobRequest) -> int:
    """How many launches each target of a job asks for at once at most."""
    sizes = sizes_of(request)
    return max(sizes.baselines * sizes.baseline_launches, sizes.generation)


def launches_at_once(session: Session, owner: str) -> int:
    """How many launches an owner's running and paused jobs have waiting, or may ask for at once if those are more."""
    waiting = {
        row[0]: row[1]
        for row in session.execute(
            select(Target.job_id, func.count())
            .join(Launch, Launch.target_id == Target.id)
            .join(Job, Job.id == Target.job_id)
            .where(Launch.state == WANTED, Job.owner == owner)
            .group_by(Target.job_id)
        )
    }
    targets: dict[str, list[int]] = {}
    requests = {}
    for job_id, request, position in session.execute(
        select(Job.id, Job.request, Target.position)
        .join(Target, Target.job_id == Job.id)
        .where(Job.owner == owner, Job.state.in_(LIVE_JOBS), Target.state.in_(ACTIVE_TARGETS))
    ):
        targets.setdefault(job_id, []).append(position)
        requests[job_id] = request
    for job_id, positions in targets.items():
        request = JOB_REQUEST.read_or(requests[job_id], None)
        if request is None:  # it ends when it is advanced
            continue
        own, added = _at_once(request), of_added_target(request)
        possible = sum(added if request.targets[position].added else own for position in positions)
        waiting[job_id] = max(waiting.get(job_id, 0), possible)
    return sum(waiting.values())


def check_jobs(session: Session, owner: str, bounds: OwnerSettings) -> None:
    """Raises `BoundReached` where the owner has as many live jobs as the bound allows."""
    used, most = running_jobs(session, owner), bounds_of(session, owner, bounds).running_jobs
    if used >= most:
        raise BoundReached(
            f"{owner!r} has {used:,} running or paused jobs, and at most {most:,} are allowed: cancel "
            "one, wait for one to finish, or ask an admin for more (owners.running_jobs)",
            bound="owners.running_jobs",
            used=used,
            most=most,
        )


def running_jobs(session: Session, owner: str) -> int:
    """Running and paused jobs of an owner."""
    query = select(func.count()).select_from(Job).where(Job.owner == owner, Job.state.in_(LIVE_JOBS))
    return session.scalar(query) or 0


def waiting_launches(session: Session, owner: str) -> int:
    """Launches that an owner's jobs asked for and that wait for devices."""
    query = (
        select(func.count())
        .select_from(Launch)
        .join(Target, Target.id == Launch.target_id)
        .join(Job, Job.id == Target.job_id)
        .where(Launch.state == WANTED, Job.owner == owner)
    )
    return session.scalar(query) or 0
