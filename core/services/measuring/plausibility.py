"""Which reported results cannot be true, from what was measured and what the device is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from edgefront.core.errors import EdgefrontError
from edgefront.core.measurement.ceiling import ceiling
from edgefront.core.measurement.passes import generation_passes, protocol_costs
from edgefront.core.measurement.plausible import GenerationWork, Work, implausible, over_time_too_early
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.runtimes import ON_PROCESSOR
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
        why, id_ = None, launch.measurement_id
        if launch.result["outcome"] == "done" and launch.device_id in devices:
            if id_ not in asked:
                asked[id_] = _asked(subjects[id_])
            why = _refusal(launch, asked[id_], devices[launch.device_id].facts)
        elif launch.result["reason"] == "over_time":
            protocol = PROTOCOL.read_or(subjects[id_].protocol, None)
            if protocol is not None:
                why = over_time_too_early(launch.result, protocol.time_limit_s, _elapsed_s(launch))
        if why is not None:
            found[launch.id] = why
    return found


def _elapsed_s(launch: Any) -> float:
    seconds: float = (launch.finished_at - (launch.started_at or launch.created_at)).total_seconds()
    return seconds


def _refusal(launch: Any, asked: _Asked | None, facts: Mapping[str, Any]) -> str | None:
    if asked is None:
        return None
    bound = ceiling(facts, asked.protocol, asked.work.read_bytes)
    memory_bytes = _memory_bytes(facts, asked.protocol)
    return implausible(launch.result, asked.work, bound, _elapsed_s(launch), asked.generation, memory_bytes)


def _memory_bytes(facts: Mapping[str, Any], protocol: MeasurementProtocol) -> float | None:
    """What the device has of the memory that the protocol's method reads; None where its facts do not say."""
    of_gpu = protocol.provider not in ON_PROCESSOR and protocol.memory in ("allocator", "device")
    holders = facts.get("gpus", ()) if of_gpu else (facts,)
    known = [holder.get("memory_bytes") for holder in holders]
    numbers = [value for value in known if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers, default=0) or None


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
