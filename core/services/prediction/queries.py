"""Queries on what is known of a device by a protocol."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.common.states import MeasurementState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Measurement

_NO_MORE = 1 << 30


class Extent(NamedTuple):
    """How much there is to learn from, and as of when: another measurement or launch changes it."""

    measurements: int
    launches: int
    latest: datetime | None


def extent(session: Session, device_key: str, protocol_digest: str) -> Extent:
    """Extent of the measurements of a device (class) by a protocol."""
    query = select(func.count(), func.sum(Measurement.launches), func.max(Measurement.measured_at))
    row = session.execute(query.where(*_there(device_key, protocol_digest))).one()
    return Extent(int(row[0]), int(row[1] or 0), row[2])


def measured(
    session: Session, device_key: str, protocol_digest: str, digests: Collection[str]
) -> dict[str, Measurement]:
    """Digest → its measurement there; of those with several seeds the one with most launches."""
    query = select(Measurement).where(*_there(device_key, protocol_digest), any_of(Measurement.digest, digests))
    rows = session.scalars(query.order_by(Measurement.launches, Measurement.id.desc()))
    return {row.digest: row for row in rows}


def launches_of(
    session: Session, device_key: str, protocol_digest: str, seed: int, digests: Collection[str]
) -> dict[str, int]:
    """Digest → launches that were made of it there with weights of this seed; many where no more will be."""
    rows = session.execute(
        select(Measurement.digest, Measurement.launches, Measurement.state).where(
            Measurement.device_key == device_key,
            Measurement.protocol_digest == protocol_digest,
            Measurement.seed == seed,
            any_of(Measurement.digest, digests),
        )
    )
    open_ = ("wanted", "measured", "unconfirmed")
    return {row.digest: row.launches if row.state in open_ else _NO_MORE for row in rows}


def protocols(session: Session, device_key: str, most: int) -> list[tuple[MeasurementProtocol, int]]:
    """The protocols by which most was measured there, and how many architectures by each."""
    count = func.count()
    groups = session.execute(
        select(func.min(Measurement.id), count)
        .where(Measurement.device_key == device_key, Measurement.state == MeasurementState.MEASURED)
        .group_by(Measurement.protocol_digest)
        .order_by(count.desc(), func.min(Measurement.id))
        .limit(most)
    )
    by_use = []
    for id_, measurements in groups.all():
        protocol = PROTOCOL.read_or(session.get_one(Measurement, id_).protocol, None)
        if protocol is not None:
            by_use.append((protocol, int(measurements)))
    return by_use


def _there(device_key: str, protocol_digest: str) -> tuple[ColumnElement[bool], ...]:
    return (
        Measurement.device_key == device_key,
        Measurement.protocol_digest == protocol_digest,
        Measurement.state == MeasurementState.MEASURED,
    )
