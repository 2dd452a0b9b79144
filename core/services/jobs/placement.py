"""Assigns the targets of a request to devices, and checks that these can measure them."""

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
class Place:
    """`device_key` is `device:<id>` or `class:<name>`; `name` is the target's, unique within its job."""

    device_key: str
    name: str


def place(session: Session, request: JobRequest, faults: ErrorCollector) -> dict[int, Place]:
    """The place of each target, by its position in the request; why others have none (`place_target`) goes to `faults`.

    A device may be offline or draining: the job waits for it.
    """
    places: dict[int, Place] = {}

    def place_at(position: int) -> None:
        with within("targets", position):
            target = request.targets[position]
            places[position] = place_target(session, target, [other.name for other in places.values()])

    for position in range(len(request.targets)):
        faults.collect(partial(place_at, position))
    return places


def place_target(session: Session, target: TargetRequest, taken: Collection[str]) -> Place:
    """The place of one target, whose name is none of those that are taken.

    Raises:
        InvalidInput: no device of the target can measure by its protocol; names the field within the target.
        NotFound: no such device or class.
        Conflict: the device was revoked.
    """
    device_key, label, candidates = find_devices(session, target)
    check_runtime(target, candidates, label)
    return Place(device_key, _name(target, label, taken))


def find_devices(session: Session, target: TargetRequest) -> tuple[str, str, Sequence[Device]]:
    """Device key, its name for people, and the devices behind it. Errors as in `place_target`."""
    if target.device is not None:
        device = device_queries.find(session, target.device)
        if device is None:
            names = existing(target.device, device_queries.names(session), "edgefront device list")
            wrong = _mistaken_runtime(session, target.device)
            wrong = wrong or f"no device {target.device!r} is enrolled; {names}"
            raise NotFound(wrong, field="device", value=target.device)
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


def _mistaken_runtime(session: Session, name: str) -> str:
    """What to say of `local:tensorrt`, where `local` is a device: it is the runtime that is unknown."""
    parts = name.split(":")
    split = next((at for at in range(1, len(parts)) if device_queries.find(session, ":".join(parts[:at]))), None)
    if split is None:
        return ""
    device = device_queries.find(session, ":".join(parts[:split]))
    has = [] if device is None else [str(runtime["runtime"]) for runtime in device.facts["runtimes"]]
    if parts[split] in has:
        here = ":".join(parts[:split])
        return f"{name!r} is the device {here!r}: give its runtime {parts[split]!r} as the runtime of the protocol"
    return f"{parts[split]!r} is no runtime of {':'.join(parts[:split])!r}, which has {', '.join(has) or 'none'}"


def check_runtime(target: TargetRequest, devices: Sequence[Device], label: str) -> None:
    """`InvalidInput` that names the field unless one of the devices can measure by the target's protocol."""
    protocol = target.protocol
    if any(can_run(device.facts, protocol) for device in devices):
        return
    facts = [device.facts for device in devices]
    wish = (
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
            f"protocol: {wish}: {reason}",
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
        f"protocol.{name}: {wish}; it has {'; '.join(offers)}; up to {cores} threads"
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
    where = "" if protocol.provider == "cpu" else f" {protocol.provider}"
    base = name = f"{label} {protocol.runtime}{where}"
    number = 2
    while name in taken:
        name, number = f"{base} {number}", number + 1
    return name
