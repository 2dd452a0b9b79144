"""Queries on device credentials, enrolment tokens and the version of revocations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from edgefront.core.store import sql
from edgefront.core.store.tables import AccessVersion, ApiKey, EnrolmentToken


def revoke_device_keys(session: Session, device_id: str, now: datetime, *, exclude: str | None = None) -> None:
    """Revokes a device's credentials, except the key `exclude`, and makes every process clear its cache of keys."""
    query = update(ApiKey).where(ApiKey.device_id == device_id, ApiKey.revoked_at.is_(None))
    session.execute((query if exclude is None else query.where(ApiKey.id != exclude)).values(revoked_at=now))
    bump_version(session)


def is_unused(session: Session, device_id: str, token: EnrolmentToken, nonce: str | None) -> bool:
    """Whether the device's only credential came from this token and was never used.

    For a token of several uses the hashed nonce must match too, because only the device's agent knows the nonce.
    """
    keys = session.scalars(select(ApiKey).where(ApiKey.device_id == device_id, ApiKey.revoked_at.is_(None))).all()
    same = token.max_uses == 1 or (nonce is not None and all(key.enrolment_nonce == nonce for key in keys))
    return same and bool(keys) and all(key.pending and key.token_id == token.id for key in keys)


def revoke_pending_keys(session: Session, device_id: str, now: datetime) -> None:
    """Revokes a device's unused credentials. No cache is cleared, because no process caches unused credentials."""
    query = update(ApiKey).where(ApiKey.device_id == device_id, ApiKey.pending, ApiKey.revoked_at.is_(None))
    session.execute(query.values(revoked_at=now))


def bump_version(session: Session) -> None:
    """Raises the version of revocations, so that every process clears its cache of keys and sessions."""
    statement = sql.upsert(session, AccessVersion).values(id=1, number=1)
    session.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"number": AccessVersion.number + 1}))


def version(session: Session) -> int:
    """Returns the version of revocations, which every revocation raises by 1 (`bump_version`)."""
    return session.scalars(select(AccessVersion.number)).one_or_none() or 0


def enrolment_token_by_hash(session: Session, secret_hash: str) -> EnrolmentToken | None:
    """Returns the token with this hash, locked so that concurrent uses are counted one after another."""
    query = select(EnrolmentToken).where(EnrolmentToken.secret_hash == secret_hash).with_for_update()
    return session.scalars(query).one_or_none()


def enrolled_by(session: Session, token_id: str) -> Sequence[str]:
    """Returns the ids of the devices that enrolled with a token."""
    query = select(ApiKey.device_id).where(ApiKey.token_id == token_id, ApiKey.device_id.is_not(None)).distinct()
    return [str(device_id) for device_id in session.scalars(query.order_by(ApiKey.device_id))]


def revoke_tokens_for(session: Session, device_id: str, now: datetime) -> None:
    """Revokes the enrolment tokens of this device."""
    query = update(EnrolmentToken).where(EnrolmentToken.device_id == device_id, EnrolmentToken.revoked_at.is_(None))
    session.execute(query.values(revoked_at=now))
