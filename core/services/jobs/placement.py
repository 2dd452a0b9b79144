"""Assigns the targets of a job's request to devices, and checks that the devices can run the targets' protocols."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, ErrorCollector, InvalidInput, NotFound, within
from edgefront.core.common.states import DeviceState
from edgefront.core.common.validation import existing
from edgefront.core.measurement.runtimes import INSTALLATIONS
from edgefront.core.schemas.jobs import JobRequest, TargetRequest
from edgefront.core.services.fleet import queries as device_queries
from edgefront.core.services.fleet.capability import can_run, first_unsupported, numbers_of, unsupported_reason
from edgefront.core.services.fleet.device_keys import key_of_class, key_of_device
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.store.tables import Device


@dataclass(frozen=True)
class Placement:
    """Device key of a target (`device:<id>` or `class:<name>`), and a name of the target, unique within the job."""

    device_key: str
    name: str


def place_targets(session: Session, request: JobRequest, errors: ErrorCollector) -> dict[int, Placement]:
    """Position of the target in the request → placement of the target. Adds the errors of `place_target` to `errors`.

    A device may be offline or draining, because a job waits for devices.
    """
    placements: dict[int, Placement] = {}

    def place_at(position: int) -> None:
        with within("targets", position):
            taken = [placement.name for placement in placements.values()]
            placements[position] = place_target(session, request.targets[position], taken)

    for position in range(len(request.targets)):
        errors.collect(partial(place_at, position))
    return placements


def place_target(session: Session, target: TargetRequest, taken: Collection[str]) -> Placement:
    """Returns the placement of one target, with a name that is not in `taken`.

    Raises:
        InvalidInput: no device of the target can run the protocol; the error names the field within the target.
        NotFound: the device or class does not exist.
        Conflict: the device was revoked.
    """
    device_key, label, candidates = find_devices(session, target)
    check_runtime(target, candidates, label)
    return Placement(device_key, _name(target, label, taken))


def find_devices(session: Session, target: TargetRequest) -> tuple[str, str, Sequence[Device]]:
    """Returns a target's device key, display name and devices. Raises the errors of `place_target`."""
    if target.device is not None:
        device = device_queries.find(session, target.device)
        if device is None:
            message = _unknown_runtime(session, target.device)
            if not message:
                names = existing(target.device, device_queries.names(session), "edgefront device list")
                message = f"no device {target.device!r} is enrolled; {names}"
            raise NotFound(message, field="device", value=target.device)
        if device.state == DeviceState.REVOKED:
            raise Conflict(f"device {device.name!r} was revoked; enrol it again to use it")
        return key_of_device(device.id), device.name, [device]
    classes = job_queries.device_classes(session)
    name = target.device_class
    if name is None:
        if len(classes) != 1:
            raise InvalidInput(
                "device_class: give device or device_class, one of: " + (", ".join(classes) or "none is enrolled yet"),
                field="device_class",
                allowed=", ".join(classes),
            )
        name = classes[0]
    if name not in classes:
        raise NotFound(
            f"no device of class {name!r} is enrolled; {existing(name, classes, 'edgefront device list')}",
            field="device_class",
            value=name,
        )
    device_key = key_of_class(name)
    return device_key, name, job_queries.devices_of(session, device_key)


def _unknown_runtime(session: Session, name: str) -> str:
    """Returns an error message for a name like `local:tensorrt` if `local` is a device; empty for other names."""
    parts = name.split(":")
    for split in range(1, len(parts)):
        prefix, runtime = ":".join(parts[:split]), parts[split]
        device = device_queries.find(session, prefix)
        if device is not None:
            runtimes = [str(facts["runtime"]) for facts in device.facts["runtimes"]]
            if runtime in runtimes:
                return f"{name!r} is the device {prefix!r}: give its runtime {runtime!r} as the runtime of the protocol"
            return f"{runtime!r} is not a runtime of {prefix!r}, which has {', '.join(runtimes) or 'none'}"
    return ""


def check_runtime(target: TargetRequest, devices: Sequence[Device], label: str) -> None:
    """Raises `InvalidInput`, with the field, if no device can run the target's protocol."""
    protocol = target.protocol
    if any(can_run(device.facts, protocol) for device in devices):
        return
    facts = [device.facts for device in devices]
    problem = (
        f"{label!r} cannot measure {protocol.runtime} on {protocol.provider} in {protocol.number_format} with "
        f"{protocol.threads} threads and memory by {protocol.memory}"
        + (f", with keys and values in {protocol.kv_cache}" if protocol.kv_cache else "")
    )
    missing = first_unsupported(facts, protocol)
    if missing is None:  # a device has reported it as unsupported
        reason = next(
            filter(None, (unsupported_reason(device_facts, protocol) for device_facts in facts)),
            "a device reported it as unsupported",
        )
        raise InvalidInput(
            f"protocol: {problem}: {reason}",
            field="protocol",
            value=protocol.model_dump(mode="json"),
            allowed="another protocol",
        )
    offers = sorted(
        {
            f"{runtime['runtime']} on {provider} (in {', '.join(numbers_of(runtime, provider))}; "
            f"memory: {', '.join(runtime['memory_methods'])})"
            for device in facts
            for runtime in device["runtimes"]
            for provider in runtime["providers"]
        }
    )
    cores = max(device["cores"] for device in facts)
    name, allowed = missing
    install = f"; {protocol.runtime} comes with its agent's extra {INSTALLATIONS[protocol.runtime].extra}"
    raise InvalidInput(
        f"protocol.{name}: {problem}; it has {'; '.join(offers)}; up to {cores} threads"
        + (install if name == "runtime" else "")
        + ("; its agent is of an earlier release: update the agent" if name == "kv_cache" else ""),
        field=f"protocol.{name}",
        value=getattr(protocol, name),
        allowed=allowed,
    )


def _name(target: TargetRequest, label: str, taken: Collection[str]) -> str:
    if target.name is not None:
        if target.name in taken:
            raise InvalidInput(
                f"name: two targets of the job are called {target.name!r}",
                field="name",
                value=target.name,
                allowed="a different name for each target",
            )
        return target.name
    protocol = target.protocol
    provider = "" if protocol.provider == "cpu" else f" {protocol.provider}"
    base = name = f"{label} {protocol.runtime}{provider}"
    number = 2
    while name in taken:
        name, number = f"{base} {number}", number + 1
    return name
