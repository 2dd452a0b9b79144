"""What a device holds, and what waits for it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.states import Purpose
from edgefront.core.store.sql import Document, typed
from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target
from edgefront.core.store.tables.measurement import LEASED, WANTED


class Held(NamedTuple):
    """A launch that a device holds, with its job and candidate; None of launches of the service itself."""

    id: str
    purpose: Purpose
    started_at: datetime | None
    digest: str
    architecture: Document
    protocol: Document
    job_id: str | None
    job_name: str | None
    owner: str | None
    candidate_id: str | None


def held(session: Session, device_id: str) -> list[Held]:
    """The launches that a device holds, those that have started first."""
    candidate = (
        select(Candidate.id)
        .where(Candidate.measurement_id == Launch.measurement_id, Candidate.target_id == Launch.target_id)
        .order_by(Candidate.number)
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(
            Launch.id,
            Launch.purpose,
            Launch.started_at,
            Measurement.digest,
            Measurement.architecture,
            Measurement.protocol,
            Job.id.label("job_id"),
            Job.name.label("job_name"),
            Job.owner,
            candidate.label("candidate_id"),
        )
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.device_id == device_id, Launch.state == LEASED)
        .order_by(Launch.started_at.is_(None), Launch.started_at, Launch.turn, Launch.id)
    )
    return typed(Held, session.execute(query))


class Waiting(NamedTuple):
    """How many launches of a job wait."""

    job_id: str | None
    job_name: str | None
    owner: str | None
    launches: int


def waiting(session: Session, device_key: str) -> list[Waiting]:
    """Launches that wait under a device key, by job."""
    query = (
        select(Job.id.label("job_id"), Job.name.label("job_name"), Job.owner, func.count().label("launches"))
        .select_from(Launch)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.state == WANTED, Launch.device_key == device_key)
        .group_by(Job.id, Job.name, Job.owner)
    )
    return typed(Waiting, session.execute(query))
