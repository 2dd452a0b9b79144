"""What every search algorithm is: a pure function from a context, with the results so far, to the next generation.

No algorithm keeps state. `answer` sees the job's seed, the generation's number, the snapshot of results so far and what
else it `needs`, and the same give the same proposals on any worker, after any crash. What an algorithm needs to know of
its own past (how often a candidate was a parent) it reads off the lineage in the snapshot.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome
from edgefront.core.common.states import CandidateState

if TYPE_CHECKING:
    from edgefront.core.measurement.prediction.latency import LatencyPredictor

SAMPLE = "sample"
MUTATE = "mutate"
CROSSOVER = "crossover"
SPREAD = "spread"
"""A candidate of the first, spread-out sample that a search by prediction learns from."""
PREDICTED = "predicted"
AUDIT = "audit"
"""A candidate drawn at random, to check predictions where nothing recommended it."""


@dataclass(frozen=True)
class Predicted:
    """What was predicted of a candidate when it was proposed: means and 95 % intervals."""

    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    memory_bytes: float
    memory_low_bytes: float
    memory_high_bytes: float
    widening: float = 1.0
    """By this factor the latency's interval is wider (in logarithms) than the predictor's own, which audits missed."""
    memory_widening: float = 1.0


Times = Mapping[str, float]
"""Times of a generation in ms, by their names: first_token, token."""


class _HasTimes(Protocol):
    """A row with the times of a generation, in ms."""

    @property
    def total_ms(self) -> float | None: ...
    @property
    def first_token_ms(self) -> float | None: ...
    @property
    def token_ms(self) -> float | None: ...


def times_of(row: _HasTimes) -> dict[str, float]:
    """The times of a measurement's or candidate's row, by `core.measurement.protocol.Latency`; none of other modes."""
    times = {"total": row.total_ms, "first_token": row.first_token_ms, "token": row.token_ms}
    return {name: time for name, time in times.items() if time is not None}


@dataclass(frozen=True)
class Observation:
    """A measurement of the same device and protocol that is none of this search: a baseline, or of another job."""

    architecture: Architecture
    latency_ms: float
    memory_bytes: int
    launches: int = 1
    times: Times = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluated:
    """One candidate of a target and what is known of it: `latency_ms` and `memory_bytes` once it was measured."""

    id: str
    genome: Genome
    digest: str
    state: CandidateState
    proxy: float
    latency_ms: float | None
    memory_bytes: int | None
    generation: int
    parents: tuple[str, ...] = ()
    operator: str = ""
    launches: int = 1
    """Launches of which `latency_ms` is the median."""
    times: Times = field(default_factory=dict)
    predicted: Predicted | None = None
    """The prediction with which it was proposed."""

    def __post_init__(self) -> None:
        if self.state not in tuple(CandidateState):
            raise ValueError(f"{self.id} has state {self.state!r}, which is none of {', '.join(CandidateState)}")
        if self.state == CandidateState.MEASURED and (self.latency_ms is None or self.memory_bytes is None):
            raise ValueError(f"{self.id} is measured and needs latency_ms and memory_bytes")


@dataclass(frozen=True)
class Rival:
    """The best within the limits in another of the job's targets, where the job has one answer over all of them."""

    digest: str
    quality: float
    bits: int
    """Bits of a weight: at equal quality more are better."""
    target: str
    """Name of the target."""

    @property
    def rank(self) -> tuple[float, int]:
        """Rank among rivals; the higher is better."""
        return self.quality, self.bits


@dataclass(frozen=True)
class Snapshot:
    """The candidates of a target's search as a generation is asked with them, and what else is known of its device."""

    results: tuple[Evaluated, ...] = ()
    """The candidates of the search, without the baselines."""
    baselines: tuple[Observation, ...] = ()
    others: tuple[Observation, ...] = ()
    """What other jobs measured, on this device and by this protocol. An algorithm need not use it."""
    launch_noise: float | None = None
    """Relative standard deviation of one launch's median on this device (`LaunchVariance.relative`), where known."""
    priors: tuple[LatencyPredictor, ...] = ()
    """Predictors learnt from other devices: what to expect where this one has few measurements."""
    rival: Rival | None = None

    def in_bounds(self) -> tuple[Evaluated, ...]:
        """Measured results within the job's limits, ordered by digest.

        The order is that of the architectures and not of identifiers or arrival, so that what is proposed depends on
        what was found alone.
        """
        return tuple(
            sorted((r for r in self.results if r.state == CandidateState.MEASURED), key=lambda r: (r.digest, r.id))
        )


@dataclass(frozen=True)
class Proposal:
    """An architecture to measure, with its lineage: `operator` made it from the candidates `parents` (their ids)."""

    genome: Genome
    architecture: Architecture
    operator: str
    parents: tuple[str, ...] = ()
    predicted: Predicted | None = None


@dataclass(frozen=True)
class Offer:
    """A candidate of the job's other targets, with its quality by the job's proxy."""

    genome: Genome
    architecture: Architecture
    proxy: float


Probabilities = Sequence[Sequence[float]]
"""What one seed of a supernet's search found: a row a layer, a number for each of
`core.search.supernet_settings.CHOICES`.
"""


class Need(Enum):
    """What an algorithm asks for beside the results of its search."""

    DEVICE_DATA = "device data"
    """What else was measured on the device: the baselines and more of `Snapshot`."""
    RIVAL = "rival"
    """The best that the job's other targets have: `Snapshot.rival`."""
    OFFERS = "offers"
    """The candidates of the job's other targets."""
    SUPERNET = "supernet"
    """What the supernet found that `ParSupernet.supernet` describes."""


@dataclass(frozen=True)
class Context:
    """The question: all that an answer depends on."""

    seed: int
    generation: int
    snapshot: Snapshot = field(default_factory=Snapshot)
    offers: Sequence[Offer] = ()
    supernet: Sequence[Probabilities] = ()
    """What the supernet found, for each seed of its search."""


@dataclass(frozen=True)
class Answer:
    """What a generation proposes, and why."""

    proposals: tuple[Proposal, ...]
    gain: float | None = None
    """Gain expected of these proposals, or of those that were not worth it, as a share of what is reached; None before
    predictions."""
    widening: tuple[float, float] = (1.0, 1.0)
    """Factors by which the audits ask intervals of latency and memory to be wider than the predictors' own."""
    note: str = ""
    """Why there is nothing to propose, in a sentence."""


class Algorithm(ABC):
    """A search algorithm with its settings, space and acceptance test."""

    seconds_per_generation = 0.0
    """Seconds of one core that a generation takes, where that is worth counting."""

    @property
    def note(self) -> str:
        """What a person should know of this search before it begins, in a sentence; mostly empty."""
        return ""

    @property
    @abstractmethod
    def generations(self) -> int | None:
        """How many generations it runs, the first included; None: until the budget is spent."""

    @abstractmethod
    def generation_size(self, generation: int) -> int:
        """How many architectures generation `generation` (from 0) proposes unless the space is exhausted."""

    def needs(self, generation: int) -> frozenset[Need]:
        """What the context of this generation has to hold beside the results so far."""
        return frozenset()

    def expected_candidates(self, measured: int, most: int) -> int:
        """How many it proposes before it ends, of `most` at most, where `measured` architectures of the device are
        known.
        """
        return most

    @abstractmethod
    def answer(self, context: Context) -> Answer:
        """The proposals of a generation; the same context gives the same answer.

        None of them has a digest of the snapshot, none repeats another, and each was accepted. Fewer than
        `generation_size` mean that hardly any permitted architecture is left, none that none is left, or that the
        algorithm expects no more of the search.
        """

    def ask(self, seed: int, generation: int, snapshot: Snapshot) -> tuple[Proposal, ...]:
        """The proposals of an answer that needs nothing else."""
        return self.answer(Context(seed, generation, snapshot)).proposals


def generator(seed: int, generation: int, name: str) -> np.random.Generator:
    """The random generator of one generation: PCG64 keyed by the SHA-256 of algorithm, seed and generation.

    Neighbouring seeds and generations are thus unrelated, and no generation depends on how much another has drawn.
    """
    key = hashlib.sha256(f"edgefront/{name}/{seed}/{generation}".encode("ascii")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


def objectives(results: Sequence[Evaluated]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows of (proxy, latency_ms, memory_bytes) of measured results, float64 of shape (n, 3)."""
    rows = [(r.proxy, r.latency_ms, r.memory_bytes) for r in results]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 3)
