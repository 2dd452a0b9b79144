"""`edgefront device …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefront.commands.access import show_token
from edgefront.commands.base import Session, command, group
from edgefront.commands.default_device import NO_DEVICE
from edgefront.commands.options import DeviceName
from edgefront.core.states import DeviceState

if TYPE_CHECKING:
    from edgefront.core.wire.service import DeviceView

app = group("Devices: list, drain, trust, revoke, enrol again.")


@command(app, "list")
def list_devices(session: Session) -> None:
    """List the devices."""
    from edgefront.show.output import gigabytes, moment, share, table

    devices = list(session.client.devices.list())

    def show() -> None:
        shown = table(
            "name", "class", "state", "runtimes", "cores", "memory", "measuring", "seen", "id",
            right=("cores", "memory", "measuring"), prose=("runtimes",),
            less=("id", "measuring", "cores", "memory", "seen", "runtimes"),
        )  # fmt: skip
        for device in devices:
            shown.add_row(
                device.name,
                device.device_class,
                state_in_words(device),
                ", ".join(runtime.runtime for runtime in device.facts.runtimes),
                str(device.facts.cores),
                gigabytes(device.facts.memory_bytes),
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
    """Show all facts that a device reports, and the history of its anchor."""
    view = session.client.devices.get(device)
    anchor = session.client.devices.anchor(device)

    def show() -> None:
        from edgefront.show.anchors import anchor_table
        from edgefront.show.devices import facts_table, runtimes_table

        session.out.print(facts_table(view, state_in_words(view)))
        session.out.print(runtimes_table(view))
        if anchor.points:
            session.out.print(anchor_table(anchor.points))
        else:
            session.out.print("Anchor: not measured yet")

    session.put({**view.model_dump(mode="json"), "anchor": anchor}, show)


@command(app, "drain")
def drain(session: Session, device: DeviceName) -> None:
    """Drain a device: it finishes its launches and gets no more."""
    _steered(session, session.client.devices.drain(device))


@command(app, "activate")
def activate(session: Session, device: DeviceName) -> None:
    """Activate a drained device again."""
    _steered(session, session.client.devices.activate(device))


@command(app, "trust")
def trust(session: Session, device: DeviceName) -> None:
    """End a device's quarantine: it gets launches again."""
    _steered(session, session.client.devices.trust(device))


@command(app, "revoke")
def revoke(session: Session, device: DeviceName) -> None:
    """Revoke a device's credential permanently. Its measurements are kept."""
    _steered(session, session.client.devices.revoke(device))


@command(app, "reenrol")
def reenrol(
    session: Session,
    device: DeviceName,
    minutes: Annotated[int, typer.Option(min=1, help="Minutes until the token expires.")] = 60,
) -> None:
    """Create a token that enrols this device again, after it was revoked or has lost its credential.

    It prints the command that starts the agent with it. The device keeps its id and its measurements.
    """
    token = session.client.devices.reenrol(device, minutes=minutes)
    show_token(session, token, token.name)


def state_in_words(device: DeviceView) -> str:
    """`active, offline`, `draining`, `active, in quarantine`."""
    words = [str(device.state)]
    if not device.online and device.state != DeviceState.REVOKED:
        words.append("offline")
    if device.quarantine is not None:
        words.append("in quarantine")
    return ", ".join(words)


def _steered(session: Session, device: DeviceView) -> None:
    session.put(device, lambda: session.out.print(f"{device.name} {device.state}", markup=False))
