"""Devices: enrolment, credentials, reported hardware, draining and revocation.

All users share all devices: everybody sees them and may use them in jobs. Only the owner or an admin may change a
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, Forbidden, Gone, NotFound, Unauthenticated
from edgefront.core.common.states import DeviceState, KeyRole
from edgefront.core.common.validation import existing
from edgefront.core.schemas.agent import (
    PROTOCOL_VERSION,
    DeviceFacts,
    EnrolRequest,
    EnrolResponse,
)
from edgefront.core.schemas.service import (
    DevicePage,
    DeviceView,
    EnrolmentTokenRequest,
    EnrolmentTokenView,
    ReenrolRequest,
)
from edgefront.core.services.access import queries as access_queries
from edgefront.core.services.access.keys import (
    REVOKED,
    DeviceCredential,
    Principal,
    create_key,
    hash_secret,
    new_secret,
)
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.fleet.capability import reported_facts
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.stored import RowReader
from edgefront.core.store.clock import elapsed_s
from edgefront.core.store.tables import ApiKey, Device, EnrolmentToken


def first_used(session: Session, key_id: str, now: datetime) -> None:
    """Revokes a device's older keys when this key is first used. Raises `Unauthenticated` if this key was revoked."""
    key = session.get(ApiKey, key_id)
    if key is None or key.device_id is None:
        raise Unauthenticated("the key was revoked")
    device_queries.lock(session, key.device_id)  # before reading the key, because every revocation locks the device
    session.refresh(key)
    if key.revoked_at is not None:
        raise Unauthenticated("the key was revoked")
    key.pending = False
    access_queries.revoke_device_keys(session, key.device_id, now, exclude=key.id)


def reenrolment_token(
    session: Session, principal: Principal, id_or_name: str, request: ReenrolRequest, now: datetime
) -> tuple[EnrolmentToken, str]:
    """Creates a token that re-enrols this device once, and revokes the device's earlier tokens. Returns the token and
    its secret.

    The device must be offline or revoked. Raises `Forbidden` unless the caller is the device's owner or an admin.
    """
    device = locked(session, principal, id_or_name)
    access_queries.revoke_tokens_for(session, device.id, now)
    return _add_token(
        session, now, request.minutes, name=device.name, owner=device.owner, device_id=device.id, max_uses=1
    )


def check_protocol_version(version: int) -> None:
    """Raises `Conflict` unless the agent has this server's protocol version."""
    if version != PROTOCOL_VERSION:
        older = "agent" if version < PROTOCOL_VERSION else "server"
        raise Conflict(
            f"the agent has protocol version {version}, but this server has {PROTOCOL_VERSION}; update the {older}",
            protocol_version=PROTOCOL_VERSION,
        )


def create_enrolment_token(
    session: Session, principal: Principal, request: EnrolmentTokenRequest, now: datetime
) -> tuple[EnrolmentToken, str]:
    """Creates a token that enrols devices for the caller's owner. Returns the token and its secret. For admins only."""
    principal.require(KeyRole.ADMIN)
    return _add_token(session, now, request.minutes, name=request.name, owner=principal.owner, max_uses=request.uses)


def _add_token(session: Session, now: datetime, minutes: float, **values: object) -> tuple[EnrolmentToken, str]:
    secret = new_secret("efe")
    expires_at = now + timedelta(minutes=minutes)
    token = EnrolmentToken(secret_hash=hash_secret(secret), created_at=now, expires_at=expires_at, uses=0, **values)
    session.add(token)
    session.flush()
    return token, secret


def list_enrolment_tokens(session: Session, principal: Principal) -> list[EnrolmentTokenView]:
    """Returns all enrolment tokens, including used and expired ones. For admins only."""
    principal.require(KeyRole.ADMIN)
    return [token_view(token) for token in session.scalars(select(EnrolmentToken).order_by(EnrolmentToken.id))]


def get_enrolment_token(session: Session, principal: Principal, token_id: str) -> EnrolmentTokenView:
    """Returns a token with the devices that enrolled with it. For admins only. `NotFound` for an unknown token."""
    principal.require(KeyRole.ADMIN)
    token = session.get(EnrolmentToken, token_id)
    if token is None:
        raise NotFound(f"no enrolment token {token_id}")
    enrolled = tuple(access_queries.enrolled_by(session, token_id))
    return token_view(token).model_copy(update={"enrolled": enrolled})


def revoke_enrolment_token(session: Session, principal: Principal, token_id: str, now: datetime) -> None:
    """Revokes a token. Devices that enrolled with it stay enrolled. Idempotent.

    For admins, and for the device's owner if the token re-enrols one device. Raises `Forbidden` for other callers, and
    `NotFound` for an unknown token.
    """
    token = session.get(EnrolmentToken, token_id)
    is_own = token is not None and token.device_id is not None and principal.can_change(token.owner)
    principal.require(KeyRole.USER if is_own else KeyRole.ADMIN)
    if token is None:
        raise NotFound(f"no enrolment token {token_id}")
    token.revoked_at = token.revoked_at or now


def token_view(token: EnrolmentToken, secret: str | None = None) -> EnrolmentTokenView:
    """Returns the API's view of a token. `secret` is given only for the response to the token's creation."""
    return EnrolmentTokenView(
        id=token.id,
        name=token.name,
        expires_at=token.expires_at,
        uses_left=max(0, token.max_uses - token.uses),
        revoked=token.revoked_at is not None,
        device_id=token.device_id,
        token=secret,
    )


def enrol(session: Session, token_secret: str, request: EnrolRequest, now: datetime) -> EnrolResponse:
    """Exchanges one use of an enrolment token for a device and its credential.

    A token enrols new devices, or re-enrols one device (`reenrolment_token`). A re-enrolled device keeps its id and its
    measurements, and loses its old credential. `measuring.leases.enrol` also releases launches of the old agent.

    If the response was lost, a client may repeat the request: an unused credential is replaced by a new one. With a
    token of several uses the repeated request needs the nonce of the first request.

    Raises:
        Unauthenticated: the token is unknown, expired, revoked or used up.
        Conflict: another device has the name, the token's device is online, or the protocol versions differ.
    """
    check_protocol_version(request.protocol_version)
    is_token = token_secret.startswith("efe_")
    token = access_queries.enrolment_token_by_hash(session, hash_secret(token_secret)) if is_token else None
    if token is None:
        raise Unauthenticated("this enrolment token does not exist on this server; tokens start with efe_")
    if token.revoked_at is not None:
        raise Unauthenticated("this enrolment token was revoked")
    if token.expires_at <= now:
        raise Unauthenticated(f"this enrolment token expired at {token.expires_at:%Y-%m-%d %H:%M} UTC; get a new one")
    device = device_queries.lock_by_name(session, request.name)
    nonce = None if request.nonce is None else hash_secret(request.nonce)
    if device is not None and access_queries.is_unused(session, device.id, token, nonce):
        access_queries.revoke_pending_keys(session, device.id, now)
        token.uses -= 1
    elif token.uses >= token.max_uses:
        raise Unauthenticated("this enrolment token is used up; get a new one")
    elif token.device_id is not None:
        device = _reenrolled(session, device, token, now)
    else:
        device = device_queries.insert_device(session, request, token.owner, now)
        if device is None:
            raise Conflict(
                f"a device {request.name!r} already exists. Choose another name, or use a token that the device's "
                "owner creates for it (edgefront device reenrol)",
                field="name",
            )
    device.device_class = request.device_class
    device.facts = reported_facts(request.facts)
    device.state = DeviceState.ACTIVE
    device.enrolled_at = now
    device.last_seen_at = device.instances = None
    token.uses += 1
    session.flush()
    _, secret = create_key(
        session,
        name=device.name,
        owner=device.owner,
        role=KeyRole.AGENT,
        now=now,
        credential=DeviceCredential(device.id, pending=True, token_id=token.id, enrolment_nonce=nonce),
    )
    return EnrolResponse(device_id=device.id, credential=secret)


def _reenrolled(session: Session, device: Device | None, token: EnrolmentToken, now: datetime) -> Device:
    """Revokes the old credentials of the token's device, and returns the device."""
    if device is None or device.id != token.device_id:
        raise Conflict(f"this token is for the device {token.name!r}: start its agent with this name", field="name")
    if device.state != DeviceState.REVOKED and _online(device, now):
        raise Conflict(
            f"the device {device.name!r} is online. To enrol it again, stop its agent for {ONLINE.seconds} s or revoke "
            "the device"
        )
    access_queries.revoke_device_keys(session, device.id, now)
    return device


def list_devices(
    session: Session, principal: Principal, now: datetime, *, cursor: str | None = None, limit: int = 100
) -> DevicePage:
    """Returns a page of all devices in the order of enrolment. `cursor` is the last id of the previous page."""
    principal.require(KeyRole.USER, KeyRole.VIEWER)
    devices = device_queries.page(session, cursor, limit + 1)
    more = len(devices) > limit
    page = devices[:limit]
    return DevicePage(items=tuple(views(session, page, now)), next_cursor=page[-1].id if more else None)


def get_device(session: Session, principal: Principal, id_or_name: str) -> Device:
    """Returns a device by id or name. An agent can access only its own device. `NotFound` for any other device."""
    device = device_queries.find(session, id_or_name)
    if device is None or (principal.role == KeyRole.AGENT and principal.device_id != device.id):
        names = [] if principal.role == KeyRole.AGENT else device_queries.names(session)
        hint = f"; {existing(id_or_name, names, 'edgefront device list')}" if names else ""
        raise NotFound(f"no device {id_or_name!r}{hint}")
    return device


def own_device(session: Session, device_id: str) -> device_queries.OwnDevice:
    """Returns the device of a credential. Raises `NotFound` for an unknown device, `Gone` for a revoked one."""
    device = device_queries.own(session, device_id)
    if device is None:
        raise NotFound(f"no device {device_id}")
    if device.state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    return device


def drain_device(session: Session, principal: Principal, id_or_name: str, _now: datetime) -> Device:
    """Leases no more launches to the device. The device may finish launches that it has already leased. Idempotent."""
    device = _unrevoked(session, principal, id_or_name)
    device.state = DeviceState.DRAINING
    return device


def activate_device(session: Session, principal: Principal, id_or_name: str, _now: datetime) -> Device:
    """Ends the draining of a device. Raises `Gone` for a revoked device, which must enrol again."""
    device = _unrevoked(session, principal, id_or_name)
    device.state = DeviceState.ACTIVE
    return device


def _unrevoked(session: Session, principal: Principal, id_or_name: str) -> Device:
    device = locked(session, principal, id_or_name)
    if device.state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    return device


def trust_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """Ends a device's quarantine, and ignores earlier failures and drift. Raises `Gone` if the device was revoked."""
    device = _unrevoked(session, principal, id_or_name)
    device.quarantine = device.failing = None
    device.trusted_at = now
    return device


def revoke_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """Revokes the device's credentials and re-enrolment tokens. `measuring.leases` also releases leased launches."""
    device = locked(session, principal, id_or_name)
    access_queries.revoke_tokens_for(session, device.id, now)
    if device.state != DeviceState.REVOKED:
        device.state = DeviceState.REVOKED
        access_queries.revoke_device_keys(session, device.id, now)
    return device


def locked(session: Session, principal: Principal, id_or_name: str, *, itself: bool = False) -> Device:
    """Locks and returns a device. `Forbidden` unless the caller is its owner, an admin or, with `itself`, its agent."""
    device = device_queries.lock(session, get_device(session, principal, id_or_name).id)
    if device is None:
        raise NotFound(f"no device {id_or_name}")
    if not (itself and principal.device_id == device.id):
        principal.require(KeyRole.USER)
        if not principal.can_change(device.owner):
            raise Forbidden(
                f"the device {device.name!r} belongs to {device.owner}: only the owner or an admin may do this"
            )
    return device


def update_facts(session: Session, device_id: str, facts: DeviceFacts) -> None:
    """Stores the facts (hardware and runtimes) that an agent process reports when the process starts."""
    session.get_one(Device, device_id).facts = reported_facts(facts)


def view(session: Session, device: Device, now: datetime) -> DeviceView:
    """Returns the API's view of a device."""
    return views(session, [device], now)[0]


def views(session: Session, devices: Sequence[Device], now: datetime) -> list[DeviceView]:
    """Returns the API's views of devices, read in a fixed number of queries."""
    leased = device_queries.leased_counts(session, [device.id for device in devices])
    return [_view(device, leased.get(device.id, 0), now) for device in devices]


def _view(device: Device, leased: int, now: datetime) -> DeviceView:
    reader = RowReader()
    facts = reader.read(lambda: DeviceFacts.model_validate(device.facts))
    return DeviceView(
        id=device.id,
        name=device.name,
        device_class=device.device_class,
        owner=device.owner,
        state=DeviceState(device.state),
        online=device.state != DeviceState.REVOKED and _online(device, now),
        last_seen_at=device.last_seen_at,
        enrolled_at=device.enrolled_at,
        facts=facts
        or DeviceFacts(
            hostname="",
            system="",
            architecture="",
            cpu=(reader.note() or "")[:200],
            cores=1,
            memory_bytes=1,
            runtimes=(),
            modes=(),
        ),
        leased=leased,
        measuring_share=min(1.0, device.measuring_s / device.busy_s) if device.busy_s > 0 else None,
        conditions=device.conditions,
        quarantine=device.quarantine,
    )


def _online(device: Device, now: datetime) -> bool:
    return device.last_seen_at is not None and elapsed_s(device.last_seen_at, now) < ONLINE.total_seconds()
