"""Leases: how long devices keep launches that they have claimed (`launches.claim`), and how launches are given back."""

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
from edgefront.core.services.measuring.queries import leases as lease_queries
from edgefront.core.store.clock import elapsed_s, is_ahead
from edgefront.core.store.tables import Device, Launch

SEEN_INTERVAL = timedelta(seconds=20)
"""Minimum time between two updates of `last_seen_at` by leases and heartbeats."""

LIMITS_PER_LAUNCH = 2.0
ROOM_S = 600.0
"""A launch may take `LIMITS_PER_LAUNCH` times its time limit plus `ROOM_S` seconds: an agent may first wait some
minutes for better conditions, for the weights, and for other agents on its host.
"""


def seen(session: Session, device_id: str, last: datetime | None, now: datetime) -> None:
    """Stores that the device was seen, if the stored time is older than `SEEN_INTERVAL`."""
    # Called after everything that may wait for a target, because reports hold targets when they update the device.
    if last is None or elapsed_s(last, now) > SEEN_INTERVAL.total_seconds():
        device_queries.seen(session, device_id, now)


def start(
    session: Session, device_id: str, launch_id: str, fence: int, now: datetime, conditions: str | None = None
) -> None:
    """Marks a launch as started by the agent: if the agent dies from now on, the launch is charged an attempt. Stores
    the device's `conditions`, if given.

    Raises:
        NotFound: the launch does not exist, because its job was deleted.
        Conflict: the launch is not leased to this device with this fencing token, its lease has expired, or no job
            needs it any more. The agent must skip the launch.
    """
    if lease_queries.start(session, device_id, launch_id, fence, now):
        if conditions is not None:
            device_queries.set_conditions(session, device_id, conditions)
        return
    launch = session.get(Launch, launch_id)
    if launch is None:
        raise NotFound(f"launch {launch_id} does not exist: its job was deleted")
    if launch.state == LaunchState.CANCELLED:
        raise Conflict("no running job needs this launch any more", state=launch.state)
    if launch.state != LaunchState.LEASED or launch.device_id != device_id or launch.fence != fence:
        raise Conflict("this launch is not leased to this device, or not any more", state=launch.state)
    raise Conflict("the lease of this launch has expired", state=launch.state)


def heartbeat(session: Session, device_id: str, lease_id: str, now: datetime, ttl_s: float) -> HeartbeatResponse:
    """Extends a lease to `ttl_s` after now, and returns the ids of the lease's launches that are no longer wanted. If
    the device has not reported a result for longer than one launch may take, ends the lease instead.

    Raises:
        NotFound: the device has no such lease.
        Gone: the lease has ended or expired and cannot be extended. Results may still be reported.
    """
    extended = lease_queries.extend(session, device_id, lease_id, now, now + timedelta(seconds=ttl_s))
    if extended is None:
        lease = lease_queries.find(session, device_id, lease_id)
        if lease is None:
            raise NotFound(f"this device has no lease {lease_id}")
        ended = lease.ended_at or lease.expires_at
        raise Gone(f"this lease ended at {ended:%Y-%m-%d %H:%M:%S} UTC; results may still be reported")
    expires_at = extended.expires_at
    if _is_overdue(session, device_id, extended, now):
        lease_queries.expire(session, lease_id, now)
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
    return silent_s > ROOM_S + LIMITS_PER_LAUNCH * lease_queries.longest_limit_s(session, device_id)


def release(session: Session, device_id: str, lease_id: str, launch_ids: Sequence[str], now: datetime) -> None:
    """Gives back launches unmeasured: all of the lease's unfinished launches if `launch_ids` is empty. No attempt is
    charged, and the device may not report on these launches any more.

    Launches that are not (or no longer) in the lease are ignored, so a repeated release changes nothing.
    """
    lease = lease_queries.lock(session, device_id, lease_id)
    if lease is None:
        raise NotFound(f"this device has no lease {lease_id}")
    held = lease_queries.unfinished_of(session, lease_id)
    wanted_back = set(held).intersection(launch_ids) if launch_ids else set(held)
    locked = launches.lock_leased(session, wanted_back)
    given_back = [row.id for row in locked if row.lease_id == lease_id]
    launches.forget_holder(session, given_back)
    launches.release(session, given_back, now)
    if wanted_back == set(held) and lease.ended_at is None:
        lease.ended_at = now
        session.flush()


def enrol(session: Session, token_secret: str, request: EnrolRequest, now: datetime) -> EnrolResponse:
    """Enrols a device (`fleet.devices.enrol`). A re-enrolled device gives back launches of the old agent."""
    answer = fleet.enrol(session, token_secret, request, now)
    end_leases(session, answer.device_id, now)
    return answer


def revoke_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """Revokes a device (`fleet.devices.revoke_device`). The device's leased launches go to other devices."""
    device = fleet.revoke_device(session, principal, id_or_name, now)
    end_leases(session, device.id, now)
    return device


def end_leases(session: Session, device_id: str, now: datetime) -> None:
    """Ends the device's leases. Launches of these leases are wanted again, and no attempt is charged. The device may
    report on these launches until another device leases them.
    """
    lease_queries.end_all(session, device_id, now)
    held = launches.lock_leased(session, lease_queries.held_by(session, device_id))
    launches.transfer(session, [row.id for row in held])
    launches.release(session, [row.id for row in held], now)
