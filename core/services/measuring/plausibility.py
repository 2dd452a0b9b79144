"""Which reported results cannot be true, from what was measured and what the device is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefront.core.errors import EdgefrontError
from edgefront.core.measurement.ceiling import ceiling
from edgefront.core.measurement.passes import latency_costs
from edgefront.core.measurement.plausible import Work, implausible
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.spaces.architecture import Architecture


def refusals(launches: Sequence[Any], subjects: Mapping[str, Any], devices: Mapping[str, Any]) -> dict[str, str]:
    """Launch id → why its result cannot be true; launches whose result can be are left out.

    Args:
        launches: rows of `launches.lock_reported`. subjects, devices: `belief.subjects` and `belief.devices` of them.
    """
    found = {}
    for launch in launches:
        if launch.result["outcome"] == "done" and launch.device_id in devices:
            why = _refusal(launch, subjects[launch.measurement_id], devices[launch.device_id].facts)
            if why is not None:
                found[launch.id] = why
    return found


def _refusal(launch: Any, subject: Any, facts: Mapping[str, Any]) -> str | None:
    protocol = PROTOCOL.read_or(subject.protocol, None)
    work = None if protocol is None else _work(subject, protocol)
    if protocol is None or work is None:  # of a form that this release does not have
        return None
    begun = launch.started_at or launch.created_at
    elapsed_s = (launch.finished_at - begun).total_seconds()
    return implausible(launch.result, work, ceiling(facts, protocol, work.read_bytes), elapsed_s)


def _work(subject: Any, protocol: MeasurementProtocol) -> Work | None:
    translates = subject.architecture.get("source") is not None
    # What is stored counts the whole generation, also where one of its times is the latency.
    of_part = protocol.mode == "generate" and protocol.latency != "total"
    if subject.flops is not None and not of_part:
        return Work.of(subject, protocol, translates=translates)
    try:
        costs = latency_costs(Architecture.model_validate(subject.architecture), protocol)
    except EdgefrontError:
        return None
    return Work.of(costs, protocol, translates=translates)
