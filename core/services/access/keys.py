"""Authentication by API keys, device credentials and browser sessions.

A secret consists of a prefix for its kind and 256 random bits. Only its SHA-256 is stored. A slow hash is unnecessary,
because a random secret of this length cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import ColumnElement, delete, or_, select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, Forbidden, Gone, InvalidInput, NotFound, Unauthenticated
from edgefront.core.common.states import DeviceState, KeyRole
from edgefront.core.schemas.service import KeyView
from edgefront.core.services.access import queries as access_queries
from edgefront.core.store.tables import ApiKey, Device, WebSession

SecretKind = Literal["efk", "efa", "efe", "efw"]
"""Prefix of a secret: API key, agent credential, enrolment token or web session."""

WEB_SESSION = timedelta(days=7)
REVOKED = "this device was revoked; its owner can enrol it again (edgefront device reenrol)"


@dataclass(frozen=True)
class Principal:
    """The authenticated caller. Users access the rows of `owner`; admins access all rows, and viewers read all rows."""

    key_id: str
    name: str
    owner: str
    role: KeyRole
    device_id: str | None = None
    expires_at: datetime | None = field(default=None, compare=False)
    pending: bool = field(default=False, compare=False)
    """Whether this device credential is unused. The first use revokes older credentials (`devices.first_used`)."""

    @property
    def is_admin(self) -> bool:
        return self.role == KeyRole.ADMIN

    @property
    def reads_all(self) -> bool:
        return self.role in (KeyRole.ADMIN, KeyRole.VIEWER)

    def can_change(self, owner: str) -> bool:
        return self.is_admin or (self.role != KeyRole.VIEWER and self.owner == owner)

    def require(self, *roles: KeyRole) -> None:
        """Raises `Forbidden` unless the caller's role is one of `roles`. Admins have all permissions of users."""
        if self.role in roles or (self.is_admin and KeyRole.USER in roles):
            return
        raise Forbidden(f"this needs the role {' or '.join(roles)}, but {self.name!r} has the role {self.role}")


def new_secret(kind: SecretKind) -> str:
    """Returns a new secret: the prefix, an underscore and 43 random characters."""
    return f"{kind}_{secrets.token_urlsafe(32)}"


def hash_secret(secret: str) -> str:
    """Returns the SHA-256 of a secret in hexadecimal, the form in which the database stores secrets."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class DeviceCredential:
    """Columns of `ApiKey` that only device credentials have."""

    device_id: str
    pending: bool = False
    """Whether the credential was not used yet. The former credential stays valid until the first use."""
    token_id: str | None = None
    """Id of the enrolment token that was exchanged for the credential."""
    enrolment_nonce: str | None = None
    """Hash of the enrolment request's nonce, which identifies a repeated request."""


def create_key(
    session: Session,
    *,
    name: str,
    owner: str,
    role: KeyRole,
    now: datetime,
    expires_at: datetime | None = None,
    credential: DeviceCredential | None = None,
) -> tuple[ApiKey, str]:
    """Creates a key. Returns the key and its secret. `credential` is required for the role agent and only for it."""
    if (role == KeyRole.AGENT) != (credential is not None):
        raise InvalidInput(
            "the role agent is for device credentials only", field="role", value=role, allowed="admin, user or viewer"
        )
    secret = new_secret("efk" if credential is None else "efa")
    key = ApiKey(
        name=name,
        owner=owner,
        role=role,
        prefix=secret[:10],
        secret_hash=hash_secret(secret),
        created_at=now,
        expires_at=expires_at,
        **({} if credential is None else asdict(credential)),
    )
    session.add(key)
    session.flush()
    return key, secret


def authenticate(session: Session, secret: str, now: datetime) -> Principal:
    """Returns the principal of a bearer secret.

    Raises:
        Unauthenticated: the key is unknown, expired or revoked.
        Gone: the device of the credential was revoked.
    """
    if not secret.startswith(("efk_", "efa_")):
        raise Unauthenticated("this is not an API key: keys start with efk_, device credentials with efa_")
    query = select(ApiKey, Device.state).outerjoin(Device).where(ApiKey.secret_hash == hash_secret(secret))
    row = session.execute(query).one_or_none()
    if row is None:
        raise Unauthenticated("the API key is unknown")
    return _principal(*row, now)


def _principal(key: ApiKey, device_state: str | None, now: datetime) -> Principal:
    if device_state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    if key.revoked_at is not None:
        raise Unauthenticated("the key was revoked")
    if key.expires_at is not None and key.expires_at <= now:
        raise Unauthenticated(f"the key expired at {key.expires_at:%Y-%m-%d %H:%M} UTC")
    return Principal(key.id, key.name, key.owner, key.role, key.device_id, key.expires_at, key.pending)


def list_keys(session: Session, principal: Principal) -> list[KeyView]:
    """Returns the caller's own keys, or all keys for an admin. Device credentials are not listed."""
    keys = select(ApiKey).where(ApiKey.device_id.is_(None)).order_by(ApiKey.id)
    visible = keys if principal.is_admin else keys.where(ApiKey.owner == principal.owner)
    return [key_view(key) for key in session.scalars(visible)]


def revoke_key(session: Session, principal: Principal, key_id: str, now: datetime, *, force: bool = False) -> None:
    """Revokes a key and its browser sessions. Idempotent.

    Raises:
        NotFound: the key does not exist, or belongs to another owner.
        Forbidden: the key is an admin's, and the caller is not an admin.
        Conflict: the key is the last valid admin key, and `force` is not set.
    """
    key = session.get(ApiKey, key_id)
    if key is None or key.device_id is not None or not principal.can_change(key.owner):
        raise NotFound(f"no key {key_id}")
    if key.role == KeyRole.ADMIN and not principal.is_admin:
        raise Forbidden(f"{key.name!r} is an admin's key: only an admin may revoke it")
    # Locked, so that two concurrent revocations cannot remove all admin keys.
    admins = select(ApiKey).where(ApiKey.role == KeyRole.ADMIN, *_is_valid(now)).order_by(ApiKey.id).with_for_update()
    if key.role == KeyRole.ADMIN and not force and _is_last(key, session.scalars(admins).all()):
        raise Conflict(
            f"{key.name!r} is the last admin key, or all others expire earlier, and without an admin key nobody can "
            "create keys or enrol devices. Create one first, or confirm with force (edgefront key revoke --force)",
            field="force",
        )
    if key.revoked_at is None:
        key.revoked_at = now
        access_queries.bump_version(session)


def _is_valid(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)


def _is_last(key: ApiKey, valid: Sequence[ApiKey]) -> bool:
    """Whether the key is among the valid keys, and every other valid key expires earlier."""

    def lasts_as_long(other: ApiKey) -> bool:
        if other.expires_at is None or key.expires_at is None:
            return other.expires_at is None
        return other.expires_at >= key.expires_at

    return key in valid and not any(other is not key and lasts_as_long(other) for other in valid)


def require_valid_key(session: Session, principal: Principal, now: datetime) -> None:
    """Raises `Unauthenticated` if the caller's key was revoked or has expired since authentication.

    Every use case that creates a secret calls this function in the same transaction. If the key belongs to a device,
    the device is locked first, because a revocation of the device's credentials takes the same lock.
    """
    if session.scalar(select(ApiKey.id).where(ApiKey.id == principal.key_id, *_is_valid(now))) is None:
        raise Unauthenticated("the key was revoked, or has expired")


def key_view(key: ApiKey, secret: str | None = None) -> KeyView:
    """Returns the API's view of a key. `secret` is given only for the response to the key's creation."""
    return KeyView(
        id=key.id,
        name=key.name,
        owner=key.owner,
        role=key.role,
        prefix=key.prefix,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked=key.revoked_at is not None,
        key=secret,
    )


def open_web_session(session: Session, principal: Principal, now: datetime) -> str:
    """Opens a browser session, for a week or until the key ends, and returns the secret for the session's cookie."""
    if principal.device_id is not None:
        raise Forbidden("a device credential cannot open a browser session")
    secret = new_secret("efw")
    session.add(
        WebSession(
            secret_hash=hash_secret(secret), api_key_id=principal.key_id, created_at=now, expires_at=now + WEB_SESSION
        )
    )
    return secret


def authenticate_web(session: Session, secret: str, now: datetime) -> Principal:
    """Returns the principal of a cookie's secret. Raises `Unauthenticated` for an ended session or key."""
    query = (
        select(ApiKey, Device.state, WebSession.expires_at)
        .join(WebSession, WebSession.api_key_id == ApiKey.id)
        .outerjoin(Device)
        .where(WebSession.secret_hash == hash_secret(secret), WebSession.expires_at > now)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        raise Unauthenticated("the browser session has ended; sign in again")
    key, device_state, ends_at = row
    principal = _principal(key, device_state, now)
    return replace(principal, expires_at=ends_at if key.expires_at is None else min(ends_at, key.expires_at))


def close_web_session(session: Session, secret: str) -> None:
    """Ends a browser session. Unknown sessions are ignored."""
    session.execute(delete(WebSession).where(WebSession.secret_hash == hash_secret(secret)))
    access_queries.bump_version(session)


def purge_web_sessions(session: Session, now: datetime) -> None:
    """Deletes browser sessions that have expired."""
    session.execute(delete(WebSession).where(WebSession.expires_at <= now))
