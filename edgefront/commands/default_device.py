"""The device of commands that name none: the only active one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.commands.base import Session
from edgefront.core.states import DeviceState

if TYPE_CHECKING:
    from edgefront.core.wire.service import DeviceView

NO_DEVICE = "start an agent with `edgefront agent`; that of `edgefront up` needs about ten seconds"


def only_device(session: Session, option: str = "--target") -> str:
    """The name of the only active device.

    Raises:
        InvalidInput: there is none, or more than one. It names `option`, with which a device is chosen.
    """
    from edgefront.core.errors import InvalidInput

    devices = _active(session)
    if len(devices) == 1:
        return devices[0].name
    names = ", ".join(device.name for device in devices)
    draining = (
        []
        if names
        else [device.name for device in session.client.devices.list() if device.state == DeviceState.DRAINING]
    )
    if draining:
        raise InvalidInput(
            f"there is no active device: {', '.join(draining)} {'is' if len(draining) == 1 else 'are'} draining; "
            f"`edgefront device activate {draining[0]}` gives it launches again",
            field=option.removeprefix("--"),
            allowed=f"an active device, or {option} with one that is drained: the job then waits for it",
        )
    raise InvalidInput(
        f"choose a device with {option}: the active devices are {names}"
        if names
        else f"there is no active device: {NO_DEVICE}, or name a device class",
        field=option.removeprefix("--"),
        allowed=names,
    )


def _active(session: Session) -> list[DeviceView]:
    """The active devices. Waits for a first one while an embedded service on this machine starts its agent."""
    import time

    from edgefront.local import default_home, is_starting

    noted = False
    while True:
        devices = [device for device in session.client.devices.list() if device.state == DeviceState.ACTIVE]
        if devices or not is_starting(session.client.url, default_home()):
            return devices
        if not noted:
            session.note("waiting for the agent of `edgefront up` …")
            noted = True
        time.sleep(0.5)
