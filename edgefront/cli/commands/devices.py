"""`edgefront device …`, `edgefront token …` and `edgefront key …`: manage devices, enrolment tokens and API keys."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from edgefront.cli.commands.options import DeviceName, KeyId, TokenId
from edgefront.cli.session import Session, command, group, state_commands
from edgefront.client.show.output import NONE, gigabytes, moment, share
from edgefront.client.show.table import Table
from edgefront.core.common.addresses import is_loopback
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import WAITS, DeviceState

if TYPE_CHECKING:
    from edgefront.core.schemas.service import DeviceView, EnrolmentTokenView


app = group("Devices: list, drain, trust, revoke, enrol again.")


@command(app, "list")
def list_devices(session: Session) -> None:
    """List the devices."""
    devices = list(session.client.devices.list())

    table = Table.of(
        devices,
        {
            "name": lambda device: device.name,
            "class": lambda device: device.device_class,
            "state": state_in_words,
            "runtimes": lambda device: ", ".join(runtime.runtime for runtime in device.facts.runtimes),
            "cores": lambda device: str(device.facts.cores),
            "memory": lambda device: gigabytes(device.facts.memory_bytes),
            "measuring": lambda device: share(device.measuring_share),
            "seen": lambda device: moment(device.last_seen_at),
            "id": lambda device: device.id,
        },
        right=("cores", "memory", "measuring"),
        wrap=("runtimes",),
        drop_first=("id", "measuring", "cores", "memory", "seen", "runtimes"),
    )
    session.put(devices, table)
    if not devices:
        session.note(f"no device is enrolled: {NO_DEVICE}")


@command(app, "show")
def show_device(session: Session, device: DeviceName) -> None:
    """Show all facts of a device, and the history of its anchor."""
    view = session.client.devices.get(device)
    anchor = session.client.devices.anchor(device)

    facts = view.facts
    rows: dict[str, str | None] = {
        "name": view.name,
        "id": view.id,
        "class": view.device_class,
        "owner": view.owner,
        "state": state_in_words(view),
        "quarantine": view.quarantine,
        "seen": moment(view.last_seen_at),
        "enrolled": moment(view.enrolled_at),
        "holds": f"{view.leased} launches",
        "measuring": f"{share(view.measuring_share)} of its time" if view.measuring_share is not None else None,
        "host": facts.hostname,
        "system": facts.system,
        "processor": f"{facts.cpu}, {facts.architecture}",
        "cores": str(facts.cores),
        "memory": gigabytes(facts.memory_bytes),
        **{
            f"GPU {number}": ", ".join(" ".join(_with_unit(*fact)) for fact in gpu.items() if fact[1] is not None)
            or NONE
            for number, gpu in enumerate(facts.gpus)
        },
        "modes": ", ".join(facts.modes),
        **dict(_with_unit(name, value) for name, value in facts.extra.items() if value is not None),
        "features": " ".join(facts.cpu_features),
    }

    def show() -> None:
        table = Table("device", "value", wrap=("value",))
        for name, value in rows.items():
            if value:
                table.add_row(name, value)
        session.out.print(table)
        table = Table(
            *("runtime", "version", "provider", "computes in", "memory by"),
            wrap=("computes in", "memory by"),
            drop_first=("memory by", "version"),
        )
        for runtime in facts.runtimes:
            for provider in runtime.providers:
                formats, methods = runtime.numbers.get(provider, ("float32",)), runtime.memory_methods
                table.add_row(runtime.runtime, runtime.version, provider, ", ".join(formats), ", ".join(methods))
        session.out.print(table)
        if not anchor.points:
            session.out.print("Anchor: not measured yet")
            return
        table = Table.of(
            anchor.points[-MAX_ANCHOR_ROWS:],
            {
                "anchor": lambda point: moment(point.measured_at),
                "on": lambda point: point.provider,
                "ms": lambda point: f"{point.latency_ms:.3f}",
                "MHz": lambda point: "" if point.clock_mhz is None else f"{point.clock_mhz:g}",
                "load": lambda point: "" if point.load_1m is None else f"{point.load_1m:g}",
                "°C": lambda point: "" if point.temperature_c is None else f"{point.temperature_c:g}",
                "mark": lambda point: point.mark or "",
            },
            right=("ms", "MHz", "load", "°C"),
            wrap=("mark",),
            drop_first=("load", "°C", "MHz", "on"),
            title="Anchor",
        )
        session.out.print(table)

    session.put({**view.model_dump(mode="json"), "anchor": anchor}, show)


_UNITS = {
    "_gb_per_s": ("_bandwidth", "GB/s"),
    "_gflops": ("_compute", "GFLOP/s"),
    "_mhz": ("", "MHz"),
    "_s": ("", "s"),
    "_c": ("", "°C"),
    "_w": ("", "W"),
}
"""Suffix of a fact's name → its replacement, and the unit. Of two matching suffixes the longer comes first."""


MAX_ANCHOR_ROWS = 24


def _with_unit(name: str, value: Any) -> tuple[str, str]:
    """Returns a name without unit and the value as text with unit: (`memory_bytes`, 16000000000) gives (memory, 16.0
    GB), and (`core_gflops`, 37.5) gives (core compute, 37.5 GFLOP/s).
    """
    if name.endswith("_bytes") and isinstance(value, int):
        return name.removesuffix("_bytes").replace("_", " "), gigabytes(value)
    for suffix, (replacement, unit) in _UNITS.items():
        if name.endswith(suffix) and isinstance(value, int | float) and not isinstance(value, bool):
            return (name.removesuffix(suffix) + replacement).replace("_", " "), f"{value:g} {unit}"
    return name.replace("_", " "), "yes" if value is True else "no" if value is False else str(value)


state_commands(
    app,
    "devices",
    DeviceName,
    {
        "drain": "Drain a device: it finishes its launches and gets no more.",
        "activate": "Activate a drained device again.",
        "trust": "End a device's quarantine: it gets launches again.",
        "revoke": "Revoke a device's credential permanently. Its measurements are kept.",
    },
    name="name",
)


@command(app, "reenrol")
def reenrol(
    session: Session,
    device: DeviceName,
    minutes: Annotated[int, typer.Option(min=1, help="Minutes until the token expires.")] = 60,
) -> None:
    """Create a token that enrols this device again, after it was revoked or has lost its credential.

    Prints the command that starts the agent with the token. The device keeps its id and its measurements.
    """
    token = session.client.devices.reenrol(device, minutes=minutes)
    show_token(session, token, token.name)


def state_in_words(device: DeviceView) -> str:
    """Returns the device's state, such as `active, offline`, `active, busy` (its latest launch was disturbed), or
    `active, in quarantine`.
    """
    words = [str(device.state)]
    if not device.online and device.state != DeviceState.REVOKED:
        words.append("offline")
    elif device.conditions is not None:
        words.append(WAITS if device.conditions == WAITS else "busy")
    if device.quarantine is not None:
        words.append("in quarantine")
    return ", ".join(words)


tokens = group("Enrolment tokens: each allows new devices to enrol.")
keys = group("API keys.")


@command(tokens, "create")
def create_token(
    session: Session,
    name: Annotated[str, typer.Option(help="Name of the token.")] = "device",
    minutes: Annotated[int, typer.Option(min=1, help="Minutes until the token expires.")] = 60,
    uses: Annotated[int, typer.Option(min=1, help="Number of devices that may enrol with it.")] = 1,
) -> None:
    """Create an enrolment token, and print the command that starts an agent with it on the device."""
    show_token(session, session.client.tokens.create(name=name, minutes=minutes, uses=uses))


def show_token(session: Session, token: EnrolmentTokenView, name: str | None = None) -> None:
    """Prints a new token's secret, which no later response contains. `name`: only this device may use the token."""

    def show() -> None:
        session.say(token.token)
        address = session.client.tokens.address()
        session.note(f"shown only once. On the device: {agent_command(address.url, token.token or '', name)}")
        if address.note:
            session.note(address.note)

    session.put(token, show)


def agent_command(url: str, token: str, name: str | None) -> str:
    """Returns the command, for any shell, that enrols a device and starts its agent. A web page shows the same."""
    parts = urlsplit(url)
    insecure = " --insecure" if parts.scheme == "http" and not is_loopback(parts.hostname or "") else ""
    device = "" if name is None else f" --name {quote(name)}"
    return f"echo {token} | edgefront agent --server {quote(url)} --token-file -{device}{insecure}"


@command(tokens, "list")
def list_tokens(session: Session) -> None:
    """List the enrolment tokens."""
    tokens = session.client.tokens.list()

    table = Table.of(
        tokens,
        {
            "id": lambda token: token.id,
            "name": lambda token: token.name,
            "uses left": lambda token: str(token.uses_left),
            "expires": lambda token: moment(token.expires_at),
            "revoked": lambda token: "yes" if token.revoked else "",
        },
        right=("uses left",),
        drop_first=("revoked", "expires"),
    )
    session.put(tokens, table)


state_commands(
    tokens, "tokens", TokenId, {"revoke": "Revoke an enrolment token. Devices that enrolled with it stay enrolled."}
)


@command(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of the key: a person or a purpose.")],
    role: Annotated[
        Literal["admin", "user", "viewer"],
        typer.Option(help="admin: everything; user: its owner's jobs; viewer: read all."),
    ] = "user",
    owner: Annotated[str | None, typer.Option(help="Owner whose jobs the key can access. Default: its name.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days until the key expires. Default: never.")] = None,
) -> None:
    """Create an API key."""
    key = session.client.keys.create(name, role=role, owner=owner, days=days)

    def show() -> None:
        session.say(key.key)
        session.note("shown only once")

    session.put(key, show)


@command(keys, "list")
def list_keys(session: Session) -> None:
    """List the API keys."""
    keys = session.client.keys.list()

    table = Table.of(
        keys,
        {
            "id": lambda key: key.id,
            "name": lambda key: key.name,
            "owner": lambda key: key.owner,
            "role": lambda key: key.role,
            "begins with": lambda key: key.prefix,
            "created": lambda key: moment(key.created_at),
            "expires": lambda key: moment(key.expires_at),
            "revoked": lambda key: "yes" if key.revoked else "",
        },
        drop_first=("begins with", "created", "owner", "expires"),
    )
    session.put(keys, table)


@command(keys, "revoke")
def revoke_key(
    session: Session,
    key_id: KeyId,
    force: Annotated[bool, typer.Option("--force", help="Even if it is the last admin key.")] = False,
) -> None:
    """Revoke an API key. The key ends everywhere within one second."""
    session.client.keys.revoke(key_id, force=force)
    session.put({"revoked": key_id}, lambda: session.note(f"revoked {key_id}"))


NO_DEVICE = "start an agent with `edgefront agent`; that of `edgefront up` needs about ten seconds"


def only_device(session: Session, option: str = "--target") -> str:
    """Returns the name of the only active device. Raises `InvalidInput`, which names `option`, for none or several."""
    active = _active_devices(session)
    if len(active) == 1:
        return active[0]
    allowed = ", ".join(active)
    draining = [device.name for device in session.client.devices.list() if device.state == DeviceState.DRAINING]
    if active:
        message = f"choose a device with {option}: the active devices are {allowed}"
    elif draining:
        message = (
            f"there is no active device: {', '.join(draining)} {'is' if len(draining) == 1 else 'are'} draining; "
            f"`edgefront device activate {draining[0]}` gives it launches again"
        )
        allowed = f"an active device, or {option} with one that is drained: the job then waits for it"
    else:
        message = f"there is no active device: {NO_DEVICE}, or name a device class"
    raise InvalidInput(message, field=option.removeprefix("--"), allowed=allowed)


def _active_devices(session: Session) -> list[str]:
    """Returns the names of the active devices. Waits for a device while this machine's embedded service starts."""
    from edgefront.client.local import default_home, is_starting

    is_waiting = False
    while True:
        names = [device.name for device in session.client.devices.list() if device.state == DeviceState.ACTIVE]
        if names or not is_starting(session.client.url, default_home()):
            return names
        if not is_waiting:
            session.note("waiting for the agent of `edgefront up` …")
            is_waiting = True
        time.sleep(0.5)
