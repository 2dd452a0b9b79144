"""Counts of jobs, targets, launches, devices and trainings by state, for the endpoint `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from edgefront.core.common.states import LIVE_TRAININGS, DeviceState, JobState, LaunchState, TargetState, TrainingState
from edgefront.core.services import work
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.store.clock import between
from edgefront.core.store.tables import Device, Job, Launch, Target, Training
from edgefront.core.store.tables.measurement import REPORTED


class StateGauge(NamedTuple):
    """Prometheus gauge: one number for each value of a label, or a single number without a label."""

    name: str
    meaning: str
    label: str
    values: dict[str, float]


def overview(session: Session, now: datetime) -> list[StateGauge]:
    """Returns all gauges. Counts use indexes, so a scrape every few seconds is cheap."""
    open_launches = (LaunchState.WANTED, LaunchState.LEASED)
    by_state: tuple[tuple[str, str, tuple[InstrumentedAttribute[Any], Iterable[str]]], ...] = (
        ("jobs", "Jobs by state", (Job.state, JobState)),
        ("targets", "Targets by state", (Target.state, TargetState)),
        ("launches_open", "Launches that are requested or leased", (Launch.state, open_launches)),
        ("devices", "Devices by state", (Device.state, DeviceState)),
        ("trainings", "Trainings by state", (Training.state, TrainingState)),
    )
    online = (between(Device.last_seen_at, now - ONLINE, now), Device.state != DeviceState.REVOKED)
    queued = session.scalar(select(func.min(Training.created_at)).where(Training.state == TrainingState.QUEUED))
    lag_s, wait_s = _age_s(oldest_report(session), now), _age_s(queued, now)
    speed = "Tokens per second of all running trainings together, by their latest reports"
    speeds = {"cpu": 0.0, "cuda": 0.0}
    running = select(Training.device, Training.last_metric).where(Training.state.in_(LIVE_TRAININGS))
    for device, metric in session.execute(running):
        speeds[device] = speeds.get(device, 0.0) + ((metric or {}).get("tokens_per_s") or 0.0)
    single = (
        ("devices_online", "Devices seen within the last minute", _count(session, *online)),
        ("settling_lag_seconds", "Age of the oldest report that is not processed yet", lag_s),
        ("reports_waiting", "Reports that are not processed yet", _count(session, Launch.state == REPORTED)),
        ("training_wait_seconds", "Time since the oldest queued training was submitted", wait_s),
    )
    queues = work.queue_states(session, now)
    return [
        StateGauge(
            "queue_unserved_seconds",
            "Time since a worker took a message of the queue",
            "queue",
            {queue.label: queue.unserved_s for queue in queues},
        ),
        StateGauge(
            "queue_oldest_seconds",
            "Time since the oldest unclaimed work of the queue was requested",
            "queue",
            {queue.label: queue.oldest_s for queue in queues},
        ),
        *(StateGauge(name, text, "state", _by_state(session, *rows)) for name, text, rows in by_state),
        StateGauge("training_tokens_per_second", speed, "device", speeds),
        *(StateGauge(name, text, "", {"": value}) for name, text, value in single),
    ]


def oldest_report(session: Session) -> datetime | None:
    """Returns the arrival time of the oldest unprocessed report; None if all reports are processed."""
    return session.scalar(select(func.min(Launch.finished_at)).where(Launch.state == REPORTED))


def _by_state(session: Session, column: InstrumentedAttribute[Any], states: Iterable[str]) -> dict[str, float]:
    wanted = [str(state) for state in states]
    rows = session.execute(select(column, func.count()).where(column.in_(wanted)).group_by(column))
    return dict.fromkeys(wanted, 0) | {str(row[0]): row[1] for row in rows}


def _count(session: Session, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).where(*conditions)) or 0


def _age_s(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0
