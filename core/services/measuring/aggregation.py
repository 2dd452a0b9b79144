"""What a measurement says, from all its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from edgefront.core.measurement.statistics import LogLaunches, median, p90
from edgefront.core.store.tables import Measurement


def aggregate(measurement: Measurement, results: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Makes a measurement what its done launches say.

    Args:
        results: of all its done launches (at least one), oldest first: `LaunchResult` as JSON.

    Latency is the median over launches of each launch's median; p90 is over all their samples together, once there
    are enough; memory and build peak are medians over launches. The times of generations are
    medians as the latency, their energy is the median of the launches that know it.
    """
    samples = [tuple(result["latency"]["samples_ms"]) for result in results]
    medians = [median(launch) for launch in samples]
    logs = LogLaunches()
    for value in medians:
        logs = logs.with_launch(value)
    measurement.state = "measured"
    measurement.reason = None
    measurement.launches = logs.count
    measurement.log_mean = logs.mean
    measurement.log_m2 = logs.sum_squares
    measurement.latency_ms = median(medians)
    measurement.latency_p90_ms = p90([sample for launch in samples for sample in launch])
    measurement.memory_bytes = _middle(results, "peak_bytes")
    measurement.build_peak_bytes = _middle(results, "build_peak_bytes")
    _aggregate_generation(measurement, [result.get("generation") for result in results])
    measurement.measured_at = now


def _aggregate_generation(measurement: Measurement, generations: Sequence[Mapping[str, Any] | None]) -> None:
    known = [generation for generation in generations if generation is not None]
    for time in ("first_token_ms", "token_ms", "total_ms"):
        setattr(measurement, time, median([median(one[time]) for one in known]) if known else None)
    measurement.tokens_per_s = None
    if measurement.total_ms:
        tokens = measurement.protocol["new_tokens"] * measurement.protocol["batch"]
        measurement.tokens_per_s = 1000 * tokens / measurement.total_ms
    energies = [one["energy_token_mj"] for one in known if one.get("energy_token_mj") is not None]
    measurement.energy_token_mj = median(energies) if energies else None


def add_bad_end(measurement: Measurement, state: str, reason: str, now: datetime) -> bool:
    """Marks a measurement as infeasible or failed, unless an earlier launch has measured it; True if it is marked."""
    if measurement.launches:
        return False
    measurement.state = state
    measurement.reason = reason
    measurement.measured_at = now
    return True


def _middle(results: Sequence[Mapping[str, Any]], part: str) -> int:
    return round(median([result["memory"][part] for result in results]))
