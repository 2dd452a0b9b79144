"""Which reported results cannot be true, from what was measured and what the device is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from edgefront.core.errors import EdgefrontError
from edgefront.core.measurement.ceiling import ceiling
from edgefront.core.measurement.passes import generation_passes, protocol_costs
from edgefront.core.measurement.plausible import GenerationWork, Work, implausible
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.spaces.architecture import Architecture


class _Asked(NamedTuple):
    """What the launches of one measurement had to do."""

    protocol: MeasurementProtocol
    work: Work
    generation: GenerationWork | None


def refusals(launches: Sequence[Any], subjects: Mapping[str, Any], devices: Mapping[str, Any]) -> dict[str, str]:
    """Launch id → why its result cannot be true; launches whose result can be are left out.

    Args:
        launches: rows of `launches.lock_reported`. subjects, devices: `belief.subjects` and `belief.devices` of them.
    """
    found: dict[str, str] = {}
    asked: dict[str, _Asked | None] = {}
    for launch in launches:
        if launch.result["outcome"] == "done" and launch.device_id in devices:
            if launch.measurement_id not in asked:
                asked[launch.measurement_id] = _asked(subjects[launch.measurement_id])
            why = _refusal(launch, asked[launch.measurement_id], devices[launch.device_id].facts)
            if why is not None:
                found[launch.id] = why
    return found


def _refusal(launch: Any, asked: _Asked | None, facts: Mapping[str, Any]) -> str | None:
    if asked is None:
        return None
    begun = launch.started_at or launch.created_at
    elapsed_s = (launch.finished_at - begun).total_seconds()
    bound = ceiling(facts, asked.protocol, asked.work.read_bytes)
    return implausible(launch.result, asked.work, bound, elapsed_s, asked.generation)


def _asked(subject: Any) -> _Asked | None:
    """None of a form that this release does not have."""
    protocol = PROTOCOL.read_or(subject.protocol, None)
    if protocol is None:
        return None
    translates = subject.architecture.get("source") is not None
    if protocol.mode != "generate" and subject.flops is not None:
        return _Asked(protocol, Work.of(subject, protocol, translates=translates), None)
    try:
        architecture = Architecture.model_validate(subject.architecture)
        if protocol.mode == "generate":
            return _generation(architecture, protocol)
        return _Asked(protocol, Work.of(protocol_costs(architecture, protocol), protocol, translates=translates), None)
    except EdgefrontError:
        return None


def _generation(architecture: Architecture, protocol: MeasurementProtocol) -> _Asked:
    """Every time of a generation is held against its own passes, whichever of them is the latency."""
    passes = generation_passes(architecture, protocol)
    first_token, token = (Work.of(costs, protocol, translates=False) for costs in passes)
    total = replace(first_token, flops=first_token.flops + (protocol.new_tokens - 1) * token.flops)
    work = {"total": total, "first_token": first_token, "token": token}[protocol.latency]
    return _Asked(
        protocol, work, GenerationWork(first_token, token, protocol.new_tokens, protocol.batch, protocol.latency)
    )
