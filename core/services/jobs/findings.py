"""Copies a measurement's result into the rows of its candidates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from edgefront.core.measurement.generation import MEASURED
from edgefront.core.measurement.protocol import LATENCY_NAMES
from edgefront.core.services.stored import LIMITS
from edgefront.core.states import CandidateState, MeasurementState
from edgefront.core.store.tables import Candidate, Measurement, Target
from edgefront.core.units import MB, plain
from edgefront.core.wire.jobs import Limits


@dataclass(frozen=True)
class Finding:
    """A candidate's current measurement (measured, infeasible or failed).

    `half_width_ms` is half of the 95 % interval of the measurement's latency, None where unknown.
    """

    candidate: Candidate
    measurement: Measurement
    half_width_ms: float | None


def apply_result(target: Target, finding: Finding, now: datetime, *, marked: bool = False) -> bool:
    """Copies the measurement into the candidate and counts it; False while there is no result. `marked`: whether a
    launch that counts has a mark.
    """
    candidate, measurement = finding.candidate, finding.measurement
    if measurement.state == MeasurementState.WANTED:
        return False
    was_waiting = candidate.state == CandidateState.WAITING
    candidate.state = state_with(measurement, LIMITS.read(target.limits))
    candidate.reason = _reason(candidate.state, measurement, target)
    candidate.latency_ms = measurement.latency_ms
    candidate.latency_half_width_ms = finding.half_width_ms
    candidate.latency_p90_ms = measurement.latency_p90_ms
    candidate.memory_bytes = measurement.memory_bytes
    candidate.build_peak_bytes = measurement.build_peak_bytes
    for name in MEASURED:
        setattr(candidate, name, getattr(measurement, name))
    candidate.launches = measurement.launches
    candidate.marked = marked
    candidate.measured_at = measurement.measured_at
    if was_waiting:
        target.settled += 1
    # A measurement reused from another job does not start this target's clock.
    if target.started_at is None and measurement.measured_at and measurement.measured_at >= candidate.created_at:
        target.started_at = now
    return True


def state_with(measurement: Measurement, limits: Limits) -> CandidateState:
    """Measured, unconfirmed, out of bounds, infeasible or failed."""
    if measurement.state != MeasurementState.MEASURED:
        return CandidateState(measurement.state)
    return CandidateState.OUT_OF_BOUNDS if _beyond(measurement, limits) else CandidateState.MEASURED


def _beyond(measurement: Measurement, limits: Limits) -> str:
    """Which limits are exceeded, as text; empty if none."""
    words = []
    latency, memory = measurement.latency_ms, measurement.memory_bytes
    if limits.latency_ms is not None and latency is not None and latency > limits.latency_ms:
        words.append(f"latency {latency:.4g} ms is above the limit of {limits.latency_ms:g} ms")
    for name, limit in limits.times.items():
        time = getattr(measurement, f"{name}_ms")
        if time is not None and time > limit:
            words.append(f"{LATENCY_NAMES[name]} {time:.4g} ms is above the limit of {limit:g} ms")
    if limits.memory_mb is not None and memory is not None and memory > limits.memory_mb * MB:
        words.append(f"peak memory {memory / MB:.4g} MB is above the limit of {plain(limits.memory_mb)} MB")
    return "; ".join(words)


def _reason(state: CandidateState, measurement: Measurement, target: Target) -> str | None:
    if state == CandidateState.MEASURED:
        return None
    if state == CandidateState.OUT_OF_BOUNDS:
        return _beyond(measurement, LIMITS.read(target.limits))
    return measurement.reason
