"""`edgefront device …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefront.commands.base import Session, command, group
from edgefront.commands.completion import complete_device
from edgefront.commands.jobs import NO_DEVICE

if TYPE_CHECKING:
    from edgefront.core.wire.service import DeviceView

app = group("Devices: list, drain, revoke.")

DeviceName = Annotated[
    str, typer.Argument(metavar="DEVICE", help="Name or id of the device.", autocompletion=complete_device)
]


@command(app, "list")
def list_devices(session: Session) -> None:
    """List the devices."""
    from edgefront.core.units import MIB
    from edgefront.show.output import moment, share, table

    devices = list(session.client.devices.list())

    def show() -> None:
        shown = table(
            "name", "class", "state", "runtimes", "cores", "memory MiB", "measuring", "seen", "id",
            right=("cores", "memory MiB", "measuring"),
        )  # fmt: skip
        for device in devices:
            shown.add_row(
                device.name,
                device.device_class,
                device.state if device.online or device.state == "revoked" else f"{device.state}, offline",
                ", ".join(runtime.runtime for runtime in device.facts.runtimes),
                str(device.facts.cores),
                str(device.facts.memory_bytes // MIB),
                share(device.measuring_share),
                moment(device.last_seen_at),
                device.id,
            )
        session.out.print(shown)
        if not devices:
            session.note(f"no device is enrolled: {NO_DEVICE}")

    session.put(devices, show)


@command(app, "show")
def show_device(session: Session, device: DeviceName) -> None:
    """Show all facts that a device reports."""
    found = session.client.devices.get(device)

    def show() -> None:
        from edgefront.show.output import plain, table

        shown = table("fact", "value")
        for name, value in plain(found).items():
            for fact, of_it in value.items() if name == "facts" else ((name, value),):
                shown.add_row(fact, _readable(of_it))
        session.out.print(shown)

    session.put(found, show)


@command(app, "drain")
def drain(session: Session, device: DeviceName) -> None:
    """Drain a device: it finishes its launches and gets no more."""
    _steered(session, session.client.devices.drain(device))


@command(app, "activate")
def activate(session: Session, device: DeviceName) -> None:
    """Activate a drained device again."""
    _steered(session, session.client.devices.activate(device))


@command(app, "revoke")
def revoke(session: Session, device: DeviceName) -> None:
    """Revoke a device's credential permanently. Its measurements are kept."""
    _steered(session, session.client.devices.revoke(device))


def _steered(session: Session, device: DeviceView) -> None:
    session.put(device, lambda: session.out.print(f"{device.name} {device.state}", markup=False))


def _readable(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if isinstance(value, list | dict):
        import json

        return json.dumps(value, ensure_ascii=False)
    return str(value)
