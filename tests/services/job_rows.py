"""Rows of a job, as tests read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from simulated_service import Service
from sqlalchemy import func, select

from edgefront.core.store.tables import Base, Candidate, Evaluation, Launch


def candidates(service: Service, job_id: str, role: str = "search") -> list[Candidate]:
    with service.database.read() as session:
        query = select(Candidate).where(Candidate.job_id == job_id, Candidate.role == role)
        return list(session.scalars(query.order_by(Candidate.target_id, Candidate.number)))


def count(service: Service, table: type[Base], **values: Any) -> int:
    """Rows with these values."""
    with service.database.read() as session:
        return int(session.scalar(select(func.count()).select_from(table).filter_by(**values)) or 0)


def launches(service: Service, state: str | None = None) -> int:
    return count(service, Launch, **({} if state is None else {"state": state}))


def evaluation(digest: str, value: float, now: datetime, **changes: Any) -> Evaluation:
    """What a training of ann's, with this digest, came to."""
    values = {"dataset": "letters", "split": "test", "metric": "perplexity", "details": {"recipe": "quick"}, **changes}
    return Evaluation(owner="ann", digest=digest, value=value, created_at=now, **values)
