"""Leases: how devices take launches, keep them, and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, Gone, NotFound
from edgefront.core.common.states import DeviceState, LaunchState
from edgefront.core.schemas.agent import MAX_BATCH, EnrolRequest, EnrolResponse, HeartbeatResponse
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices as fleet
from edgefront.core.services.fleet import instances
from edgefront.core.services.fleet import queries as devices
from edgefront.core.services.fleet.capability import device_keys, runnable
from edgefront.core.services.measuring.queries import launches
from edgefront.core.services.measuring.queries import leases as rows
from edgefront.core.services.measuring.queries.launches import LaunchRow
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.services.work import interval_s
from edgefront.core.store.clock import elapsed_s, is_ahead
from edgefront.core.store.tables import Device, Launch

SEEN_INTERVAL = timedelta(seconds=20)
"""`last_seen_at` is written no more often than this by leases and heartbeats."""

MAX_HELD = 2 * MAX_BATCH
"""Launches without a result that a device holds at most: an agent asks for its next batch when it starts the last
launch of the one before.
"""

LIMITS_PER_LAUNCH = 2.0
ROOM_S = 600.0
"""A launch may take so many times its time limit and so much longer: an agent may first wait some minutes for better
conditions, for the weights, and for other agents on its host.
"""


class GrantedLease(NamedTuple):
    """The answer to a request for launches (`core.schemas.agent.LeaseResponse`)."""

    keys: frozenset[str]
    """Device keys of the launches that it may run: those under which it waits if there are none. Not sent."""
    lease_id: str | None = None
    items: tuple[LaunchRow, ...] = ()
    expires_at: datetime | None = None
    ttl_s: float = 0.0
    heartbeat_s: float = 0.0
    state: DeviceState = DeviceState.ACTIVE
    blocked_reason: str | None = None
    """Why it gets none, and what ends that: a header."""

    def as_json(self) -> bytes:
        """The answer as it is sent; architectures go in as the text that they are."""
        items = [
            {
                "launch_id": row.id,
                "fence": row.fence,
                "digest": row.digest,
                "architecture": orjson.Fragment(row.architecture),
                "protocol": orjson.Fragment(_protocol_as_json(row.protocol_json)),
                "seed": row.seed,
            }
            for row in self.items
        ]
        sent = {name: value for name, value in self._asdict().items() if name not in ("keys", "blocked_reason")}
        return orjson.dumps({**sent, "items": items}, option=orjson.OPT_UTC_Z)


@lru_cache(maxsize=1024)
def _protocol_as_json(stored: str) -> bytes:
    return PROTOCOL.read(orjson.loads(stored)).model_dump_json().encode()


def claim(
    session: Session, device_id: str, max_items: int, now: datetime, ttl_s: float, instance: str | None = None
) -> GrantedLease:
    """Takes up to `max_items` wanted launches that the device can run, by their turns (`services.turns`): those for
    it alone and those of its class.

    `items` is empty if there is nothing to do, or the device is draining, in quarantine or just claiming in another
    request, or holds `MAX_HELD` launches. Launches that another device is claiming are passed over, so claims never
    wait for each other.

    `instance`: the process of the agent that asks; older agents do not say.

    Raises:
        NotFound, Gone: no such device; it was revoked.
        Conflict: the agent runs beside another with the same credential.
    """
    device = fleet.own_device(session, device_id)
    if instance is not None:
        instances.admit(session, device, instance, now)
    keys = frozenset(device_keys(device))
    if device.state == DeviceState.DRAINING or device.quarantine is not None:
        _seen(session, device_id, device.last_seen_at, now)
        return GrantedLease(keys, state=DeviceState.DRAINING, blocked_reason=_blocked_reason(device))
    # A second request of the device at the same time gets nothing: together they hold no more than one after the other.
    most = min(max_items, MAX_HELD - rows.held(session, device_id)) if rows.claims_alone(session, device_id) else 0
    taken = _take(session, device, most) if most > 0 else []
    _seen(session, device_id, device.last_seen_at, now)
    if not taken:
        return GrantedLease(keys)
    expires_at = now + timedelta(seconds=ttl_s)
    lease_id = rows.add(session, device_id, [row.id for row in taken], now, expires_at)
    return GrantedLease(keys, lease_id, tuple(taken), expires_at, ttl_s, interval_s(ttl_s))


def _blocked_reason(device: devices.OwnDevice) -> str | None:
    if device.quarantine is None:
        return None
    reason, trust = device.quarantine.rstrip("."), f"edgefront device trust {device.id}"
    return f"it is in quarantine: {reason}; its owner or an admin lets it back ({trust})"


def _seen(session: Session, device_id: str, last: datetime | None, now: datetime) -> None:
    # After everything that may wait for a target: reports hold targets when they come to the device's row.
    if last is None or elapsed_s(last, now) > SEEN_INTERVAL.total_seconds():
        devices.seen(session, device_id, now)


def _take(session: Session, device: devices.OwnDevice, max_items: int) -> list[LaunchRow]:
    """Launches that the device can run, under the fence that it gets."""
    own, shared = device_keys(device)
    unfit: set[str] = set()
    while True:
        rows = launches.claimable(session, own, shared, unfit, max_items)
        protocols = {row.protocol_digest: row.protocol for row in rows}
        able = runnable(session, device, [protocol for protocol in protocols.values() if protocol is not None])
        fit = {key for key, protocol in protocols.items() if protocol is not None and protocol.digest in able}
        refused = protocols.keys() - fit
        if not refused:
            return [row._replace(fence=row.fence + 1) for row in rows]
        # What it cannot run may stand before what it can: look again without those protocols.
        unfit |= refused


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
    _seen(session, device_id, extended.last_seen_at, now)
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
    held = launches.unfinished_of(session, lease_id)
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
    held = launches.lock_leased(session, launches.held_by(session, device_id))
    launches.transfer(session, [row.id for row in held])
    launches.release(session, [row.id for row in held], now)
