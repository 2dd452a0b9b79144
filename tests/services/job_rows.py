"""Rows of a job, as tests read them."""

from __future__ import annotations

from simulated_service import Service
from sqlalchemy import func, select

from edgefront.core.store.tables import Candidate, Launch


def candidates(service: Service, job_id: str, role: str = "search") -> list[Candidate]:
    with service.database.read() as session:
        query = select(Candidate).where(Candidate.job_id == job_id, Candidate.role == role)
        return list(session.scalars(query.order_by(Candidate.target_id, Candidate.number)))


def launches(service: Service, state: str | None = None) -> int:
    with service.database.read() as session:
        query = select(func.count()).select_from(Launch)
        return int(session.scalar(query if state is None else query.where(Launch.state == state)) or 0)
