"""`/v1/devices`: the fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query
from sqlalchemy.orm import Session

from edgefront.api.context import Context
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, errors, sample
from edgefront.api.http.auth import Anyone, Here, Person, Reader
from edgefront.api.http.json_body import JsonRoute
from edgefront.api.http.parameters import Cursor, DeviceName
from edgefront.core.services.access import keys
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import credentials, devices
from edgefront.core.services.measuring import anchors, device_queue, release_leases
from edgefront.core.store.tables import Device
from edgefront.core.wire.service import (
    AnchorView,
    DevicePage,
    DeviceView,
    DeviceWork,
    EnrolmentTokenView,
    ReenrolRequest,
)

router = APIRouter(prefix="/v1/devices", tags=["devices"], route_class=JsonRoute)


@router.get("", summary="List devices", responses=answer(example("device_page")))
def list_devices(
    person: Reader, here: Here, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> DevicePage:
    """Devices are shared: every user sees them and may use them in jobs."""
    with here.database.read() as session:
        return devices.list_devices(session, person, here.database.now(session), cursor=cursor, limit=limit)


@router.get(
    "/{device_id}",
    summary="One device",
    responses={**answer(example("device")), **errors(404)},
)
def get_device(device: DeviceName, asker: Anyone, here: Here) -> DeviceView:
    """An agent can access only its own device."""
    with here.database.read() as session:
        row = devices.get_device(session, asker, device)
        return devices.view(session, row, here.database.now(session))


@router.post(
    "/{device_id}/drain",
    summary="Drain a device: no further work",
    responses={**answer(example("device")), **errors(404, 409)},
)
def drain_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    """The device finishes its current launch first. Permitted to its owner and to admins."""
    return _command(here, devices.drain_device, person, device)


@router.post(
    "/{device_id}/activate",
    summary="End a drain",
    responses={**answer(example("device")), **errors(404, 409)},
)
def activate_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    return _command(here, devices.activate_device, person, device)


@router.post(
    "/{device_id}/trust",
    summary="End a device's quarantine",
    responses={**answer(example("device")), **errors(404, 409)},
)
def trust_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    """The device gets launches again. Permitted to its owner and to admins."""
    return _command(here, devices.trust_device, person, device)


@router.get(
    "/{device_id}/anchor",
    summary="The history of a device's anchor",
    responses={**answer(example("anchor")), **errors(404)},
)
def get_device_anchor(device: DeviceName, asker: Anyone, here: Here) -> AnchorView:
    """The anchor is a small fixed model that every device measures regularly: its latencies and their conditions."""
    with here.database.read() as session:
        return anchors.anchor_view(session, asker, device)


@router.get(
    "/{device_id}/work",
    summary="What a device does now, and what waits for it",
    responses={**answer(example("device_work")), **errors(404)},
)
def get_device_work(device: DeviceName, person: Reader, here: Here) -> DeviceWork:
    """Jobs of other owners are counted, not named."""
    with here.database.read() as session:
        return device_queue.device_work(session, person, device)


@router.post(
    "/{device_id}/revoke",
    summary="Revoke a device's credential",
    responses={**answer(example("device")), **errors(404, 409)},
)
def revoke_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    """Its measurements are kept; its launches go to other devices. To use it again, enrol it again (`reenrol`)."""
    view = _command(here, release_leases.revoke_device, person, device)
    here.credentials.forget()
    return view


@router.post(
    "/{device_id}/reenrol",
    status_code=201,
    summary="Create a token that enrols this device again",
    responses={
        **answer(example("reenrol_made"), status=201, description="The token; its secret is shown only once"),
        **errors(404),
    },
)
def reenrol_device(
    device: DeviceName,
    person: Person,
    here: Here,
    body: Annotated[ReenrolRequest, Body(openapi_examples=sample(example("reenrol_request")))],
) -> EnrolmentTokenView:
    """For a device that was revoked or has lost its credential: it keeps its id and its measurements. No other token
    takes over a device. The token is for one use; it is made by the device's owner or an admin.
    """
    with here.database.write() as session:
        now = here.database.now(session)
        keys.confirm(session, person, now)
        token, secret = credentials.reenrolment_token(session, person, device, body, now)
        return devices.token_view(token, secret)


def _command(
    here: Context, verb: Callable[[Session, Principal, str, datetime], Device], person: Principal, device: str
) -> DeviceView:
    with here.database.write() as session:
        now = here.database.now(session)
        row = verb(session, person, device, now)
        view = devices.view(session, row, now)
    here.changed()
    here.call_device(view.id)
    return view
