"""Queries on devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Double, Table, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.store.any_of import any_of
from edgefront.core.store.tables import Device, Launch


def find(session: Session, id_or_name: str) -> Device | None:
    """A device by id, else by name."""
    query = select(Device).where(or_(Device.id == id_or_name, Device.name == id_or_name))
    found = session.scalars(query).all()
    return next((device for device in found if device.id == id_or_name), found[0] if found else None)


def lock(session: Session, device_id: str) -> Device | None:
    query = select(Device).where(Device.id == device_id).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def lock_by_name(session: Session, name: str) -> Device | None:
    query = select(Device).where(Device.name == name).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def page(session: Session, after: str | None, limit: int) -> Sequence[Device]:
    """Devices by id, which is the order of their enrolment, from the one after `after`."""
    query = select(Device).order_by(Device.id).limit(limit)
    return session.scalars(query if after is None else query.where(Device.id > after)).all()


def leased_counts(session: Session, device_ids: Collection[str]) -> dict[str, int]:
    """Device id → number of launches that it holds; devices without any are left out."""
    rows = session.execute(
        select(Launch.device_id, func.count())
        .where(any_of(Launch.device_id, device_ids), Launch.state == "leased")
        .group_by(Launch.device_id)
    )
    return {str(device_id): count for device_id, count in rows}


@dataclass
class OwnDevice:
    """What is asked of a device with every lease and report."""

    id: str
    device_class: str
    state: str
    facts: dict[str, Any]
    last_seen_at: datetime | None


# Statements of the hot paths are made once: SQLAlchemy takes several times as long to make one as to run it.
_DEVICES = cast(Table, Device.__table__)
_OWN = select(*(_DEVICES.c[field.name] for field in fields(OwnDevice))).where(_DEVICES.c.id == bindparam("device"))
_SEEN = update(_DEVICES).where(_DEVICES.c.id == bindparam("device")).values(last_seen_at=bindparam("now"))
_FACTS = update(_DEVICES).where(_DEVICES.c.id == bindparam("device")).values(facts=bindparam("facts"))
_WORKED = _SEEN.values(
    busy_s=_DEVICES.c.busy_s + bindparam("busy", type_=Double),
    measuring_s=_DEVICES.c.measuring_s + bindparam("spent", type_=Double),
)


def own(session: Session, device_id: str) -> OwnDevice | None:
    row = session.execute(_OWN, {"device": device_id}).one_or_none()
    return None if row is None else OwnDevice(*row)


def write_facts(session: Session, device_id: str, facts: Mapping[str, Any]) -> None:
    session.execute(_FACTS, {"device": device_id, "facts": facts})


def seen(session: Session, device_id: str, now: datetime) -> None:
    session.execute(_SEEN, {"device": device_id, "now": now})


def worked(session: Session, device_id: str, now: datetime, busy_s: float, measuring_s: float) -> None:
    """Updates when the device was last seen, and adds the time that it worked since its last report."""
    session.execute(_WORKED, {"device": device_id, "now": now, "busy": busy_s, "spent": measuring_s})
