"""The last lines of the agents' logs, as they send them."""

from __future__ import annotations

from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import queries as rows
from edgefront.core.services.fleet.devices import get_device, own_device
from edgefront.core.wire.agent import LogRequest
from edgefront.core.wire.service import DeviceLog, LoggedLine

KEPT = 500
"""Lines of each device."""


def add_lines(session: Session, device_id: str, request: LogRequest) -> None:
    """Stores what an agent has logged, and forgets what is older than its last `KEPT` lines."""
    own_device(session, device_id)
    rows.add_log_lines(session, device_id, request.lines, KEPT)


def read_log(
    session: Session, principal: Principal, id_or_name: str, *, after: int = 0, limit: int = KEPT
) -> DeviceLog:
    """The last `limit` lines above the number `after`, oldest first. NotFound if there is no such device."""
    device = get_device(session, principal, id_or_name)
    return DeviceLog(
        device_id=device.id,
        lines=tuple(
            LoggedLine(number=row.id, at=row.logged_at, level=row.level, message=row.message)
            for row in rows.last_log_lines(session, device.id, after, limit)
        ),
    )
