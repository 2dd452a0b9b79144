"""What one owner has at once of jobs and launches, and whether more is allowed (`access.owners` says how much)."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.errors import BoundReached
from edgefront.core.services.access.owners import bounds_of
from edgefront.core.services.jobs.plan import largest_generation
from edgefront.core.services.jobs.progress import BASELINE_LAUNCHES
from edgefront.core.services.settings import OwnerSettings
from edgefront.core.states import LIVE_JOBS
from edgefront.core.store.tables import Job, Launch, Target
from edgefront.core.store.tables.measurement import WANTED
from edgefront.core.wire.jobs import JobRequest


def check_bounds(session: Session, owner: str, request: JobRequest, bounds: OwnerSettings) -> None:
    """Raises `BoundReached` where a further job of the owner would exceed a bound; says which, and what to do.

    `bounds` are the settings, which hold for owners of whom an admin has said nothing else.
    """
    check_jobs(session, owner, bounds)
    bounds = bounds_of(session, owner, bounds)
    baselines, generation = largest_generation(request)
    asked = len(request.targets) * max(baselines * BASELINE_LAUNCHES, generation)
    used = waiting_launches(session, owner)
    if used + asked > bounds.waiting_launches:
        raise BoundReached(
            f"{used:,} launches of {owner!r} wait for devices and this job would ask for {asked:,} at once; at most "
            f"{bounds.waiting_launches:,} may wait: choose smaller generations or fewer targets, cancel a job, wait, "
            "or ask an admin for more (owners.waiting_launches)",
            bound="owners.waiting_launches",
            used=used,
            most=bounds.waiting_launches,
        )


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
