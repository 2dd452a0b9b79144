"""A device that is enrolled again, revoked or quarantined: what its agent held goes to others, and costs no attempt."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring.queries import launches, leases
from edgefront.core.store.tables import Device
from edgefront.core.wire.agent import EnrolRequest, EnrolResponse


def enrol(session: Session, token_secret: str, request: EnrolRequest, now: datetime) -> EnrolResponse:
    """`fleet.devices.enrol`; a device that is taken over gives back what its old agent holds."""
    answer = devices.enrol(session, token_secret, request, now)
    end_leases(session, answer.device_id, now)
    return answer


def revoke_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """`fleet.devices.revoke_device`; what the device holds goes to others."""
    device = devices.revoke_device(session, principal, id_or_name, now)
    end_leases(session, device.id, now)
    return device


def end_leases(session: Session, device_id: str, now: datetime) -> None:
    """Ends the device's leases; their launches are wanted again, at no cost of attempts. The device may report on them
    until another one holds them.
    """
    leases.end_all(session, device_id, now)
    held = launches.lock_leased(session, launches.held_by(session, device_id))
    launches.transfer(session, [row.id for row in held])
    launches.release(session, [row.id for row in held], now)
