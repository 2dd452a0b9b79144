"""Queries on devices: lookup, locks, facts, times of requests, and agent instances."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import cast

from sqlalchemy import Double, Table, Text, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.common.states import DeviceState, LaunchState
from edgefront.core.schemas.agent import EnrolRequest
from edgefront.core.services.fleet.device_keys import parsed
from edgefront.core.store import sql
from edgefront.core.store.sql import Document, PreparedStatement, any_of
from edgefront.core.store.tables import Device, Launch
from edgefront.core.store.tables.access import digest_of_facts
from edgefront.core.store.tables.base import UtcDateTime, new_id


def find(session: Session, id_or_name: str) -> Device | None:
    """Returns the device with this id, or otherwise the device with this name; None if there is no such device."""
    query = select(Device).where(or_(Device.id == id_or_name, Device.name == id_or_name))
    devices = session.scalars(query).all()
    return next((device for device in devices if device.id == id_or_name), devices[0] if devices else None)


def names(session: Session) -> list[str]:
    """Returns the names of all devices that are not revoked, sorted."""
    return list(session.scalars(select(Device.name).where(Device.state != DeviceState.REVOKED).order_by(Device.name)))


def name_of(session: Session, device_key: str) -> str:
    """Returns the name of the device or device class that the key names; for a deleted device the id."""
    kind, name = parsed(device_key)
    device = find(session, name) if kind == "device" else None
    return name if device is None else device.name


def lock(session: Session, device_id: str) -> Device | None:
    query = select(Device).where(Device.id == device_id).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def lock_by_name(session: Session, name: str) -> Device | None:
    query = select(Device).where(Device.name == name).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def insert_device(session: Session, request: EnrolRequest, owner: str, now: datetime) -> Device | None:
    """Inserts a new device and returns it; None if another device has the name."""
    device_id, facts = new_id("dev"), request.facts.model_dump(mode="json")
    statement = sql.upsert(session, Device).values(
        id=device_id,
        name=request.name,
        device_class=request.device_class,
        owner=owner,
        facts=facts,
        facts_digest=digest_of_facts(facts),
        enrolled_at=now,
    )
    session.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
    return session.get(Device, device_id)


def page(session: Session, after: str | None, limit: int) -> Sequence[Device]:
    """Returns up to `limit` devices after the id `after`. The order of ids is the order of enrolment."""
    query = select(Device).order_by(Device.id).limit(limit)
    return session.scalars(query if after is None else query.where(Device.id > after)).all()


def leased_counts(session: Session, device_ids: Collection[str]) -> dict[str, int]:
    """Device id → number of launches that the device has leased, for devices with leased launches."""
    rows = session.execute(
        select(Launch.device_id, func.count())
        .where(any_of(Launch.device_id, device_ids), Launch.state == LaunchState.LEASED)
        .group_by(Launch.device_id)
    )
    return {str(device_id): count for device_id, count in rows}


@dataclass
class OwnDevice:
    """Columns of a device row that every lease and every report of the device's agent reads."""

    id: str
    device_class: str
    state: DeviceState
    facts_digest: str | None
    last_seen_at: datetime | None
    quarantine: str | None = None
    reported_at: datetime | None = None
    instances: Document | None = None


# Statements of the hot path are built once, because SQLAlchemy needs several times longer to build than to run one.
_DEVICES = cast(Table, Device.__table__)
_OWN = PreparedStatement(
    select(*(_DEVICES.c[field.name] for field in fields(OwnDevice))).where(_DEVICES.c.id == bindparam("device"))
)
_SEEN = update(_DEVICES).where(_DEVICES.c.id == bindparam("device")).values(last_seen_at=bindparam("now"))
_FACTS = select(_DEVICES.c.facts).where(_DEVICES.c.id == bindparam("device"))
_LOCK_FACTS = _FACTS.with_for_update(key_share=True)
_SET_FACTS = (
    update(_DEVICES)
    .where(_DEVICES.c.id == bindparam("device"))
    .values(facts=bindparam("facts"), facts_digest=bindparam("digest"))
)
_INSTANCES = update(_DEVICES).where(_DEVICES.c.id == bindparam("device")).values(instances=bindparam("found"))
_WORKED = PreparedStatement(
    _SEEN.values(
        reported_at=bindparam("now", type_=UtcDateTime),
        busy_s=_DEVICES.c.busy_s + bindparam("busy", type_=Double),
        measuring_s=_DEVICES.c.measuring_s + bindparam("spent", type_=Double),
        conditions=bindparam("conditions", type_=Text),
    )
)


def own(session: Session, device_id: str) -> OwnDevice | None:
    return next((OwnDevice(*row) for row in _OWN.run(session, {"device": device_id})), None)


def facts_of(session: Session, device_id: str) -> Document:
    """Returns the facts that a device's agent reports. Leases do not read the facts, which take up to 64 kB."""
    facts: Document = session.execute(_FACTS, {"device": device_id}).scalar_one()
    return facts


def lock_facts(session: Session, device_id: str) -> Document:
    """Returns a device's facts, locked for a later `write_facts` in the same transaction."""
    facts: Document = session.execute(_LOCK_FACTS, {"device": device_id}).scalar_one()
    return facts


def write_facts(session: Session, device_id: str, facts: Document) -> None:
    session.execute(_SET_FACTS, {"device": device_id, "facts": facts, "digest": digest_of_facts(facts)})


def set_instances(session: Session, device_id: str, instances: Document) -> None:
    session.execute(_INSTANCES, {"device": device_id, "found": instances})


def set_conditions(session: Session, device_id: str, conditions: str) -> None:
    session.execute(update(_DEVICES).where(_DEVICES.c.id == device_id).values(conditions=conditions))


def seen(session: Session, device_id: str, now: datetime) -> None:
    session.execute(_SEEN, {"device": device_id, "now": now})


def worked(
    session: Session, device_id: str, now: datetime, busy_s: float, measuring_s: float, conditions: str | None
) -> None:
    """Sets the time of a device's latest result and its disturbed conditions, and adds to the working times (s)."""
    values = {"device": device_id, "now": now, "busy": busy_s, "spent": measuring_s, "conditions": conditions}
    _WORKED.run(session, values)
