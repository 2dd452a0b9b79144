"""Queries on keys, enrolment tokens and browser sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from edgefront.core.store.tables import ApiKey, Device, EnrolmentToken, WebSession


def key(session: Session, key_id: str) -> ApiKey | None:
    return session.get(ApiKey, key_id)


def key_by_hash(session: Session, secret_hash: str) -> tuple[ApiKey, str | None] | None:
    """The key, with the state of its device if it is a device's credential."""
    query = select(ApiKey, Device.state).outerjoin(Device).where(ApiKey.secret_hash == secret_hash)
    row = session.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def key_by_cookie_hash(session: Session, secret_hash: str, now: datetime) -> tuple[ApiKey, str | None] | None:
    """The key behind a browser session that has not expired."""
    query = (
        select(ApiKey, Device.state)
        .join(WebSession, WebSession.api_key_id == ApiKey.id)
        .outerjoin(Device)
        .where(WebSession.secret_hash == secret_hash, WebSession.expires_at > now)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def keys(session: Session, owner: str | None) -> Sequence[ApiKey]:
    """Keys of people, of one owner or of all, oldest first."""
    query = select(ApiKey).where(ApiKey.device_id.is_(None)).order_by(ApiKey.id)
    return session.scalars(query if owner is None else query.where(ApiKey.owner == owner)).all()


def revoke_device_keys(session: Session, device_id: str, now: datetime) -> None:
    session.execute(
        update(ApiKey).where(ApiKey.device_id == device_id, ApiKey.revoked_at.is_(None)).values(revoked_at=now)
    )


def delete_web_session(session: Session, secret_hash: str) -> None:
    session.execute(delete(WebSession).where(WebSession.secret_hash == secret_hash))


def delete_expired_web_sessions(session: Session, now: datetime) -> None:
    session.execute(delete(WebSession).where(WebSession.expires_at <= now))


def enrolment_token(session: Session, token_id: str) -> EnrolmentToken | None:
    return session.get(EnrolmentToken, token_id)


def enrolment_token_by_hash(session: Session, secret_hash: str) -> EnrolmentToken | None:
    """The token, locked, so that concurrent uses are counted correctly."""
    query = select(EnrolmentToken).where(EnrolmentToken.secret_hash == secret_hash).with_for_update()
    return session.scalars(query).one_or_none()


def enrolment_tokens(session: Session) -> Sequence[EnrolmentToken]:
    return session.scalars(select(EnrolmentToken).order_by(EnrolmentToken.id)).all()
