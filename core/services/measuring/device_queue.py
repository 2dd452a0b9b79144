"""What a device does now, and what waits for it. Other owners' jobs show only how many launches they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import owns
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.stored import PROTOCOL, RowReader, described
from edgefront.core.states import Purpose
from edgefront.core.store.sql import Document, typed
from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target
from edgefront.core.store.tables.measurement import LEASED, WANTED
from edgefront.core.wire.service import DeviceWork, HeldLaunch, QueuedLaunches


class Held(NamedTuple):
    """A launch that a device holds, with its job and candidate; None of launches of the service itself."""

    id: str
    purpose: Purpose
    started_at: datetime | None
    digest: str
    architecture: Document
    protocol: Document
    job_id: str | None
    job_name: str | None
    owner: str | None
    candidate_id: str | None


def held(session: Session, device_id: str) -> list[Held]:
    """The launches that a device holds, those that have started first."""
    candidate = (
        select(Candidate.id)
        .where(Candidate.measurement_id == Launch.measurement_id, Candidate.target_id == Launch.target_id)
        .order_by(Candidate.number)
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(
            Launch.id,
            Launch.purpose,
            Launch.started_at,
            Measurement.digest,
            Measurement.architecture,
            Measurement.protocol,
            Job.id.label("job_id"),
            Job.name.label("job_name"),
            Job.owner,
            candidate.label("candidate_id"),
        )
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.device_id == device_id, Launch.state == LEASED)
        .order_by(Launch.started_at.is_(None), Launch.started_at, Launch.turn, Launch.id)
    )
    return typed(Held, session.execute(query))


class Waiting(NamedTuple):
    """How many launches of a job wait."""

    job_id: str | None
    job_name: str | None
    owner: str | None
    launches: int


def waiting(session: Session, device_key: str) -> list[Waiting]:
    """Launches that wait under a device key, by job."""
    query = (
        select(Job.id.label("job_id"), Job.name.label("job_name"), Job.owner, func.count().label("launches"))
        .select_from(Launch)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.state == WANTED, Launch.device_key == device_key)
        .group_by(Job.id, Job.name, Job.owner)
    )
    return typed(Waiting, session.execute(query))


SHOWN = 50


def device_work(session: Session, principal: Principal, id_or_name: str) -> DeviceWork:
    """NotFound if there is no such device."""
    device = get_device(session, principal, id_or_name)
    own = waiting(session, key_of_device(device.id))
    shared = waiting(session, key_of_class(device.device_class))
    queue = [*_by_job(principal, own, of_class=False), *_by_job(principal, shared, of_class=True)]
    queue.sort(key=lambda entry: -entry.launches)
    return DeviceWork(
        device_id=device.id,
        held=tuple(_held(principal, row) for row in held(session, device.id)),
        waiting=sum(row.launches for row in own),
        waiting_class=sum(row.launches for row in shared),
        queue=tuple(queue[:SHOWN]),
    )


def _held(principal: Principal, row: Held) -> HeldLaunch:
    seen = row.owner is not None and owns(principal, row.owner)
    reader = RowReader()
    architecture = reader.read(lambda: described(row.architecture)) or {}
    protocol = reader.read(lambda: PROTOCOL.read(row.protocol))
    said = reader.note() or ""
    return HeldLaunch(
        launch_id=row.id,
        purpose=row.purpose,
        started_at=row.started_at,
        digest=row.digest,
        architecture=architecture,
        runtime=said if protocol is None else protocol.runtime,
        mode=said if protocol is None else protocol.mode,
        job_id=row.job_id if seen else None,
        job_name=row.job_name if seen else None,
        candidate_id=row.candidate_id if seen else None,
    )


def _by_job(principal: Principal, waiting: Sequence[Waiting], *, of_class: bool) -> list[QueuedLaunches]:
    launches: Counter[tuple[str | None, str | None]] = Counter()
    for row in waiting:
        seen = row.owner is not None and owns(principal, row.owner)
        launches[(row.job_id, row.job_name) if seen else (None, None)] += row.launches
    return [
        QueuedLaunches(job_id=job_id, job_name=name, of_class=of_class, launches=count)
        for (job_id, name), count in launches.items()
    ]
