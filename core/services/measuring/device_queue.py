"""Leased and waiting launches of a device. For other owners' jobs only the number of launches is shown."""

from __future__ import annotations

from collections import Counter
from functools import partial

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from edgefront.core.schemas.service import DeviceWork, HeldLaunch, QueuedLaunches
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import can_read
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.stored import PROTOCOL, RowReader, described
from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target
from edgefront.core.store.tables.measurement import LEASED, WANTED

SHOWN = 50


def device_work(session: Session, principal: Principal, id_or_name: str) -> DeviceWork:
    """Returns the leased and the waiting launches of a device. `NotFound` if the device does not exist."""
    device = get_device(session, principal, id_or_name)
    own = _waiting(session, principal, key_of_device(device.id), of_class=False)
    shared = _waiting(session, principal, key_of_class(device.device_class), of_class=True)
    return DeviceWork(
        device_id=device.id,
        held=_held(session, principal, device.id),
        waiting=sum(entry.launches for entry in own),
        waiting_class=sum(entry.launches for entry in shared),
        queue=tuple(sorted([*own, *shared], key=lambda entry: -entry.launches)[:SHOWN]),
    )


def _held(session: Session, principal: Principal, device_id: str) -> tuple[HeldLaunch, ...]:
    """Returns the leased launches of a device, started launches first."""
    candidate = (
        select(Candidate.id)
        .where(Candidate.measurement_id == Launch.measurement_id, Candidate.target_id == Launch.target_id)
        .order_by(Candidate.number)
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(Launch, Measurement, Job, candidate)
        .join(Measurement, Measurement.id == Launch.measurement_id)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.device_id == device_id, Launch.state == LEASED)
        .order_by(Launch.started_at.is_(None), Launch.started_at, Launch.turn, Launch.id)
    )
    held = []
    for launch, measurement, job, candidate_id in session.execute(query):
        reader = RowReader()
        architecture = reader.read(partial(described, measurement.architecture)) or {}
        protocol = reader.read(partial(PROTOCOL.read, measurement.protocol))
        unreadable = reader.note() or ""
        seen = job is not None and can_read(principal, job.owner)
        held.append(
            HeldLaunch(
                launch_id=launch.id,
                purpose=launch.purpose,
                started_at=launch.started_at,
                digest=measurement.digest,
                architecture=architecture,
                runtime=unreadable if protocol is None else protocol.runtime,
                mode=unreadable if protocol is None else protocol.mode,
                job_id=job.id if seen else None,
                job_name=job.name if seen else None,
                candidate_id=candidate_id if seen else None,
            )
        )
    return tuple(held)


def _waiting(session: Session, principal: Principal, device_key: str, *, of_class: bool) -> list[QueuedLaunches]:
    """Returns the number of waiting launches of a device key, by job; other owners' launches are counted together."""
    query = (
        select(Job.id, Job.name, Job.owner, func.count())
        .select_from(Launch)
        .outerjoin(Target, Target.id == Launch.target_id)
        .outerjoin(Job, Job.id == Target.job_id)
        .where(Launch.state == WANTED, Launch.device_key == device_key)
        .group_by(Job.id, Job.name, Job.owner)
    )
    launches: Counter[tuple[str | None, str | None]] = Counter()
    for job_id, name, owner, count in session.execute(query):
        launches[(job_id, name) if owner is not None and can_read(principal, owner) else (None, None)] += count
    return [
        QueuedLaunches(job_id=job_id, job_name=name, of_class=of_class, launches=count)
        for (job_id, name), count in launches.items()
    ]
