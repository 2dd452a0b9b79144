"""What a measurement says when one more of its launches has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import LogLaunches, median, p90
from edgefront.core.store.tables import Measurement


def add_done(
    measurement: Measurement, result: LaunchResult, earlier: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """Takes a done launch into its measurement.

    Args:
        earlier: results of the measurement's done launches before this one, as JSON.

    Latency is the median over launches of each launch's median; p90 is over all their samples together, once there
    are enough; memory and build peak are medians over launches.
    """
    if result.latency is None or result.memory is None:
        raise ValueError("a done launch has latency and memory")
    samples = [tuple(past["latency"]["samples_ms"]) for past in earlier] + [result.latency.samples_ms]
    medians = [median(launch) for launch in samples]
    past = LogLaunches(measurement.launches, measurement.log_mean or 0.0, measurement.log_m2 or 0.0)
    logs = past.with_launch(medians[-1])
    measurement.state = "measured"
    measurement.reason = None
    measurement.launches = logs.count
    measurement.log_mean = logs.mean
    measurement.log_m2 = logs.sum_squares
    measurement.latency_ms = median(medians)
    measurement.latency_p90_ms = p90([sample for launch in samples for sample in launch])
    measurement.memory_bytes = _middle(earlier, "peak_bytes", result.memory.peak_bytes)
    measurement.build_peak_bytes = _middle(earlier, "build_peak_bytes", result.memory.build_peak_bytes)
    measurement.measured_at = now


def add_bad_end(measurement: Measurement, state: str, reason: str, now: datetime) -> bool:
    """Marks a measurement as infeasible or failed, unless an earlier launch has measured it; True if it is marked."""
    if measurement.launches:
        return False
    measurement.state = state
    measurement.reason = reason
    measurement.measured_at = now
    return True


def _middle(earlier: Sequence[Mapping[str, Any]], part: str, latest: int) -> int:
    return round(median([*(past["memory"][part] for past in earlier), latest]))
