"""Queries on keys, enrolment tokens and browser sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from edgefront.core.common.states import KeyRole
from edgefront.core.store import sql
from edgefront.core.store.tables import AccessVersion, ApiKey, Device, EnrolmentToken, WebSession


def key_by_hash(session: Session, secret_hash: str) -> tuple[ApiKey, str | None] | None:
    """The key, with the state of its device if it is a device's credential."""
    query = select(ApiKey, Device.state).outerjoin(Device).where(ApiKey.secret_hash == secret_hash)
    row = session.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def _valid(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)


def is_valid(session: Session, key_id: str, now: datetime) -> bool:
    """Whether the key or credential has neither been revoked nor expired, as the rows say now."""
    return session.scalar(select(ApiKey.id).where(ApiKey.id == key_id, *_valid(now))) is not None


def key_by_cookie_hash(session: Session, secret_hash: str, now: datetime) -> tuple[ApiKey, str | None, datetime] | None:
    """The key behind a browser session that has not expired, as `key_by_hash`, and when the session expires."""
    query = (
        select(ApiKey, Device.state, WebSession.expires_at)
        .join(WebSession, WebSession.api_key_id == ApiKey.id)
        .outerjoin(Device)
        .where(WebSession.secret_hash == secret_hash, WebSession.expires_at > now)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


def lock_admin_keys(session: Session, now: datetime) -> Sequence[ApiKey]:
    """Admins' keys that are valid, locked, so that two of them do not end each other."""
    query = select(ApiKey).where(ApiKey.role == KeyRole.ADMIN, *_valid(now))
    return session.scalars(query.order_by(ApiKey.id).with_for_update()).all()


def revoke_device_keys(session: Session, device_id: str, now: datetime, *, but: str | None = None) -> None:
    """Ends a device's credentials, but for the key `but`."""
    query = update(ApiKey).where(ApiKey.device_id == device_id, ApiKey.revoked_at.is_(None))
    session.execute((query if but is None else query.where(ApiKey.id != but)).values(revoked_at=now))
    ended(session)


def is_unused(session: Session, device_id: str, token: EnrolmentToken, nonce: str | None) -> bool:
    """Whether the device's credential is the one that was exchanged for this token, and was never used. A token of
    several uses must have been exchanged with this nonce (hashed), too, which only the device's agent has.
    """
    keys = session.scalars(select(ApiKey).where(ApiKey.device_id == device_id, ApiKey.revoked_at.is_(None))).all()
    same = token.max_uses == 1 or (nonce is not None and all(key.enrolment_nonce == nonce for key in keys))
    return same and bool(keys) and all(key.pending and key.token_id == token.id for key in keys)


def revoke_pending_keys(session: Session, device_id: str, now: datetime) -> None:
    """Ends a device's credentials that were never used: nobody can have them in memory."""
    query = update(ApiKey).where(ApiKey.device_id == device_id, ApiKey.pending, ApiKey.revoked_at.is_(None))
    session.execute(query.values(revoked_at=now))


def ended(session: Session) -> None:
    """Counts that something has ended that processes may have in memory: a key, a credential, a browser session."""
    statement = sql.upsert(session, AccessVersion).values(id=1, number=1)
    session.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"number": AccessVersion.number + 1}))


def version(session: Session) -> int:
    """What `ended` has counted."""
    return session.scalars(select(AccessVersion.number)).one_or_none() or 0


def enrolment_token_by_hash(session: Session, secret_hash: str) -> EnrolmentToken | None:
    """The token, locked, so that concurrent uses are counted correctly."""
    query = select(EnrolmentToken).where(EnrolmentToken.secret_hash == secret_hash).with_for_update()
    return session.scalars(query).one_or_none()


def enrolled_by(session: Session, token_id: str) -> Sequence[str]:
    """Ids of the devices that have enrolled by a token."""
    query = select(ApiKey.device_id).where(ApiKey.token_id == token_id, ApiKey.device_id.is_not(None)).distinct()
    return [str(device_id) for device_id in session.scalars(query.order_by(ApiKey.device_id))]


def revoke_tokens_for(session: Session, device_id: str, now: datetime) -> None:
    """Ends the enrolment tokens that were made for this device."""
    query = update(EnrolmentToken).where(EnrolmentToken.device_id == device_id, EnrolmentToken.revoked_at.is_(None))
    session.execute(query.values(revoked_at=now))
