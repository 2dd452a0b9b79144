"""Queries on anchors: each device's launches of the small fixed model.

Jobs may measure the same model on the same device: what is an anchor is said by the purpose of the launch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.states import LIVE_LAUNCHES, Purpose
from edgefront.core.store.any_of import any_of
from edgefront.core.store.tables import Device, Launch, Measurement
from edgefront.core.store.tables.measurement import WANTED

UNSUPPORTED = "unsupported"
"""The reason of a launch begins with it that the device turned out not to support."""


def candidates(session: Session, seen_since: datetime, enrolled_before: datetime) -> Sequence[Any]:
    """Devices that could measure now and have been enrolled for some time, by id: id, facts, reported_at, trusted_at,
    enrolled_at.
    """
    return session.execute(
        select(Device.id, Device.facts, Device.reported_at, Device.trusted_at, Device.enrolled_at)
        .where(
            Device.state == "active",
            Device.quarantine.is_(None),
            Device.last_seen_at > seen_since,
            Device.enrolled_at <= enrolled_before,
        )
        .order_by(Device.id)
    ).all()


def measurements(session: Session, digest: str, device_key: str) -> Sequence[Any]:
    """Of this model on a device, one by each protocol: id, protocol, protocol_digest."""
    return session.execute(
        select(Measurement.id, Measurement.protocol, Measurement.protocol_digest)
        .where(Measurement.digest == digest, Measurement.device_key == device_key)
        .order_by(Measurement.id)
    ).all()


def latest(session: Session, digest: str, device_keys: Collection[str], since: datetime) -> set[tuple[str, str]]:
    """The device keys that have an anchor launch from since then, or one to come, each with its protocol's digest."""
    rows = session.execute(
        select(Measurement.device_key, Measurement.protocol_digest)
        .join(Launch, Launch.measurement_id == Measurement.id)
        .where(
            Measurement.digest == digest,
            any_of(Measurement.device_key, device_keys),
            Launch.purpose == Purpose.ANCHOR,
            _is_recent(since),
        )
        .distinct()
    )
    return {(row.device_key, row.protocol_digest) for row in rows}


def has_one(session: Session, measurement_id: str, since: datetime) -> bool:
    """Whether this locked measurement has an anchor launch from since then, or one to come."""
    query = select(Launch.id).where(*_anchors_of([measurement_id]), _is_recent(since))
    return session.scalar(query.limit(1)) is not None


def _is_recent(since: datetime) -> ColumnElement[bool]:
    return or_(Launch.created_at > since, Launch.state.in_(LIVE_LAUNCHES))


def wanted(session: Session, digest: str, device_keys: Collection[str], before: datetime) -> Sequence[Any]:
    """Anchor launches of these device keys that nobody holds, made before then: id, device_key, protocol,
    protocol_digest, created_at.
    """
    return session.execute(
        select(Launch.id, Launch.device_key, Measurement.protocol, Measurement.protocol_digest, Launch.created_at)
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .where(
            Measurement.digest == digest,
            any_of(Launch.device_key, device_keys),
            Launch.purpose == Purpose.ANCHOR,
            Launch.state == WANTED,
            Launch.created_at < before,
        )
        .order_by(Launch.id)
    ).all()


def end_wanted(session: Session, launch_id: str, state: str, reason: str, device_id: str, now: datetime) -> None:
    """Ends an anchor launch that nobody holds; one that was taken meanwhile stays."""
    session.execute(
        update(Launch)
        .where(Launch.id == launch_id, Launch.state == WANTED)
        .values(state=state, reason=reason, device_id=device_id, finished_at=now),
        execution_options={"synchronize_session": False},
    )


def history(session: Session, measurement_id: str, most: int) -> Sequence[Any]:
    """The latest `most` done anchor launches of a measurement, newest first: id, finished_at, result, mark."""
    return session.execute(
        select(Launch.id, Launch.finished_at, Launch.result, Launch.mark)
        .where(*_anchors_of([measurement_id]), Launch.state == "done")
        .order_by(Launch.finished_at.desc(), Launch.id.desc())
        .limit(most)
    ).all()


def first_and_latest_done(session: Session, launch: Any, since: datetime, most: int) -> list[dict[str, Any]]:
    """Results of the first and the latest `most` done anchor launches of the same device, model and protocol as this
    one, which it leaves out, since then, oldest first.
    """
    query = (
        select(Launch.id, Launch.result)
        .where(
            *_anchors_of([launch.measurement_id]),
            Launch.state == "done",
            Launch.finished_at >= since,
            Launch.id != launch.id,
        )
        .limit(most)
    )
    first = session.execute(query.order_by(Launch.finished_at, Launch.id)).all()
    latest = session.execute(query.order_by(Launch.finished_at.desc(), Launch.id.desc())).all()
    results = {row.id: row.result for row in (*first, *reversed(latest))}
    return [result for result in results.values() if result is not None]


def failed_in_a_row(session: Session, measurement_ids: Collection[str], since: datetime, *, unsupported: bool) -> int:
    """How many of the latest finished anchor launches of these measurements, of one device, had no result that can be
    true, since then. `unsupported`: whether those count that the device turned out not to support.
    """
    of_them = _anchors_of(measurement_ids)
    if not unsupported:
        of_them += (or_(Launch.reason.is_(None), ~Launch.reason.startswith(UNSUPPORTED)),)
    last = session.scalar(select(func.max(Launch.finished_at)).where(*of_them, Launch.state == "done"))
    query = select(func.count()).where(
        *of_them, Launch.state.in_(("failed", "infeasible", "implausible")), Launch.finished_at >= since
    )
    return int(session.scalar(query if last is None else query.where(Launch.finished_at > last)) or 0)


def _anchors_of(measurement_ids: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return any_of(Launch.measurement_id, measurement_ids), Launch.purpose == Purpose.ANCHOR


def device(session: Session, device_id: str) -> Any:
    """Of one device: trusted_at, enrolled_at, drift, quarantine."""
    return session.execute(
        select(Device.trusted_at, Device.enrolled_at, Device.drift, Device.quarantine).where(Device.id == device_id)
    ).one()
