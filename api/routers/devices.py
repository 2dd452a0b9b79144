"""`/v1/devices`, `/v1/enrolment-tokens`, `/v1/address`: the devices, and what new devices need to join."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import datetime
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Body, Query, Request
from sqlalchemy.orm import Session

from edgefront.api.context import AppContext, Context, CurrentAdmin, CurrentPrincipal, CurrentUser, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.parameters import Cursor, DeviceName, TokenId
from edgefront.api.http.routes import JsonRoute
from edgefront.core.common.addresses import is_local, is_loopback
from edgefront.core.common.logs import add_log_facts
from edgefront.core.schemas.service import (
    AddressView,
    AnchorView,
    DevicePage,
    DeviceView,
    DeviceWork,
    EnrolmentTokenRequest,
    EnrolmentTokenView,
    ReenrolRequest,
)
from edgefront.core.services.access import keys
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import anchors, device_queue, leases
from edgefront.core.services.settings import HttpSettings
from edgefront.core.store.tables import Device

router = APIRouter(prefix="/v1", tags=["devices"], route_class=JsonRoute)


@router.get("/devices", summary="List devices", responses=answer(example("device_page")))
def list_devices(
    viewer: CurrentViewer, context: AppContext, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> DevicePage:
    """Lists the devices, which are shared: every user sees them and may use them in jobs."""
    with context.database.read() as session:
        return devices.list_devices(session, viewer, context.database.now(session), cursor=cursor, limit=limit)


@router.get("/devices/{device_id}", summary="One device", responses=answer(example("device"), 404))
def get_device(device: DeviceName, principal: CurrentPrincipal, context: AppContext) -> DeviceView:
    """Returns one device. An agent can access only its own device."""
    with context.database.read() as session:
        row = devices.get_device(session, principal, device)
        return devices.view(session, row, context.database.now(session))


@router.post(
    "/devices/{device_id}/drain",
    summary="Drain a device: no further work",
    responses=answer(example("device"), 404, 409),
)
def drain_device(device: DeviceName, user: CurrentUser, context: AppContext) -> DeviceView:
    """Stops giving work to the device after its current launch. Permitted to its owner and to admins."""
    return _command(context, devices.drain_device, user, device)


@router.post("/devices/{device_id}/activate", summary="End a drain", responses=answer(example("device"), 404, 409))
def activate_device(device: DeviceName, user: CurrentUser, context: AppContext) -> DeviceView:
    return _command(context, devices.activate_device, user, device)


@router.post(
    "/devices/{device_id}/trust", summary="End a device's quarantine", responses=answer(example("device"), 404, 409)
)
def trust_device(device: DeviceName, user: CurrentUser, context: AppContext) -> DeviceView:
    """Lets the device get launches again. Permitted to its owner and to admins."""
    return _command(context, devices.trust_device, user, device)


@router.get(
    "/devices/{device_id}/anchor", summary="The history of a device's anchor", responses=answer(example("anchor"), 404)
)
def get_device_anchor(device: DeviceName, principal: CurrentPrincipal, context: AppContext) -> AnchorView:
    """Returns latencies and conditions of the anchor, a small reference model that every device measures regularly."""
    with context.database.read() as session:
        return anchors.anchor_view(session, principal, device)


@router.get(
    "/devices/{device_id}/work",
    summary="What a device does now, and what waits for it",
    responses=answer(example("device_work"), 404),
)
def get_device_work(device: DeviceName, viewer: CurrentViewer, context: AppContext) -> DeviceWork:
    """Returns the device's current launch and its waiting jobs. Jobs of other owners are counted, not named."""
    with context.database.read() as session:
        return device_queue.device_work(session, viewer, device)


@router.post(
    "/devices/{device_id}/revoke", summary="Revoke a device's credential", responses=answer(example("device"), 404, 409)
)
def revoke_device(device: DeviceName, user: CurrentUser, context: AppContext) -> DeviceView:
    """Revokes the device's credential. Its measurements are kept; its launches go to other devices. To use the device
    again, enrol it again (`reenrol`).
    """
    view = _command(context, leases.revoke_device, user, device)
    context.credentials.forget()
    return view


@router.post(
    "/devices/{device_id}/reenrol",
    status_code=201,
    summary="Create a token that enrols this device again",
    responses=answer(example("reenrol_made"), 404, status=201, description="The token; its secret is shown only once"),
)
def reenrol_device(
    device: DeviceName,
    user: CurrentUser,
    context: AppContext,
    body: Annotated[ReenrolRequest, Body(openapi_examples=sample(example("reenrol_request")))],
) -> EnrolmentTokenView:
    """Creates a token for a device that was revoked or has lost its credential; the device keeps its id and its
    measurements. Only such a token can take over a device. The token is for one use, made by the device's owner or an
    admin.
    """
    with context.database.write() as session:
        now = context.database.now(session)
        keys.require_valid_key(session, user, now)
        token, secret = devices.reenrolment_token(session, user, device, body, now)
        add_log_facts(made=token.id)
        return devices.token_view(token, secret)


def _command(
    context: Context, verb: Callable[[Session, Principal, str, datetime], Device], principal: Principal, device: str
) -> DeviceView:
    with context.database.write() as session:
        now = context.database.now(session)
        row = verb(session, principal, device, now)
        view = devices.view(session, row, now)
    context.changed()
    context.call_device(view.id)
    return view


@router.post(
    "/enrolment-tokens",
    status_code=201,
    summary="Create an enrolment token",
    responses=answer(example("token_made"), status=201, description="The token; its secret is shown only once"),
)
def create_enrolment_token(
    request: Annotated[EnrolmentTokenRequest, Body(openapi_examples=sample(example("token_request")))],
    admin: CurrentAdmin,
    context: AppContext,
) -> EnrolmentTokenView:
    with context.database.write() as session:
        now = context.database.now(session)
        keys.require_valid_key(session, admin, now)
        token, secret = devices.create_enrolment_token(session, admin, request, now)
        add_log_facts(made=token.id)
        return devices.token_view(token, secret)


@router.get("/enrolment-tokens", summary="List enrolment tokens", responses=answer([example("token")]))
def list_enrolment_tokens(admin: CurrentAdmin, context: AppContext) -> list[EnrolmentTokenView]:
    with context.database.read() as session:
        return devices.list_enrolment_tokens(session, admin)


@router.get(
    "/enrolment-tokens/{token_id}",
    summary="One enrolment token, and the devices that enrolled with it",
    responses=answer(example("token_used"), 404),
)
def get_enrolment_token(token_id: TokenId, admin: CurrentAdmin, context: AppContext) -> EnrolmentTokenView:
    with context.database.read() as session:
        return devices.get_enrolment_token(session, admin, token_id)


@router.delete(
    "/enrolment-tokens/{token_id}",
    status_code=204,
    summary="Revoke an enrolment token",
    responses={204: {"description": "Revoked"}, **errors(404)},
)
def revoke_enrolment_token(token_id: TokenId, user: CurrentUser, context: AppContext) -> None:
    """Revokes a token. Devices that enrolled with it stay enrolled. A token for one device can also be revoked by that
    device's owner.
    """
    with context.database.write() as session:
        devices.revoke_enrolment_token(session, user, token_id, context.database.now(session))


LOCAL_ONLY = (
    "This service listens on its own machine alone, so other devices do not reach it. Start it on an address of the "
    "network (edgefront up --host, with a TLS certificate or EDGEFRONT_HTTP__INSECURE=true), or put a proxy in front "
    "and set EDGEFRONT_HTTP__URL to its address."
)
BY_ITSELF = "Found by itself. If devices reach the service at another address, change it here."


@router.get("/address", summary="The address at which devices reach this service", responses=answer(example("address")))
def get_address(_viewer: CurrentViewer, request: Request, context: AppContext) -> AddressView:
    """Returns `EDGEFRONT_HTTP__URL` if it is set; else the address of this request, with the path below which a proxy
    serves the service, unless that address is a loopback; else this machine's address in its network.
    """
    return reachable(context.settings.http, str(request.base_url).rstrip("/"))


def reachable(http: HttpSettings, base_url: str) -> AddressView:
    """Returns the address at which devices reach the service. `base_url` is that of the current request."""
    if http.url is not None:
        return AddressView(url=http.url.rstrip("/"), local_only=False)
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if not is_loopback(host):
        return AddressView(url=base_url, local_only=False)
    if is_local(http.host):
        return AddressView(url=base_url, local_only=True, note=LOCAL_ONLY)
    own = _own_address() if _is_any(http.host) else http.host
    if own is None or is_loopback(own):
        return AddressView(url=base_url, local_only=True, note=BY_ITSELF)
    shown = f"[{own}]" if ":" in own else own
    port = "" if parts.port is None else f":{parts.port}"
    return AddressView(url=f"{parts.scheme}://{shown}{port}{parts.path}", local_only=False, note=BY_ITSELF)


def _is_any(host: str) -> bool:
    """Whether the host stands for every address of the machine, like 0.0.0.0."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _own_address() -> str | None:
    """Returns this machine's address for connections to other machines; None if unknown. Sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            connection.connect(("192.0.2.1", 9))  # RFC 5737: reserved for documentation
        except OSError:
            return None
        address: str = connection.getsockname()[0]
        return address
