"""Numbers of jobs, targets, launches, devices and trainings by state, for metrics and dashboards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.states import LIVE_TRAININGS, DeviceState, JobState, LaunchState, TargetState, TrainingState
from edgefront.core.store.clock import between
from edgefront.core.store.tables import Device, Job, Launch, Target, Training
from edgefront.core.store.tables.measurement import REPORTED


@dataclass(frozen=True)
class Overview:
    """Numbers of rows by state; 0 for states without rows."""

    jobs: dict[str, int]
    targets: dict[str, int]
    launches: dict[str, int]
    """Only live launches: the others have ended."""
    devices: dict[str, int]
    devices_online: int
    settling_lag_s: float
    """Age of the oldest report that is not settled; 0 if there is none."""
    reports_waiting: int
    """Reports that are not settled."""
    trainings: dict[str, int]
    trainings_wait_s: float
    """Time since the oldest of the queued trainings was submitted; 0 if there is none."""
    training_tokens_per_s: dict[str, float]
    """Device (cpu, cuda) → tokens a second of all running trainings together."""


def overview(session: Session, now: datetime) -> Overview:
    """Counts by indexed columns, cheap enough to be queried every few seconds."""
    return Overview(
        jobs=_by_state(session, Job.state, JobState),
        targets=_by_state(session, Target.state, TargetState),
        launches=_by_state(session, Launch.state, (LaunchState.WANTED, LaunchState.LEASED)),
        devices=_by_state(session, Device.state, DeviceState),
        devices_online=_count(
            session, between(Device.last_seen_at, now - ONLINE, now), Device.state != DeviceState.REVOKED
        ),
        settling_lag_s=_age_s(oldest_report(session), now),
        reports_waiting=_count(session, Launch.state == REPORTED),
        trainings=_by_state(session, Training.state, TrainingState),
        trainings_wait_s=_age_s(
            session.scalar(select(func.min(Training.created_at)).where(Training.state == TrainingState.QUEUED)), now
        ),
        training_tokens_per_s=_tokens_per_second(session),
    )


def oldest_report(session: Session) -> datetime | None:
    """When the oldest unsettled report arrived."""
    return session.scalar(select(func.min(Launch.finished_at)).where(Launch.state == REPORTED))


def _by_state(session: Session, column: InstrumentedAttribute[str], states: Iterable[str]) -> dict[str, int]:
    wanted = [str(state) for state in states]
    rows = session.execute(select(column, func.count()).where(column.in_(wanted)).group_by(column))
    return dict.fromkeys(wanted, 0) | {str(row[0]): row[1] for row in rows}


def _count(session: Session, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).where(*conditions)) or 0


def _tokens_per_second(session: Session) -> dict[str, float]:
    """Device → tokens a second of all running trainings on such, by their last reports."""
    speeds = {"cpu": 0.0, "cuda": 0.0}
    query = select(Training.device, Training.last_metric).where(Training.state.in_(LIVE_TRAININGS))
    for device, metric in session.execute(query):
        speeds[device] = speeds.get(device, 0.0) + ((metric or {}).get("tokens_per_s") or 0.0)
    return speeds


def _age_s(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0
