"""Queries on the event log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import Integer, Table, bindparam, select, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from edgefront.core.store.sql import Document, insert_rows
from edgefront.core.store.tables import Event, Job

_JOBS = cast(Table, Job.__table__)
_TAKE = (
    update(_JOBS)
    .where(_JOBS.c.id == bindparam("job"))
    .values(last_event=_JOBS.c.last_event + bindparam("count", type_=Integer), updated_at=bindparam("now"))
    .returning(_JOBS.c.last_event)
)


def take_numbers(session: Session, job_id: str, count: int, now: datetime) -> int | None:
    """Draws `count` numbers under the job's row lock; returns the last one, or None if there is no such job."""
    last: int | None = session.scalar(_TAKE, {"job": job_id, "count": count, "now": now})
    loaded = session.identity_map.get(session.identity_key(Job, job_id))
    if last is not None and loaded is not None:
        set_committed_value(loaded, "last_event", last)
        set_committed_value(loaded, "updated_at", now)
    return last


def add(session: Session, rows: Sequence[Document]) -> None:
    insert_rows(session, Event, rows)


def after(session: Session, job_id: str, number: int, limit: int) -> list[Event]:
    """Events above `number`, in order."""
    return list(
        session.scalars(
            select(Event).where(Event.job_id == job_id, Event.number > number).order_by(Event.number).limit(limit)
        )
    )
