"""Numbers of rows by state."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.states import LIVE_TRAININGS, DeviceState, TrainingState
from edgefront.core.store.tables.device import Device
from edgefront.core.store.tables.job import Job, Target
from edgefront.core.store.tables.measurement import REPORTED, Launch
from edgefront.core.store.tables.training import Training


def jobs_by_state(session: Session) -> dict[str, int]:
    return _by(session, Job.state)


def targets_by_state(session: Session) -> dict[str, int]:
    return _by(session, Target.state)


def devices_by_state(session: Session) -> dict[str, int]:
    return _by(session, Device.state)


def launches_by_state(session: Session, states: Collection[str]) -> dict[str, int]:
    return _by(session, Launch.state, states)


def devices_seen_since(session: Session, since: datetime) -> int:
    count = session.scalar(
        select(func.count())
        .select_from(Device)
        .where(Device.last_seen_at >= since, Device.state != DeviceState.REVOKED)
    )
    return count or 0


def trainings_by_state(session: Session) -> dict[str, int]:
    return _by(session, Training.state)


def oldest_queued_training(session: Session) -> datetime | None:
    """When the training was submitted that has waited longest."""
    return session.scalar(select(func.min(Training.created_at)).where(Training.state == TrainingState.QUEUED.value))


def tokens_per_second(session: Session) -> dict[str, float]:
    """Device → tokens a second of all running trainings on such, by their last reports."""
    speeds = {"cpu": 0.0, "cuda": 0.0}
    query = select(Training.device, Training.last_metric).where(Training.state.in_(LIVE_TRAININGS))
    for device, metric in session.execute(query):
        speeds[device] = speeds.get(device, 0.0) + ((metric or {}).get("tokens_per_s") or 0.0)
    return speeds


def reports_waiting(session: Session) -> int:
    """Reports that are not settled yet."""
    return session.scalar(select(func.count()).select_from(Launch).where(Launch.state == REPORTED)) or 0


def oldest_report(session: Session) -> datetime | None:
    """When the oldest unsettled report arrived."""
    return session.scalar(select(func.min(Launch.finished_at)).where(Launch.state == REPORTED))


def _by(session: Session, column: InstrumentedAttribute[str], only: Collection[str] | None = None) -> dict[str, int]:
    query = select(column, func.count()).group_by(column)
    if only is not None:
        query = query.where(column.in_(only))
    return {row[0]: row[1] for row in session.execute(query)}
