"""What a device can run, as far as the server knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.measurement.protocol import MeasurementProtocol
from core.store.tables import Device

_UNSUPPORTED = "unsupported:"
_MAX_EXTRA = 60  # DeviceFacts.extra holds 64


def device_keys(device: Device) -> tuple[str, str]:
    """The keys under which launches for this device are wanted, its own first."""
    return f"device:{device.id}", f"class:{device.device_class}"


def can_run(facts: Mapping[str, Any], protocol: MeasurementProtocol) -> bool:
    """Whether a device with these facts (`core.wire.agent.DeviceFacts` as JSON) can measure by this protocol."""
    if protocol.threads > facts["cores"] or _UNSUPPORTED + protocol.digest[:16] in facts.get("extra", {}):
        return False
    return any(
        runtime["runtime"] == protocol.runtime
        and protocol.provider in runtime["providers"]
        and protocol.memory in runtime["memory_methods"]
        for runtime in facts["runtimes"]
    )


def refusal(facts: Mapping[str, Any], protocol: MeasurementProtocol) -> str:
    """What the device's agent said when it turned out not to support the protocol; empty if it said nothing."""
    return str(facts.get("extra", {}).get(_UNSUPPORTED + protocol.digest[:16], ""))


def without(facts: Mapping[str, Any], protocol: MeasurementProtocol, message: str) -> dict[str, Any] | None:
    """These facts with a note that the device turned out not to support the protocol; None if there is no room.

    The note ends with the next facts that the agent sends, when its process starts anew.
    """
    extra = dict(facts.get("extra", {}))
    if len(extra) >= _MAX_EXTRA:
        return None
    extra[_UNSUPPORTED + protocol.digest[:16]] = message[:200]
    return {**facts, "extra": extra}
