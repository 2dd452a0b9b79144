"""Which reported results cannot be true, from what was measured and what the device is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import EdgefrontError
from edgefront.core.common.states import LaunchOutcome
from edgefront.core.measurement.passes import generation_passes, protocol_costs
from edgefront.core.measurement.plausible import (
    Counted,
    GenerationWork,
    Work,
    ceiling,
    implausible,
    over_time_too_early,
)
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.services.measuring.queries.reported import ReportedLaunch, ReportingDevice, Subject
from edgefront.core.store.clock import elapsed_s
from edgefront.core.store.sql import Document


def refusals(
    launches: Sequence[ReportedLaunch], subjects: Mapping[str, Subject], devices: Mapping[str, ReportingDevice]
) -> dict[str, str]:
    """Launch id → why its result cannot be true; launches whose result can be are left out.

    Args:
        launches: with their results. subjects, devices: of them.
    """
    reasons: dict[str, str] = {}
    asked: dict[str, tuple[MeasurementProtocol, Work, GenerationWork | None] | None] = {}
    for launch in launches:
        why, id_ = None, launch.measurement_id
        if launch.result.outcome == LaunchOutcome.DONE and launch.device_id in devices:
            if id_ not in asked:
                asked[id_] = _asked(subjects[id_])
            known, facts = asked[id_], devices[launch.device_id].facts
            if known is not None:
                protocol, work, generation = known
                bound = ceiling(facts, protocol, work.read_bytes)
                memory_bytes = _memory_bytes(facts, protocol)
                why = implausible(launch.result, work, bound, _elapsed_s(launch), generation, memory_bytes)
        elif launch.result.reason == "over_time" and (limits := subjects[id_].protocol) is not None:
            why = over_time_too_early(launch.result, limits.time_limit_s, _elapsed_s(launch))
        if why is not None:
            reasons[launch.id] = why
    return reasons


def _elapsed_s(launch: ReportedLaunch) -> float:
    return elapsed_s(launch.started_at or launch.created_at, launch.finished_at)


def _memory_bytes(facts: Document, protocol: MeasurementProtocol) -> float | None:
    """What the device has of the memory that the protocol's method reads; None where its facts do not say."""
    of_gpu = not Provider(protocol.provider).shares_host_memory and protocol.memory in ("allocator", "device")
    holders = facts.get("gpus", ()) if of_gpu else (facts,)
    sizes = [holder.get("memory_bytes") for holder in holders]
    numbers = [value for value in sizes if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers, default=0) or None


def _asked(subject: Subject) -> tuple[MeasurementProtocol, Work, GenerationWork | None] | None:
    """What the launches of one measurement had to do; None for a form that this release does not have."""
    protocol = subject.protocol
    if protocol is None:
        return None
    if protocol.mode != "generate" and subject.flops is not None:
        return protocol, Work.of(cast(Counted, subject), protocol, translates=subject.translates), None
    try:
        architecture = Architecture.model_validate(subject.architecture)
        if protocol.mode != "generate":
            counted = protocol_costs(architecture, protocol)
            return protocol, Work.of(counted, protocol, translates=subject.translates), None
        passes = generation_passes(architecture, protocol)
        # Every time of a generation is held against its own passes, whichever of them is the latency.
        first_token, token = (Work.of(costs, protocol, translates=False) for costs in passes)
        total = replace(first_token, flops=first_token.flops + (protocol.new_tokens - 1) * token.flops)
        work = {"total": total, "first_token": first_token, "token": token}[protocol.latency]
        generation = GenerationWork(first_token, token, protocol.new_tokens, protocol.batch, protocol.latency)
        return protocol, work, generation
    except EdgefrontError:
        return None
