"""Ownership of jobs, candidates and trainings: admins and viewers see all; another owner's rows appear not to exist.

What changes rows asks `Principal.require` too: a viewer changes nothing.
"""

from __future__ import annotations

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import NotFound
from edgefront.core.common.states import KeyRole
from edgefront.core.services.access.keys import Principal
from edgefront.core.store.tables import Candidate, Job, Target, Training


def owns(principal: Principal, owner: str) -> bool:
    """Whether the caller may read the owner's rows. Agents own nothing: their credential is for leases and
    reports.
    """
    return principal.role != KeyRole.AGENT and (principal.sees_all or principal.owner == owner)


def job_of(session: Session, principal: Principal, job_id: str) -> Job:
    """The job; NotFound if there is none or it is another owner's."""
    job = session.get(Job, job_id) if storable(job_id) else None
    if job is None or not owns(principal, job.owner):
        raise NotFound(f"no job {job_id!r}")
    return job


def target_of(session: Session, job: Job, target: str | None) -> Target:
    """A target of the job by id or name; the first one for None. NotFound lists the existing ones."""
    targets = select(Target).where(Target.job_id == job.id).order_by(Target.position)
    named = targets if target is None else targets.where(or_(Target.id == target, Target.name == target))
    row = session.scalar(named.limit(1)) if target is None or storable(target) else None
    if row is None:
        names = ", ".join(repr(row.name) for row in session.scalars(targets))
        raise NotFound(f"job {job.id} has no target {target!r}; it has {names}")
    return row


def target_by_id(session: Session, principal: Principal, target_id: str) -> tuple[Target, Job]:
    """The target and its job; NotFound if there is none or it is another owner's."""
    query = select(Target, Job).join(Job, Job.id == Target.job_id).where(Target.id == target_id)
    row = session.execute(query).first() if storable(target_id) else None
    if row is None or not owns(principal, row[1].owner):
        raise NotFound(f"no target {target_id!r}")
    return row[0], row[1]


def candidate_of(session: Session, principal: Principal, candidate_id: str) -> tuple[Candidate, Job]:
    """The candidate and its job; NotFound if there is none or it is another owner's."""
    query = select(Candidate, Job).join(Job, Job.id == Candidate.job_id).where(Candidate.id == candidate_id)
    row = session.execute(query).first() if storable(candidate_id) else None
    if row is None or not owns(principal, row[1].owner):
        raise NotFound(f"no candidate {candidate_id!r}")
    return row[0], row[1]


def training_of(session: Session, principal: Principal, training_id: str) -> Training:
    """The training; NotFound if there is none or it is another owner's."""
    training = session.get(Training, training_id) if storable(training_id) else None
    if training is None or not owns(principal, training.owner):
        raise NotFound(f"no training {training_id!r}")
    return training


def storable(text: str) -> bool:
    """Whether both databases can store this text."""
    # Postgres takes neither NUL nor half a surrogate pair in text, so nothing is stored under such a name.
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
