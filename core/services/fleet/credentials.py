"""Devices' credentials: renewed by the device itself, replaced by its owner, and made again by a token for one device.

A device that asks gets a new credential while the old one stays valid; the first use of the new one ends the old one.
So an agent that dies between the two still has one that works.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.errors import Gone, Unauthenticated
from edgefront.core.services.access import queries as access
from edgefront.core.services.access.keys import (
    REVOKED,
    DeviceCredential,
    Principal,
    confirm,
    create_key,
    hash_secret,
    new_secret,
)
from edgefront.core.services.fleet import devices
from edgefront.core.services.fleet import queries as rows
from edgefront.core.states import DeviceState, KeyRole
from edgefront.core.store.tables import EnrolmentToken
from edgefront.core.wire.agent import EnrolResponse
from edgefront.core.wire.service import ReenrolRequest


def is_old(principal: Principal, days: float, now: datetime) -> bool:
    """Whether a credential was made at least `days` ago."""
    return principal.created_at is not None and now - principal.created_at >= timedelta(days=days)


def rotate(session: Session, principal: Principal, id_or_name: str, now: datetime) -> EnrolResponse:
    """Makes a new credential for the device.

    If the device asks, its old one ends when the new one is first used. If its owner or an admin asks, who think that
    it has leaked, the old one ends at once.

    Raises `Gone` if the device was revoked, `Forbidden` for another owner's, `NotFound` if there is none,
    `Unauthenticated` if the caller's key has ended.
    """
    device = devices.locked(session, principal, id_or_name, itself=True)
    if device.state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    confirm(session, principal, now)
    itself = principal.device_id == device.id
    if itself:
        access.revoke_pending_keys(session, device.id, now)  # an answer that did not arrive
    else:
        access.revoke_device_keys(session, device.id, now)
    _, secret = create_key(
        session,
        name=device.name,
        owner=device.owner,
        role=KeyRole.AGENT,
        now=now,
        credential=DeviceCredential(device.id, pending=itself),
    )
    return EnrolResponse(device_id=device.id, credential=secret)


def first_used(session: Session, key_id: str, now: datetime) -> None:
    """Ends the device's older credentials. `Unauthenticated` if this one has ended meanwhile."""
    key = access.key(session, key_id)
    if key is None or key.device_id is None:
        raise Unauthenticated("the key was revoked")
    rows.lock(session, key.device_id)  # in this order: whoever ends credentials has locked the device
    session.refresh(key)
    if key.revoked_at is not None:
        raise Unauthenticated("the key was revoked")
    key.pending = False
    access.revoke_device_keys(session, key.device_id, now, but=key.id)


def reenrolment_token(
    session: Session, principal: Principal, id_or_name: str, request: ReenrolRequest, now: datetime
) -> tuple[EnrolmentToken, str]:
    """A token of one use that enrols this device again, offline or revoked, and its secret; earlier ones end. Raises
    `Forbidden` unless the caller is its owner or an admin.
    """
    device = devices.locked(session, principal, id_or_name)
    access.revoke_tokens_for(session, device.id, now)
    secret = new_secret("efe")
    token = EnrolmentToken(
        name=device.name,
        owner=device.owner,
        device_id=device.id,
        secret_hash=hash_secret(secret),
        created_at=now,
        expires_at=now + timedelta(minutes=request.minutes),
        max_uses=1,
        uses=0,
    )
    session.add(token)
    session.flush()
    return token, secret
