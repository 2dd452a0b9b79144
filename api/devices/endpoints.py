"""`/v1/devices`: the fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from edgefront.api.context import Context
from edgefront.api.docs import examples
from edgefront.api.docs.openapi import answer, errors
from edgefront.api.http.auth import Anyone, Here, Person
from edgefront.api.http.parameters import Cursor, DeviceName
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices
from edgefront.core.services.measuring import handover
from edgefront.core.store.tables import Device
from edgefront.core.wire.agent import EnrolResponse
from edgefront.core.wire.service import DevicePage, DeviceView

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.get("", operation_id="list_devices", summary="List devices", responses=answer(examples.DEVICE_PAGE))
def list_devices(
    person: Person, here: Here, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> DevicePage:
    """Devices are shared: every user sees them and may use them in jobs."""
    with here.database.read() as session:
        return devices.list_devices(session, person, here.database.now(session), cursor=cursor, limit=limit)


@router.get(
    "/{device_id}",
    operation_id="get_device",
    summary="One device",
    responses={**answer(examples.DEVICE), **errors(404)},
)
def get_device(device: DeviceName, asker: Anyone, here: Here) -> DeviceView:
    """An agent can access only its own device."""
    with here.database.read() as session:
        found = devices.get_device(session, asker, device)
        return devices.view(session, found, here.database.now(session))


@router.post(
    "/{device_id}/drain",
    operation_id="drain_device",
    summary="Drain a device: no further work",
    responses={**answer(examples.DEVICE), **errors(404, 409)},
)
def drain_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    """It finishes its current launch. For its owner or an admin."""
    return _steer(here, devices.drain_device, person, device)


@router.post(
    "/{device_id}/activate",
    operation_id="activate_device",
    summary="End a drain",
    responses={**answer(examples.DEVICE), **errors(404, 409)},
)
def activate_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    return _steer(here, devices.activate_device, person, device)


@router.post(
    "/{device_id}/revoke",
    operation_id="revoke_device",
    summary="Revoke a device's credential",
    responses={**answer(examples.DEVICE), **errors(404, 409)},
)
def revoke_device(device: DeviceName, person: Person, here: Here) -> DeviceView:
    """Its measurements are kept; its launches go to other devices. To use the device again, enrol it again."""
    view = _steer(here, handover.revoke_device, person, device)
    here.credentials.forget()
    return view


@router.post(
    "/{device_id}/rotate",
    operation_id="rotate_credential",
    summary="Replace a device's credential",
    responses={**answer(examples.ENROL_RESPONSE), **errors(404, 409)},
)
def rotate_credential(device: DeviceName, asker: Anyone, here: Here) -> EnrolResponse:
    """The old one becomes invalid within seconds. For the device itself, its owner or an admin."""
    with here.database.write() as session:
        answer_ = devices.rotate_credential(session, asker, device, here.database.now(session))
    here.credentials.forget()
    return answer_


def _steer(
    here: Context, verb: Callable[[Session, Principal, str, datetime], Device], person: Principal, device: str
) -> DeviceView:
    with here.database.write() as session:
        now = here.database.now(session)
        found = verb(session, person, device, now)
        view = devices.view(session, found, now)
    here.changed()
    here.call_device(view.id)
    return view
