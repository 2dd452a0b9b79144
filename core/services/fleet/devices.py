"""Devices: enrolment, credentials, facts, draining and revocation.

Devices are shared: every user sees all of them and may use them in jobs; only the owner or an admin may revoke one.
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
from edgefront.core.services.access import queries as access
from edgefront.core.services.access.keys import (
    REVOKED,
    DeviceCredential,
    Principal,
    create_key,
    hash_secret,
    new_secret,
)
from edgefront.core.services.fleet import queries as rows
from edgefront.core.services.fleet.capability import reported
from edgefront.core.services.fleet.instances import ONLINE
from edgefront.core.services.stored import RowReader
from edgefront.core.store.clock import elapsed_s
from edgefront.core.store.tables import ApiKey, Device, EnrolmentToken


def first_used(session: Session, key_id: str, now: datetime) -> None:
    """Ends the device's older credentials. `Unauthenticated` if this one has ended meanwhile."""
    key = session.get(ApiKey, key_id)
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
    device = locked(session, principal, id_or_name)
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


def check_protocol_version(version: int) -> None:
    """Raises `Conflict` unless the agent uses this server's protocol version."""
    if version != PROTOCOL_VERSION:
        older = "agent" if version < PROTOCOL_VERSION else "server"
        raise Conflict(
            f"the agent speaks protocol version {version}, this server {PROTOCOL_VERSION}: update the {older}",
            protocol_version=PROTOCOL_VERSION,
        )


def create_enrolment_token(
    session: Session, principal: Principal, request: EnrolmentTokenRequest, now: datetime
) -> tuple[EnrolmentToken, str]:
    """A token that enrols devices for the principal's owner, and its secret. Forbidden unless admin."""
    principal.require(KeyRole.ADMIN)
    secret = new_secret("efe")
    token = EnrolmentToken(
        name=request.name,
        owner=principal.owner,
        secret_hash=hash_secret(secret),
        created_at=now,
        expires_at=now + timedelta(minutes=request.minutes),
        max_uses=request.uses,
        uses=0,
    )
    session.add(token)
    session.flush()
    return token, secret


def list_enrolment_tokens(session: Session, principal: Principal) -> list[EnrolmentTokenView]:
    """All tokens, including used and expired ones. Forbidden unless admin."""
    principal.require(KeyRole.ADMIN)
    return [token_view(token) for token in session.scalars(select(EnrolmentToken).order_by(EnrolmentToken.id))]


def get_enrolment_token(session: Session, principal: Principal, token_id: str) -> EnrolmentTokenView:
    """One token, with the devices that have enrolled by it. Forbidden unless admin; NotFound if there is none."""
    principal.require(KeyRole.ADMIN)
    token = session.get(EnrolmentToken, token_id)
    if token is None:
        raise NotFound(f"no enrolment token {token_id}")
    enrolled = tuple(access.enrolled_by(session, token_id))
    return token_view(token).model_copy(update={"enrolled": enrolled})


def revoke_enrolment_token(session: Session, principal: Principal, token_id: str, now: datetime) -> None:
    """Revokes a token; devices that enrolled with it stay enrolled. Revoking twice changes nothing.

    For admins, and for the owner of the device that it was made for. `Forbidden` for others; `NotFound` if there is
    none.
    """
    token = session.get(EnrolmentToken, token_id)
    of_device = token is not None and token.device_id is not None and principal.may_change(token.owner)
    principal.require(KeyRole.USER if of_device else KeyRole.ADMIN)
    if token is None:
        raise NotFound(f"no enrolment token {token_id}")
    token.revoked_at = token.revoked_at or now


def token_view(token: EnrolmentToken, secret: str | None = None) -> EnrolmentTokenView:
    """The API's view of a token; `secret` only in the response that created it."""
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

    A token enrols new devices, or the one that it was made for (`reenrolment_token`): that one keeps its id
    and its measurements, and its old credential ends. `measuring.leases.enrol` also releases the launches of
    its old agent. A request that is sent again because its answer did not arrive is answered again, as long as the
    credential was not used; where others have the token too, only with the nonce of the first one.

    Raises:
        Unauthenticated: the token is unknown, expired, revoked or used up.
        Conflict: the name is another device's than the token's, or the token's device is online; the protocol versions
        differ.
    """
    check_protocol_version(request.protocol_version)
    is_token = token_secret.startswith("efe_")
    token = access.enrolment_token_by_hash(session, hash_secret(token_secret)) if is_token else None
    if token is None:
        raise Unauthenticated("this enrolment token does not exist on this server; tokens start with efe_")
    if token.revoked_at is not None:
        raise Unauthenticated("this enrolment token was revoked")
    if token.expires_at <= now:
        raise Unauthenticated(f"this enrolment token expired at {token.expires_at:%Y-%m-%d %H:%M} UTC; get a new one")
    device = rows.lock_by_name(session, request.name)
    nonce = None if request.nonce is None else hash_secret(request.nonce)
    if device is not None and access.is_unused(session, device.id, token, nonce):
        access.revoke_pending_keys(session, device.id, now)
        token.uses -= 1
    elif token.uses >= token.max_uses:
        raise Unauthenticated("this enrolment token is used up; get a new one")
    elif token.device_id is not None:
        device = _again(session, device, token, now)
    else:
        device = rows.insert_device(session, request, token.owner, now)
        if device is None:
            raise Conflict(
                f"there is a device {request.name!r}: choose another name, or use a token made for this device by its "
                "owner (edgefront device reenrol)",
                field="name",
            )
    device.device_class = request.device_class
    device.facts = reported(request.facts)
    device.protocol_version = request.protocol_version
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


def _again(session: Session, device: Device | None, token: EnrolmentToken, now: datetime) -> Device:
    """The device that the token was made for, without its old credentials."""
    if device is None or device.id != token.device_id:
        raise Conflict(f"this token is for the device {token.name!r}: start its agent with this name", field="name")
    if device.state != DeviceState.REVOKED and _online(device, now):
        raise Conflict(
            f"the device {device.name!r} is online: stop its agent for {ONLINE.seconds} s, or revoke it, to enrol it "
            "again"
        )
    access.revoke_device_keys(session, device.id, now)
    return device


def list_devices(
    session: Session, principal: Principal, now: datetime, *, cursor: str | None = None, limit: int = 100
) -> DevicePage:
    """All devices in the order of their enrolment; `cursor` is the last id of the previous page."""
    principal.require(KeyRole.USER, KeyRole.VIEWER)
    devices = rows.page(session, cursor, limit + 1)
    more = len(devices) > limit
    page = devices[:limit]
    return DevicePage(items=tuple(views(session, page, now)), next_cursor=page[-1].id if more else None)


def get_device(session: Session, principal: Principal, id_or_name: str) -> Device:
    """A device by id or name. A device can access only itself. NotFound if there is none."""
    device = rows.find(session, id_or_name)
    if device is None or (principal.role == KeyRole.AGENT and principal.device_id != device.id):
        names = [] if principal.role == KeyRole.AGENT else rows.names(session)
        way_on = f"; {existing(id_or_name, names, 'edgefront device list')}" if names else ""
        raise NotFound(f"no device {id_or_name!r}{way_on}")
    return device


def own_device(session: Session, device_id: str) -> rows.OwnDevice:
    """The device behind a device credential. NotFound if there is none, Gone if it was revoked."""
    device = rows.own(session, device_id)
    if device is None:
        raise NotFound(f"no device {device_id}")
    if device.state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    return device


def drain_device(session: Session, principal: Principal, id_or_name: str, _now: datetime) -> Device:
    """The device gets no further launches, but may finish those that it holds. Draining twice changes nothing."""
    device = _unrevoked(session, principal, id_or_name)
    device.state = DeviceState.DRAINING
    return device


def activate_device(session: Session, principal: Principal, id_or_name: str, _now: datetime) -> Device:
    """Ends draining. Gone if the device was revoked: it has to enrol again."""
    device = _unrevoked(session, principal, id_or_name)
    device.state = DeviceState.ACTIVE
    return device


def _unrevoked(session: Session, principal: Principal, id_or_name: str) -> Device:
    device = locked(session, principal, id_or_name)
    if device.state == DeviceState.REVOKED:
        raise Gone(REVOKED)
    return device


def trust_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """Ends the device's quarantine; what its anchor takes from now on is usual. Gone if it was revoked."""
    device = _unrevoked(session, principal, id_or_name)
    device.quarantine = device.failing = None
    device.trusted_at = now
    return device


def revoke_device(session: Session, principal: Principal, id_or_name: str, now: datetime) -> Device:
    """Revokes the device's credential, and the tokens that enrol it again. `measuring.leases` also releases the
    launches that it holds.
    """
    device = locked(session, principal, id_or_name)
    access.revoke_tokens_for(session, device.id, now)
    if device.state != DeviceState.REVOKED:
        device.state = DeviceState.REVOKED
        access.revoke_device_keys(session, device.id, now)
    return device


def locked(session: Session, principal: Principal, id_or_name: str, *, itself: bool = False) -> Device:
    """The device, for its owner or an admin, and for the device itself if `itself`. `Forbidden` for others."""
    device = rows.lock(session, get_device(session, principal, id_or_name).id)
    if device is None:
        raise NotFound(f"no device {id_or_name}")
    if not (itself and principal.device_id == device.id):
        principal.require(KeyRole.USER)
        if not principal.may_change(device.owner):
            raise Forbidden(
                f"the device {device.name!r} belongs to {device.owner}: only the owner or an admin may do this"
            )
    return device


def update_facts(session: Session, device_id: str, facts: DeviceFacts) -> None:
    """Stores the facts that an agent reports when its process starts."""
    device = session.get_one(Device, device_id)
    device.facts = reported(facts)


def view(session: Session, device: Device, now: datetime) -> DeviceView:
    """The API's view of a device."""
    return views(session, [device], now)[0]


def views(session: Session, devices: Sequence[Device], now: datetime) -> list[DeviceView]:
    """Views of devices, in a fixed number of queries."""
    leased = rows.leased_counts(session, [device.id for device in devices])
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
        ),
        leased=leased,
        measuring_share=min(1.0, device.measuring_s / device.busy_s) if device.busy_s > 0 else None,
        quarantine=device.quarantine,
    )


def _online(device: Device, now: datetime) -> bool:
    return device.last_seen_at is not None and elapsed_s(device.last_seen_at, now) < ONLINE.total_seconds()
