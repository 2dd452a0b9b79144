"""Read access to jobs, candidates and trainings. Admins and viewers read all rows; other users only their own.

Rows of another owner raise `NotFound`. A use case that changes rows also calls `Principal.require`.
"""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import NotFound
from edgefront.core.common.states import KeyRole
from edgefront.core.services.access.keys import Principal
from edgefront.core.store.tables import Candidate, Job, Target, Training

_Row = TypeVar("_Row", Candidate, Target)


def can_read(principal: Principal, owner: str) -> bool:
    """Whether the caller may read the owner's rows. Agents may read no rows: they only lease and report launches."""
    return principal.role != KeyRole.AGENT and (principal.reads_all or principal.owner == owner)


def job_of(session: Session, principal: Principal, job_id: str) -> Job:
    """Returns the job. Raises `NotFound` for an unknown job or another owner's job."""
    job = session.get(Job, job_id) if is_storable(job_id) else None
    if job is None or not can_read(principal, job.owner):
        raise NotFound(f"no job {job_id!r}")
    return job


def target_of(session: Session, job: Job, target: str | None) -> Target:
    """Returns a target of the job by id or name; None: the first target. `NotFound` lists existing targets."""
    targets = select(Target).where(Target.job_id == job.id).order_by(Target.position)
    named = targets if target is None else targets.where(or_(Target.id == target, Target.name == target))
    row = session.scalar(named.limit(1)) if target is None or is_storable(target) else None
    if row is None:
        names = ", ".join(repr(row.name) for row in session.scalars(targets))
        raise NotFound(f"job {job.id} has no target {target!r}; it has {names}")
    return row


def target_by_id(session: Session, principal: Principal, target_id: str) -> tuple[Target, Job]:
    """Returns the target and its job. Raises `NotFound` for an unknown target or another owner's target."""
    return _with_job(session, principal, Target, target_id)


def candidate_of(session: Session, principal: Principal, candidate_id: str) -> tuple[Candidate, Job]:
    """Returns the candidate and its job. Raises `NotFound` for an unknown candidate or another owner's candidate."""
    return _with_job(session, principal, Candidate, candidate_id)


def _with_job(session: Session, principal: Principal, table: type[_Row], id_: str) -> tuple[_Row, Job]:
    query = select(table, Job).join(Job, Job.id == table.job_id).where(table.id == id_)
    row = session.execute(query).first() if is_storable(id_) else None
    if row is None or not can_read(principal, row[1].owner):
        raise NotFound(f"no {table.__name__.lower()} {id_!r}")
    return row[0], row[1]


def training_of(session: Session, principal: Principal, training_id: str) -> Training:
    """Returns the training. Raises `NotFound` for an unknown training or another owner's training."""
    training = session.get(Training, training_id) if is_storable(training_id) else None
    if training is None or not can_read(principal, training.owner):
        raise NotFound(f"no training {training_id!r}")
    return training


def is_storable(text: str) -> bool:
    """Whether PostgreSQL and SQLite can both store this text: PostgreSQL refuses NUL and lone surrogates."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
