"""Whether launches agree with one another, and with what was to be expected.

All is on the logarithms of the launches' medians: a factor too much and a factor too little count alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from edgefront.core.measurement.protocol import Latency
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import LaunchVariance, median
from edgefront.core.statistics import robust_std
from edgefront.core.units import MB, MIB

MAX_APART, MIN_APART = math.log(2.0), math.log(1.3)
"""Launches further apart than the first never agree; closer than the second they always do."""
DEVICES_APART = math.log(1.5)
"""Where devices differ by more, a further one is asked, if there is one: however far launches scatter."""
SPREADS_APART = 6.0
KNOWN_SPREAD = 4
"""Degrees of freedom from which the spread of a device's launches says how close they should be."""
PEERS = 5
"""Measurements from which the speed of a device is known."""
FAR_FROM_PEERS, FAR_FROM_PREDICTED = math.log(3.0), math.log(2.0)
FAR_IN_MEMORY = math.log(1.3)
"""Peak memory varies less than latency. Of 1,600 honest ones (benchmarks/results/predict_here) none is as far off."""
MEMORY_APART, MEMORY_SLACK = math.log(1.3), 8 * MIB
"""Peak memories of launches that agree differ by no more than this factor, or than these bytes."""
PEER_SPREADS = 5.0
SAFE_LEAD = 2
"""Votes by which a majority leads that no single further one could end."""
TIMES: tuple[Latency, ...] = ("first_token", "token")
"""The times of a generation that make its total."""
MIN_LOG_DISTANCE = math.log(1.1)
"""Difference of the logarithms of two models' work from which they say how latency grows with it."""


@dataclass(frozen=True)
class Expected:
    """A latency (ms) or peak memory (bytes) that was to be expected, how far from it (a logarithm) a result may be, and
    why.
    """

    of: Literal["latency", "memory"]
    value: float
    tolerance: float
    source: str

    def is_below(self, value: float) -> bool:
        """Whether it is certainly less than this."""
        return math.log(self.value) + self.tolerance < math.log(value)

    def outlier_reason(self, value: float) -> str | None:
        """Why this value needs a second launch; None if it is not far off."""
        ratio = value / self.value
        if abs(math.log(ratio)) <= self.tolerance:
            return None
        if self.of == "memory":
            apart = f"{1 / ratio:.3g} times less" if ratio < 1 else f"{ratio:.3g} times more"
            shown, usual = f"a peak memory of {value / MB:.4g} MB", f"{self.value / MB:.4g} MB"
        else:
            apart = f"{1 / ratio:.3g} times faster" if ratio < 1 else f"{ratio:.3g} times slower"
            shown, usual = f"{value:.4g} ms", f"{self.value:.4g} ms"
        return f"unconfirmed: {shown}, {apart} than expected by {self.source} ({usual})"


@dataclass(frozen=True)
class Expectation:
    """What a launch was expected to take; None where nothing is known."""

    latency: Expected | None
    memory: Expected | None

    @property
    def is_known(self) -> bool:
        return self.latency is not None or self.memory is not None

    def outlier_reason(self, vote: LaunchFigures) -> str | None:
        """Why this result needs a second launch; None if it is not far off."""
        of_latency = None if self.latency is None else self.latency.outlier_reason(vote.latency_ms)
        of_memory = None if self.memory is None else self.memory.outlier_reason(vote.memory_bytes)
        return of_latency or of_memory


def from_prediction(of: Literal["latency", "memory"], value: float, low: float, high: float) -> Expected:
    """What a predictor said before, with its 95 % interval."""
    half = math.log(high / low) / 2
    far = FAR_FROM_PREDICTED if of == "latency" else FAR_IN_MEMORY
    return Expected(of, value, max(far, 2 * half), "the predictor of this device")


@dataclass(frozen=True)
class PeerFit:
    """What the others measured on a device took, as a power of their size, with which a new one is compared."""

    of: Literal["latency", "memory"]
    power: float
    log_factor: float
    tolerance: float

    def expected(self, size: float) -> Expected | None:
        """What one of this size should take; None if its size is not known."""
        if size <= 0:
            return None
        value = math.exp(self.log_factor + self.power * math.log(size))
        return Expected(self.of, value, self.tolerance, "the others measured there")


def latency_fit(peers: Sequence[tuple[float, float]]) -> PeerFit | None:
    """From (work, latency in ms) of others measured there; None with fewer than `PEERS`.

    Latency grows as a power of the work, of at most one: small models take as long as starting their operators does.
    """
    return _fit("latency", peers, FAR_FROM_PEERS)


def memory_fit(peers: Sequence[tuple[float, float]]) -> PeerFit | None:
    """From (bytes of the weights, peak memory in bytes) of others measured there, as latency by work."""
    return _fit("memory", peers, FAR_IN_MEMORY)


def _fit(of: Literal["latency", "memory"], peers: Sequence[tuple[float, float]], far: float) -> PeerFit | None:
    """The power is the median over pairs (Theil 1950, Sen 1968), so lies among the others hardly move it."""
    points = np.log([pair for pair in peers if min(pair) > 0])
    if len(points) < PEERS:
        return None
    sizes, values = points.T
    first, second = np.triu_indices(len(points), 1)
    apart = np.abs(sizes[first] - sizes[second]) > MIN_LOG_DISTANCE
    first, second = first[apart], second[apart]
    slopes = (values[first] - values[second]) / (sizes[first] - sizes[second])
    power = min(1.0, max(0.0, float(np.median(slopes)))) if len(slopes) else 1.0
    rests = values - power * sizes
    middle = float(np.median(rests))
    spread = robust_std(rests - middle)
    return PeerFit(of, power, middle, max(far, PEER_SPREADS * spread))


def apart(variance: LaunchVariance) -> float:
    """How far apart (a logarithm) the medians of two launches may be that agree."""
    spread = variance.relative
    if spread is None or variance.degrees < KNOWN_SPREAD:
        return MAX_APART
    return min(MAX_APART, max(MIN_APART, SPREADS_APART * spread))


@dataclass(frozen=True)
class Agreement:
    """The launches of one measurement: those that agree, or none if most do not; and those far from them."""

    agreeing: frozenset[int]
    outliers: frozenset[int]
    """Positions of launches that contradict the agreeing ones."""
    lead: int = 0
    """Votes for, less those against."""

    @property
    def is_disputed(self) -> bool:
        """Whether one vote more against it could change it."""
        return self.lead < SAFE_LEAD


class LaunchFigures(NamedTuple):
    """What a launch says, and whose it is."""

    device: str | None
    latency_ms: float
    memory_bytes: float
    times: tuple[float, ...] = ()
    """For a generation the time to the first token and that of each further one (ms)."""


def figures_of(device: str | None, result: LaunchResult) -> LaunchFigures:
    """What a done launch says."""
    made = result.generation
    times = () if made is None else tuple(median(made.times(name)) for name in TIMES)
    return LaunchFigures(device, median(result.timed.samples_ms), result.peak.peak_bytes, times)


def agreement(launches: Sequence[LaunchFigures], tolerance: float) -> Agreement:
    """Which of these launches, at least one, agree: in latency up to `tolerance` (a logarithm), in peak memory, and in
    the times of a generation.

    Where several devices measured, each has one vote, for what at least half of its launches say: neither can one
    device outvote the others, nor hide its other launches behind one that is true. Otherwise each launch has one. More
    than half of the votes agree, or nothing does.
    """
    devices = [launch.device for launch in launches]
    several = len(set(devices)) > 1

    def votes(chosen: set[int]) -> int:
        return len(voting(chosen, devices)) if several else len(chosen)

    best: set[int] = set()
    for middle in launches:
        near = {index for index, launch in enumerate(launches) if _near(launch, middle, tolerance)}
        if votes(near) > votes(best):
            best = near
    lead = 2 * votes(best) - (len(set(devices)) if several else len(launches))
    if lead <= 0:
        return Agreement(frozenset(), frozenset())
    return Agreement(frozenset(best), frozenset(range(len(launches))) - best, lead)


def voting(chosen: Collection[int], devices: Sequence[str | None]) -> set[str | None]:
    """The devices of which at least half of the launches are among these."""
    named = {devices[index] for index in chosen}
    return {
        device for device in named if 2 * sum(devices[index] == device for index in chosen) >= devices.count(device)
    }


def _near(launch: LaunchFigures, other: LaunchFigures, tolerance: float) -> bool:
    # Each of the times that a generation is made of varies more than their sum.
    return agree_but_for_times(launch, other, tolerance) and all(
        abs(math.log(a / b)) <= MAX_APART for a, b in zip(launch.times, other.times, strict=False)
    )


def agree_but_for_times(launch: LaunchFigures, other: LaunchFigures, tolerance: float) -> bool:
    """Whether two launches agree in latency and peak memory: then differing times of a generation prove nothing, for
    other load moves time from one to the other.
    """
    return abs(math.log(launch.latency_ms / other.latency_ms)) <= tolerance and agree_in_memory(launch, other)


def agree_in_memory(launch: LaunchFigures, other: LaunchFigures) -> bool:
    """Whether the peak memories of two launches may be those of one model."""
    more, less = max(launch.memory_bytes, other.memory_bytes), min(launch.memory_bytes, other.memory_bytes)
    return more - less <= MEMORY_SLACK or (less > 0 and math.log(more / less) <= MEMORY_APART)
