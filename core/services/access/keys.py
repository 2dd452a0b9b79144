"""Authentication: API keys, device credentials and browser sessions.

A secret is a prefix for its kind and 256 random bits. Only its SHA-256 is stored: a slow hash is not needed for a
secret that cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, Forbidden, Gone, InvalidInput, NotFound, Unauthenticated
from edgefront.core.common.states import DeviceState, KeyRole
from edgefront.core.schemas.service import KeyView
from edgefront.core.services.access import queries as access
from edgefront.core.store.tables import ApiKey, WebSession

SecretKind = Literal["efk", "efa", "efe", "efw"]
"""Key, agent credential, enrolment token, web session."""

WEB_SESSION = timedelta(days=7)
REVOKED = "this device was revoked; its owner can enrol it again (edgefront device reenrol)"


@dataclass(frozen=True)
class Principal:
    """The authenticated caller. `owner` is the owner of the rows that the caller can access; admins access all, and
    viewers read all.
    """

    key_id: str
    name: str
    owner: str
    role: KeyRole
    device_id: str | None = None
    expires_at: datetime | None = field(default=None, compare=False)
    pending: bool = field(default=False, compare=False)
    """A device's new credential that was not used before: `fleet.devices.first_used` ends the older ones."""

    @property
    def is_admin(self) -> bool:
        return self.role == KeyRole.ADMIN

    @property
    def sees_all(self) -> bool:
        return self.role in (KeyRole.ADMIN, KeyRole.VIEWER)

    def may_change(self, owner: str) -> bool:
        return self.is_admin or (self.role != KeyRole.VIEWER and self.owner == owner)

    def require(self, *roles: KeyRole) -> None:
        """Raises `Forbidden` unless the role is one of these; an admin has all permissions of a user."""
        if self.role in roles or (self.is_admin and KeyRole.USER in roles):
            return
        raise Forbidden(f"this needs the role {' or '.join(roles)}; {self.name!r} has {self.role}")


def new_secret(kind: SecretKind) -> str:
    """`efk_` and 43 characters."""
    return f"{kind}_{secrets.token_urlsafe(32)}"


def hash_secret(secret: str) -> str:
    """SHA-256 in hexadecimal: the form in which the database stores a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class DeviceCredential:
    """What a key is that a device has."""

    device_id: str
    pending: bool = False
    """It was not used yet, and the former one counts until it is."""
    token_id: str | None = None
    """The enrolment token that it was given for."""
    enrolment_nonce: str | None = None
    """It lets a repeated request to enrol be recognised."""


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
    """A new key and its secret, which is not stored and cannot be shown again. `credential`: for the role agent."""
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
    """The principal of a bearer secret.

    Raises:
        Unauthenticated: unknown, expired or revoked.
        Gone: the credential of a device that was revoked.
    """
    if not secret.startswith(("efk_", "efa_")):
        raise Unauthenticated("this is not an API key: keys start with efk_, device credentials with efa_")
    return _principal(access.key_by_hash(session, hash_secret(secret)), now)


def _principal(row: tuple[ApiKey, str | None] | None, now: datetime) -> Principal:
    if row is None:
        raise Unauthenticated("the API key is unknown")
    key, device_state = row
    if device_state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    if key.revoked_at is not None:
        raise Unauthenticated("the key was revoked")
    if key.expires_at is not None and key.expires_at <= now:
        raise Unauthenticated(f"the key expired at {key.expires_at:%Y-%m-%d %H:%M} UTC")
    return Principal(key.id, key.name, key.owner, key.role, key.device_id, key.expires_at, key.pending)


def list_keys(session: Session, principal: Principal) -> list[KeyView]:
    """The caller's own keys, or all for an admin; without device credentials, which belong to their device."""
    keys = select(ApiKey).where(ApiKey.device_id.is_(None)).order_by(ApiKey.id)
    seen = keys if principal.is_admin else keys.where(ApiKey.owner == principal.owner)
    return [key_view(key) for key in session.scalars(seen)]


def revoke_key(session: Session, principal: Principal, key_id: str, now: datetime, *, force: bool = False) -> None:
    """Revokes a key and its browser sessions. Revoking twice changes nothing.

    Raises:
        NotFound: there is no such key, or it is another owner's.
        Forbidden: it is an admin's, and the caller is none.
        Conflict: it is the last valid key of an admin, and `force` is not given.
    """
    key = session.get(ApiKey, key_id)
    if key is None or key.device_id is not None or not principal.may_change(key.owner):
        raise NotFound(f"no key {key_id}")
    if key.role == KeyRole.ADMIN and not principal.is_admin:
        raise Forbidden(f"{key.name!r} is an admin's key: only an admin may revoke it")
    if key.role == KeyRole.ADMIN and not force and _is_last(key, access.lock_admin_keys(session, now)):
        raise Conflict(
            f"{key.name!r} is the last admin key, or all others expire earlier: without it nobody can create keys or "
            "enrol devices. Create another admin key first, or confirm with force (edgefront key revoke --force)",
            field="force",
        )
    if key.revoked_at is None:
        key.revoked_at = now
        access.ended(session)


def _is_last(key: ApiKey, valid: Sequence[ApiKey]) -> bool:
    """Whether it is among these keys, and none of the others is valid for as long."""

    def lasts_as_long(other: ApiKey) -> bool:
        if other.expires_at is None or key.expires_at is None:
            return other.expires_at is None
        return other.expires_at >= key.expires_at

    return key in valid and not any(other is not key and lasts_as_long(other) for other in valid)


def confirm(session: Session, principal: Principal, now: datetime) -> None:
    """Raises `Unauthenticated` if the caller's key has ended since the request was authenticated. What makes secrets
    calls it in its transaction. A use case that locks a device calls it after that: whoever ends its credentials has
    locked it too.
    """
    if not access.is_valid(session, principal.key_id, now):
        raise Unauthenticated("the key was revoked, or has expired")


def key_view(key: ApiKey, secret: str | None = None) -> KeyView:
    """The API's view of a key; `secret` only in the response that created it."""
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
    """Opens a browser session and returns its cookie's secret; it expires after a week, or with the key."""
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
    """The principal of a cookie's secret; Unauthenticated if the session or its key has ended."""
    row = access.key_by_cookie_hash(session, hash_secret(secret), now)
    if row is None:
        raise Unauthenticated("the browser session has ended; sign in again")
    key, device_state, ends_at = row
    principal = _principal((key, device_state), now)
    return replace(principal, expires_at=ends_at if key.expires_at is None else min(ends_at, key.expires_at))


def close_web_session(session: Session, secret: str) -> None:
    """Ends a browser session; an unknown one is no error."""
    session.execute(delete(WebSession).where(WebSession.secret_hash == hash_secret(secret)))
    access.ended(session)


def purge_web_sessions(session: Session, now: datetime) -> None:
    """Deletes browser sessions that have expired."""
    session.execute(delete(WebSession).where(WebSession.expires_at <= now))
