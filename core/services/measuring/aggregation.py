"""What a measurement says, from all its launches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edgefront.core.measurement.protocol import Latency
from edgefront.core.measurement.record import GenerationSamples, LaunchResult
from edgefront.core.measurement.statistics import LogLaunches, median, p90
from edgefront.core.states import MeasurementState
from edgefront.core.store.tables import Measurement


def aggregate(measurement: Measurement, results: Sequence[LaunchResult], now: datetime) -> None:
    """Makes a measurement what its done launches say.

    Args:
        results: of all its done launches (at least one), oldest first.

    Latency is the median over launches of each launch's median; p90 is over all their samples together, once there
    are enough; memory and build peak are medians over launches. The times of generations are
    medians as the latency, their energy is the median of the launches that know it.
    """
    samples = [result.timed.samples_ms for result in results]
    medians = [median(launch) for launch in samples]
    logs = LogLaunches()
    for value in medians:
        logs = logs.with_launch(value)
    measurement.state = MeasurementState.MEASURED
    measurement.reason = None
    measurement.launches = logs.count
    measurement.log_mean = logs.mean
    measurement.log_m2 = logs.sum_squares
    measurement.latency_ms = median(medians)
    measurement.latency_p90_ms = p90([sample for launch in samples for sample in launch])
    measurement.memory_bytes = _middle([result.peak.peak_bytes for result in results])
    measurement.build_peak_bytes = _middle([result.peak.build_peak_bytes for result in results])
    _aggregate_generation(measurement, [result.generation for result in results if result.generation is not None])
    measurement.measured_at = now


def _aggregate_generation(measurement: Measurement, generations: Sequence[GenerationSamples]) -> None:
    def middle(latency: Latency) -> float | None:
        return median([median(samples.times(latency)) for samples in generations]) if generations else None

    measurement.first_token_ms = middle("first_token")
    measurement.token_ms = middle("token")
    measurement.total_ms = middle("total")
    measurement.tokens_per_s = None
    if measurement.total_ms:
        tokens = measurement.protocol["new_tokens"] * measurement.protocol["batch"]
        measurement.tokens_per_s = 1000 * tokens / measurement.total_ms
    energies = [samples.energy_token_mj for samples in generations if samples.energy_token_mj is not None]
    measurement.energy_token_mj = median(energies) if energies else None


def add_bad_end(measurement: Measurement, state: MeasurementState, reason: str, now: datetime) -> bool:
    """Marks a measurement as infeasible or failed, unless an earlier launch has measured it; True if it is marked."""
    if measurement.launches:
        return False
    measurement.state = state
    measurement.reason = reason
    measurement.measured_at = now
    return True


def _middle(sizes: Sequence[int]) -> int:
    return round(median(sizes))
