"""What a device does now, and what waits for it. Other owners' jobs show only how many launches they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import owns
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device
from edgefront.core.services.fleet.devices import get_device
from edgefront.core.services.measuring.queries import device_queue as rows
from edgefront.core.services.stored import PROTOCOL, RowReader, described
from edgefront.core.wire.service import DeviceWork, HeldLaunch, QueuedLaunches

SHOWN = 50


def device_work(session: Session, principal: Principal, id_or_name: str) -> DeviceWork:
    """NotFound if there is no such device."""
    device = get_device(session, principal, id_or_name)
    own = rows.waiting(session, key_of_device(device.id))
    shared = rows.waiting(session, key_of_class(device.device_class))
    queue = [*_by_job(principal, own, of_class=False), *_by_job(principal, shared, of_class=True)]
    queue.sort(key=lambda entry: -entry.launches)
    return DeviceWork(
        device_id=device.id,
        held=tuple(_held(principal, row) for row in rows.held(session, device.id)),
        waiting=sum(row.launches for row in own),
        waiting_class=sum(row.launches for row in shared),
        queue=tuple(queue[:SHOWN]),
    )


def _held(principal: Principal, row: rows.Held) -> HeldLaunch:
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


def _by_job(principal: Principal, waiting: Sequence[rows.Waiting], *, of_class: bool) -> list[QueuedLaunches]:
    launches: Counter[tuple[str | None, str | None]] = Counter()
    for row in waiting:
        seen = row.owner is not None and owns(principal, row.owner)
        launches[(row.job_id, row.job_name) if seen else (None, None)] += row.launches
    return [
        QueuedLaunches(job_id=job_id, job_name=name, of_class=of_class, launches=count)
        for (job_id, name), count in launches.items()
    ]
