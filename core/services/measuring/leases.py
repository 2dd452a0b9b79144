"""Leases: how devices keep launches that they have claimed (`launches.claim`), and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, Gone, NotFound
from edgefront.core.common.states import DeviceState, LaunchState
from edgefront.core.schemas.agent import EnrolRequest, EnrolResponse, HeartbeatResponse
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices as fleet
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import leases as rows
from edgefront.core.store.clock import elapsed_s, is_ahead
from edgefront.core.store.tables import Device, Launch

SEEN_INTERVAL = timedelta(seconds=20)
"""`last_seen_at` is written no more often than this by leases and heartbeats."""

LIMITS_PER_LAUNCH = 2.0
ROOM_S = 600.0
"""A launch may take so many times its time limit and so much longer: an agent may first wait some minutes for better
conditions, for the weights, and for other agents on its host.
"""


def seen(session: Session, device_id: str, last: datetime | None, now: datetime) -> None:
    """Notes that the device was seen, if the last note is older than `SEEN_INTERVAL`."""
    # After everything that may wait for a target: reports hold targets when they come to the device's row.
    if last is None or elapsed_s(last, now) > SEEN_INTERVAL.total_seconds():
        device_queries.seen(session, device_id, now)


def start(session: Session, device_id: str, launch_id: str, fence: int, now: datetime) -> None:
    """The agent starts an item: if it dies from here on, that costs the item an attempt.

    Raises:
        NotFound: no such launch; its job was deleted.
        Conflict: it is not leased to this device under this fence, or the lease has run out, or no job wants it any
            more: leave it and continue with the next.
    """
    if rows.start(session, device_id, launch_id, fence, now):
        return
    launch = session.get(Launch, launch_id)
    if launch is None:
        raise NotFound(f"no launch {launch_id}")
    if launch.state == LaunchState.CANCELLED:
        raise Conflict("no running job wants this launch any more", state=launch.state)
    if launch.state != LaunchState.LEASED or launch.device_id != device_id or launch.fence != fence:
        raise Conflict("this launch is not, or no longer, leased to this device", state=launch.state)
    raise Conflict("the lease of this launch has run out", state=launch.state)


def heartbeat(session: Session, device_id: str, lease_id: str, now: datetime, ttl_s: float) -> HeartbeatResponse:
    """Extends a lease by `ttl_s` from now, and names those of its launches that are no longer wanted. The lease of a
    device that has had no result for longer than one launch may take ends here.

    Raises:
        NotFound: no such lease of this device.
        Gone: it has ended or run out, and does not come back to life; what was measured may be reported all the same.
    """
    extended = rows.extend(session, device_id, lease_id, now, now + timedelta(seconds=ttl_s))
    if extended is None:
        lease = rows.find(session, device_id, lease_id)
        if lease is None:
            raise NotFound(f"no lease {lease_id}")
        ended = lease.ended_at or lease.expires_at
        raise Gone(f"this lease ended at {ended:%Y-%m-%d %H:%M:%S} UTC; report what was measured all the same")
    expires_at = extended.expires_at
    if _is_overdue(session, device_id, extended, now):
        rows.expire(session, lease_id, now)
        expires_at = now
    seen(session, device_id, extended.last_seen_at, now)
    return HeartbeatResponse(
        expires_at=expires_at,
        state=DeviceState.DRAINING if extended.state == DeviceState.DRAINING else DeviceState.ACTIVE,
        cancelled=tuple(sorted((extended.withdrawn or "").split())),
    )


def _is_overdue(session: Session, device_id: str, lease: Row[Any], now: datetime) -> bool:
    since = lease.created_at
    if lease.reported_at is not None and not is_ahead(lease.reported_at, now):
        since = max(since, lease.reported_at)
    silent_s = elapsed_s(since, now)
    if silent_s <= ROOM_S:
        return False
    return silent_s > ROOM_S + LIMITS_PER_LAUNCH * rows.longest_limit_s(session, device_id)


def release(session: Session, device_id: str, lease_id: str, launch_ids: Sequence[str], now: datetime) -> None:
    """Gives launches back unmeasured, all of the lease's unfinished ones if none are named. No attempt is counted, and
    the device reports on them no more.

    A launch that is not (or no longer) in the lease is passed over: giving back twice changes nothing.
    """
    lease = rows.lock(session, device_id, lease_id)
    if lease is None:
        raise NotFound(f"no lease {lease_id}")
    held = rows.unfinished_of(session, lease_id)
    wanted_back = set(held).intersection(launch_ids) if launch_ids else set(held)
    locked = launches.lock_leased(session, wanted_back)
    given_back = [row.id for row in locked if row.lease_id == lease_id]
    launches.forget_holder(session, given_back)
    launches.release(session, given_back, now)
    if wanted_back == set(held) and lease.ended_at is None:
        lease.ended_at = now
        session.flush()


def enrol(session: Session, token_secret: str, request: EnrolRequest, now: datetime) -> EnrolResponse:
    """`fleet.devices.enrol`; a device that is taken over gives back what its old agent holds."""
    answer = fleet.enrol(session, token_secret, request, now)
    end_leases(session, answer.device_id, now)
    return answer


def revoke_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """`fleet.devices.revoke_device`; what the device holds goes to others."""
    device = fleet.revoke_device(session, principal, id_or_name, now)
    end_leases(session, device.id, now)
    return device


def end_leases(session: Session, device_id: str, now: datetime) -> None:
    """Ends the device's leases; their launches are wanted again, at no cost of attempts. The device may report on them
    until another one holds them.
    """
    rows.end_all(session, device_id, now)
    held = launches.lock_leased(session, rows.held_by(session, device_id))
    launches.transfer(session, [row.id for row in held])
    launches.release(session, [row.id for row in held], now)
