"""Devices' credentials: their first use, and tokens that enrol one device again."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from edgefront.core.errors import Unauthenticated
from edgefront.core.services.access import queries as access
from edgefront.core.services.access.keys import (
    Principal,
    hash_secret,
    new_secret,
)
from edgefront.core.services.fleet import devices
from edgefront.core.services.fleet import queries as rows
from edgefront.core.store.tables import EnrolmentToken
from edgefront.core.wire.service import ReenrolRequest


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
