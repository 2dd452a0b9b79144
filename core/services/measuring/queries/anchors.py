"""Queries on anchors: each device's launches of the small fixed model.

Jobs may measure the same model on the same device: what is an anchor is said by the purpose of the launch.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.measuring.queries.launches import RESULT, ReportedLaunch
from edgefront.core.states import LIVE_LAUNCHES, DeviceState, LaunchState, Purpose
from edgefront.core.store.clock import between, is_ahead
from edgefront.core.store.sql import Document, any_of, typed
from edgefront.core.store.tables import Device, Launch, Measurement
from edgefront.core.store.tables.measurement import WANTED

UNSUPPORTED = "unsupported"
"""The reason of a launch begins with it that the device turned out not to support."""
_QUIET = {"synchronize_session": False}


class AnchoredDevice(NamedTuple):
    """A device that can measure its anchor."""

    id: str
    facts: Document


def candidates(
    session: Session, seen_since: datetime, enrolled_before: datetime, now: datetime
) -> list[AnchoredDevice]:
    """Devices that could measure now and have been enrolled for some time, by id."""
    query = (
        select(Device.id, Device.facts)
        .where(
            Device.state == DeviceState.ACTIVE,
            Device.quarantine.is_(None),
            between(Device.last_seen_at, seen_since, now),
            ~between(Device.enrolled_at, enrolled_before, now),
        )
        .order_by(Device.id)
    )
    return typed(AnchoredDevice, session.execute(query))


class AnchorMeasurement(NamedTuple):
    """The anchor by one protocol."""

    id: str
    protocol: Document
    protocol_digest: str


def measurements(session: Session, digest: str, device_key: str) -> list[AnchorMeasurement]:
    """Measurements of this model on a device, one by each protocol."""
    query = (
        select(Measurement.id, Measurement.protocol, Measurement.protocol_digest)
        .where(Measurement.digest == digest, Measurement.device_key == device_key)
        .order_by(Measurement.id)
    )
    return typed(AnchorMeasurement, session.execute(query))


def latest(
    session: Session, digest: str, device_keys: Collection[str], since: datetime, now: datetime
) -> set[tuple[str, str]]:
    """The device keys that have an anchor launch from since then, or one to come, each with its protocol's digest."""
    rows = session.execute(
        select(Measurement.device_key, Measurement.protocol_digest)
        .join(Launch, Launch.measurement_id == Measurement.id)
        .where(
            Measurement.digest == digest,
            any_of(Measurement.device_key, device_keys),
            Launch.purpose == Purpose.ANCHOR,
            _is_recent(since, now),
        )
        .distinct()
    )
    return {(row.device_key, row.protocol_digest) for row in rows}


def has_one(session: Session, measurement_id: str, since: datetime, now: datetime) -> bool:
    """Whether this locked measurement has an anchor launch from since then, or one to come."""
    query = select(Launch.id).where(*_anchors_of([measurement_id]), _is_recent(since, now))
    return bool(session.scalar(select(query.exists())))


def _is_recent(since: datetime, now: datetime) -> ColumnElement[bool]:
    return or_(between(Launch.created_at, since, now), Launch.state.in_(LIVE_LAUNCHES))


def cancel_left_alone(session: Session, device_keys: Collection[str], before: datetime, now: datetime) -> None:
    """Cancels anchor launches of these device keys, made before then, that nobody holds: the device may not be able to
    run them any more.
    """
    session.execute(
        update(Launch)
        .where(
            any_of(Launch.device_key, device_keys),
            Launch.purpose == Purpose.ANCHOR,
            Launch.state == WANTED,
            Launch.created_at < before,
        )
        .values(state=LaunchState.CANCELLED, reason="its device did not take it", finished_at=now),
        execution_options=_QUIET,
    )


class AnchorLaunch(NamedTuple):
    """A done launch of an anchor."""

    id: str
    finished_at: datetime
    result: LaunchResult
    mark: str | None


def history(session: Session, measurement_id: str, most: int) -> list[AnchorLaunch]:
    """The latest `most` done anchor launches of a measurement, newest first."""
    query = (
        select(Launch.id, Launch.finished_at, RESULT, Launch.mark)
        .where(*_anchors_of([measurement_id]), Launch.state == LaunchState.DONE)
        .order_by(Launch.finished_at.desc(), Launch.id.desc())
        .limit(most)
    )
    return typed(AnchorLaunch, session.execute(query))


def first_and_latest_done(session: Session, launch: ReportedLaunch, since: datetime, most: int) -> list[LaunchResult]:
    """Results of the first and the latest `most` done anchor launches of the same device, model and protocol as this
    one, which it leaves out, since then, oldest first.
    """
    query = select(Launch.id, RESULT).where(
        *_anchors_of([launch.measurement_id]),
        Launch.state == LaunchState.DONE,
        between(Launch.finished_at, since, launch.finished_at),
        Launch.id != launch.id,
    )
    first = session.execute(query.order_by(Launch.finished_at, Launch.id).limit(most)).all()
    latest = session.execute(query.order_by(Launch.finished_at.desc(), Launch.id.desc()).limit(most)).all()
    results = {row.id: row.result for row in (*first, *reversed(latest))}
    return [result for result in results.values() if result is not None]


def failed_in_a_row(
    session: Session, measurement_ids: Collection[str], since: datetime, now: datetime, *, unsupported: bool
) -> int:
    """How many of the latest finished anchor launches of these measurements, of one device, had no result that can be
    true, since then. `unsupported`: whether those count that the device turned out not to support.
    """
    of_them = (*_anchors_of(measurement_ids), between(Launch.finished_at, since, now))
    if not unsupported:
        of_them += (or_(Launch.reason.is_(None), ~Launch.reason.startswith(UNSUPPORTED)),)
    last = session.scalar(select(func.max(Launch.finished_at)).where(*of_them, Launch.state == LaunchState.DONE))
    query = select(func.count()).where(
        *of_them,
        Launch.state.in_((LaunchState.FAILED, LaunchState.INFEASIBLE, LaunchState.IMPLAUSIBLE)),
    )
    return int(session.scalar(query if last is None else query.where(Launch.finished_at > last)) or 0)


def _anchors_of(measurement_ids: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return any_of(Launch.measurement_id, measurement_ids), Launch.purpose == Purpose.ANCHOR


def trusted_since(session: Session, device_id: str, now: datetime) -> datetime:
    """From when on a device's anchors count: since it was trusted or enrolled; from now on where the clock was set back
    behind that.
    """
    row = session.execute(select(Device.trusted_at, Device.enrolled_at).where(Device.id == device_id)).one()
    since: datetime = row.trusted_at or row.enrolled_at
    if is_ahead(since, now):
        session.execute(update(Device).where(Device.id == device_id).values(trusted_at=now), execution_options=_QUIET)
        return now
    return since
