"""What a device holds, and what waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target
from edgefront.core.store.tables.measurement import LEASED, WANTED


def held(session: Session, device_id: str) -> Sequence[Any]:
    """The launches that a device holds, those that have started first, each with its job and candidate."""
    candidate = (
        select(Candidate.id)
        .where(Candidate.measurement_id == Launch.measurement_id, Candidate.target_id == Launch.target_id)
        .order_by(Candidate.number)
        .limit(1)
        .scalar_subquery()
    )
    return session.execute(
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
    ).all()


def waiting(session: Session, device_key: str) -> Sequence[Any]:
    """Launches that wait under a device key, by job: job_id, job_name, owner, launches."""
    return session.execute(
        select(Job.id.label("job_id"), Job.name.label("job_name"), Job.owner, func.count().label("launches"))
        .select_from(Launch)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.state == WANTED, Launch.device_key == device_key)
        .group_by(Job.id, Job.name, Job.owner)
    ).all()
