"""Queries on the event log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Table, insert, select, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from core.store.tables import Event, Job

_EVENTS = cast(Table, Event.__table__)


def take_numbers(session: Session, job_id: str, count: int, now: datetime) -> int | None:
    """Draws `count` numbers under the job's row lock; returns the last one, or None if there is no such job."""
    last = session.scalar(
        update(Job)
        .where(Job.id == job_id)
        .values(last_event=Job.last_event + count, updated_at=now)
        .returning(Job.last_event),
        execution_options={"synchronize_session": False},
    )
    loaded = session.identity_map.get(session.identity_key(Job, job_id))
    if last is not None and loaded is not None:
        set_committed_value(loaded, "last_event", last)
        set_committed_value(loaded, "updated_at", now)
    return last


def add(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    # The table, not the class: nothing of the session's bookkeeping is wanted for rows that are only ever appended.
    session.execute(insert(_EVENTS), list(rows))


def after(session: Session, job_id: str, number: int, limit: int) -> list[Event]:
    """Events above `number`, in order."""
    return list(
        session.scalars(
            select(Event).where(Event.job_id == job_id, Event.number > number).order_by(Event.number).limit(limit)
        )
    )
