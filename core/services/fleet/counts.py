"""Numbers of rows by state."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.store.tables.device import Device
from edgefront.core.store.tables.job import Job, Target
from edgefront.core.store.tables.measurement import REPORTED, Launch


def jobs_by_state(session: Session) -> dict[str, int]:
    return _by(session, Job.state)


def targets_by_state(session: Session) -> dict[str, int]:
    return _by(session, Target.state)


def devices_by_state(session: Session) -> dict[str, int]:
    return _by(session, Device.state)


def launches_by_state(session: Session, states: Collection[str]) -> dict[str, int]:
    return _by(session, Launch.state, states)


def devices_seen_since(session: Session, since: datetime) -> int:
    found = session.scalar(
        select(func.count()).select_from(Device).where(Device.last_seen_at >= since, Device.state != "revoked")
    )
    return found or 0


def oldest_report(session: Session) -> datetime | None:
    """When the oldest unsettled report arrived."""
    return session.scalar(select(func.min(Launch.finished_at)).where(Launch.state == REPORTED))


def _by(session: Session, column: InstrumentedAttribute[str], only: Collection[str] | None = None) -> dict[str, int]:
    query = select(column, func.count()).group_by(column)
    if only is not None:
        query = query.where(column.in_(only))
    return {row[0]: row[1] for row in session.execute(query)}
