"""Assigns the targets of a request to devices, and checks that these can measure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from edgefront.core.errors import Conflict, InvalidInput, NotFound, SpaceError
from edgefront.core.services.fleet import queries as device_rows
from edgefront.core.services.fleet.capability import can_run, lacking, numbers_of, refusal
from edgefront.core.services.jobs.plan import MIB, Plan, plan_for
from edgefront.core.services.jobs.queries import jobs as rows
from edgefront.core.services.jobs.queries.candidates import MAX_BASELINES
from edgefront.core.services.quality.scoring import proxy_of
from edgefront.core.store.tables import Device
from edgefront.core.validation import short
from edgefront.core.wire.jobs import JobRequest, TargetRequest

EXAMPLES = 200
"""Number of architectures sampled to describe a space in an error message."""


@dataclass(frozen=True)
class Place:
    """`device_key` is `device:<id>` or `class:<name>`; `name` is the target's, unique within its job."""

    device_key: str
    name: str


def place(session: Session, request: JobRequest) -> list[Place]:
    """Checks a request against devices, space and algorithm, and returns the place of each target.

    A device may be offline or draining: the job waits for it.

    Raises:
        InvalidInput: the space, the algorithm, the baselines or a target are invalid; names the field.
        NotFound: no such device or class. Conflict: the device was revoked.
    """
    _check_narrowing(request)
    proxy_of(request)
    found: list[Place] = []
    for index, target in enumerate(request.targets):
        field = f"targets.{index}"
        device_key, label, candidates = _devices(session, target, field)
        _check_runtime(target, candidates, label, field)
        _check_search(request, target, field)
        found.append(Place(device_key, _name(target, label, found, field)))
    return found


def _check_narrowing(request: JobRequest) -> None:
    """Refuses repeated values, which bounds the size of stored requests. The gene accepts them, for jobs of earlier
    releases.
    """
    for gene, wanted in request.space.narrow.items():
        seen: set[str] = set()
        for value in wanted if isinstance(wanted, list) else ():
            if repr(value) in seen:
                raise SpaceError(
                    f"space.narrow.{gene}: {short(value)} occurs more than once in the list",
                    field=f"space.narrow.{gene}",
                    value=value,
                    allowed="each value once",
                )
            seen.add(repr(value))


def _devices(session: Session, target: TargetRequest, field: str) -> tuple[str, str, Sequence[Device]]:
    """Device key, its name for people, and the devices behind it."""
    if target.device is not None:
        device = device_rows.find(session, target.device)
        if device is None:
            raise NotFound(f"no device {target.device!r} is enrolled", field=f"{field}.device", value=target.device)
        if device.state == "revoked":
            raise Conflict(f"device {device.name!r} was revoked; enrol it again to use it")
        return f"device:{device.id}", device.name, [device]
    classes = rows.device_classes(session)
    name = target.device_class
    if name is None:
        if len(classes) != 1:
            raise InvalidInput(
                f"{field}: give device or device_class, one of: " + (", ".join(classes) or "none is enrolled yet"),
                field=f"{field}.device_class",
                allowed=", ".join(classes),
            )
        name = classes[0]
    if name not in classes:
        raise NotFound(
            f"no device of class {name!r} is enrolled; there are {', '.join(classes) or 'none yet'}",
            field=f"{field}.device_class",
            value=name,
        )
    device_key = f"class:{name}"
    return device_key, name, rows.devices_of(session, device_key)


def _check_runtime(target: TargetRequest, devices: Sequence[Device], label: str, field: str) -> None:
    protocol = target.protocol
    if any(can_run(device.facts, protocol) for device in devices):
        return
    facts = [device.facts for device in devices]
    wish = (
        f"{label!r} cannot measure {protocol.runtime} on {protocol.provider} in {protocol.number} with "
        f"{protocol.threads} threads and memory by {protocol.memory}"
    )
    missing = lacking(facts, protocol)
    if missing is None:  # a device has reported it as unsupported
        reason = next(
            filter(None, (refusal(known, protocol) for known in facts)), "a device reported it as unsupported"
        )
        raise InvalidInput(
            f"{field}.protocol: {wish}: {reason}",
            field=f"{field}.protocol",
            value=protocol.model_dump(mode="json"),
            allowed="another protocol",
        )
    known = sorted(
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
    raise InvalidInput(
        f"{field}.protocol.{name}: {wish}; it has {'; '.join(known)}; up to {cores} threads",
        field=f"{field}.protocol.{name}",
        value=getattr(protocol, name),
        allowed=allowed,
    )


def _check_search(request: JobRequest, target: TargetRequest, field: str) -> None:
    plan = plan_for(request, target.protocol, target.limits)
    bounds = request.parameters
    if bounds.min_decoder is not None and bounds.max_decoder is not None and bounds.min_decoder > bounds.max_decoder:
        raise InvalidInput(
            f"parameters.min_decoder {bounds.min_decoder} is above max_decoder {bounds.max_decoder}: no model fits",
            field="parameters.min_decoder",
            value=bounds.min_decoder,
            allowed=f"at most {bounds.max_decoder}",
        )
    baselines = plan.baselines()
    if not 1 <= len(baselines) <= MAX_BASELINES:
        raise InvalidInput(
            f"baseline_layers: 1 to {MAX_BASELINES} depths are measured, not {len(baselines)}",
            field="baseline_layers",
            value=request.baseline_layers,
            allowed="depths of the stock model; absent: every depth of the space",
        )
    try:
        for baseline in baselines:
            plan.costs(baseline)
    except InvalidInput as error:
        raise InvalidInput(
            f"{field}.protocol.{error.detail}",
            field=f"{field}.protocol.{error.field}",
            value=error.value,
            allowed=error.allowed,
        ) from None
    _check_limits(plan, target, field)


def _check_limits(plan: Plan, target: TargetRequest, field: str) -> None:
    """Raises `InvalidInput` if no architecture is within the limits on parameters and weights."""
    if plan.permitted():
        return
    bounds, memory_mb = plan.request.parameters, target.limits.memory_mb
    rng = np.random.default_rng(0)
    drawn = [plan.costs(plan.space.architecture(plan.space.sample(rng))) for _ in range(EXAMPLES)]
    spreads = [
        f"{min(values):,} to {max(values):,} {name}"
        for name, values in (
            ("decoder parameters", [one.decoder_parameters for one in drawn]),
            ("parameters in all", [one.total_parameters for one in drawn]),
            ("MiB of weights", [one.weight_bytes // MIB for one in drawn]),
        )
    ]
    given = bounds.model_dump(exclude_none=True)
    cause: str = "parameters"
    value: Any = given
    if not given:
        cause, value = f"{field}.limits.memory_mb", memory_mb
    elif len(given) == 1 and memory_mb is None:
        ((name, value),) = given.items()
        cause = f"parameters.{name}"
    raise InvalidInput(
        f"no architecture of {plan.space.name} was found within these limits; most have {'; '.join(spreads)}",
        field=cause,
        value=value,
        allowed="wider limits, or a space narrowed to models within them",
    )


def _name(target: TargetRequest, label: str, others: Sequence[Place], field: str) -> str:
    taken = {other.name for other in others}
    if target.name is not None:
        if target.name in taken:
            raise InvalidInput(
                f"{field}.name: two targets of the job are called {target.name!r}",
                field=f"{field}.name",
                value=target.name,
                allowed="a different name for each target",
            )
        return target.name
    protocol = target.protocol
    where = "" if protocol.provider == "cpu" else f" {protocol.provider}"
    wanted = name = f"{label} {protocol.runtime}{where}"
    number = 2
    while name in taken:
        name, number = f"{wanted} {number}", number + 1
    return name
