"""The interface of search algorithms. An algorithm is a pure function from a `Context` with all results to the
architectures of the next generation.

1. The caller builds a `Context`: seed, generation, snapshot of the results, and the inputs that the algorithm `needs`.
2. `Algorithm.answer` returns the architectures to measure next. The same context gives the same answer on any worker.
3. The caller measures the proposals and asks again with a larger snapshot, until an answer has no proposals.

No algorithm keeps state. Algorithms read their history, such as how often a candidate was a parent, from the lineage in
the snapshot.
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
"""Operator of a candidate of the initial space-filling sample that a search by prediction learns from."""
PREDICTED = "predicted"
AUDIT = "audit"
"""Operator of a candidate drawn at random. Random candidates check the predictions without selection bias."""


@dataclass(frozen=True)
class Predicted:
    """Predicted latency and memory (medians and 95 % intervals) that are stored with a proposed candidate."""

    latency_ms: float
    latency_low_ms: float
    latency_high_ms: float
    memory_bytes: float
    memory_low_bytes: float
    memory_high_bytes: float
    widening: float = 1.0
    """Factor by which audits widened the interval of the latency, on the logarithm (`Forecaster.widening`)."""
    memory_widening: float = 1.0


Times = Mapping[str, float]
"""Times of a text generation in ms, by name: first_token, token."""


class _HasTimes(Protocol):
    """A database row with the times of a text generation, in ms."""

    @property
    def total_ms(self) -> float | None: ...
    @property
    def first_token_ms(self) -> float | None: ...
    @property
    def token_ms(self) -> float | None: ...


def times_of(row: _HasTimes) -> dict[str, float]:
    """Name (`core.measurement.protocol.Latency`) → time of text generation, in ms, of the database row of a measurement
    or candidate. Empty if the row has no text generation.
    """
    times = {"total": row.total_ms, "first_token": row.first_token_ms, "token": row.token_ms}
    return {name: time for name, time in times.items() if time is not None}


@dataclass(frozen=True)
class Observation:
    """A measurement of a baseline (stock model), or of another job's model, on this device by this protocol."""

    architecture: Architecture
    latency_ms: float
    memory_bytes: int
    launches: int = 1
    times: Times = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluated:
    """A candidate and the candidate's results; `latency_ms` and `memory_bytes` are None before the measurement."""

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
    """Number of launches; `latency_ms` is the launches' median."""
    times: Times = field(default_factory=dict)
    predicted: Predicted | None = None
    """The prediction that was stored when the candidate was proposed."""


@dataclass(frozen=True)
class Incumbent:
    """The best model within the limits on the job's other targets (devices), for jobs with one answer over all."""

    digest: str
    quality: float
    bits: int
    """Bits per weight; at equal quality, more bits are better."""
    target: str
    """Name of the target that has this model."""
    latency_ms: float = 0.0

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key (quality, then bits per weight); higher is better."""
        return self.quality, self.bits


@dataclass(frozen=True)
class Snapshot:
    """The input of a generation: all results of a search on a device (target), and the device's other measurements."""

    results: tuple[Evaluated, ...] = ()
    """All candidates of the search, without the baselines."""
    baselines: tuple[Observation, ...] = ()
    others: tuple[Observation, ...] = ()
    """Measurements of other jobs on this device by this protocol."""
    launch_noise: float | None = None
    """Relative standard deviation of one launch's median on this device (`LaunchVariance.relative`), if known."""
    priors: tuple[LatencyPredictor, ...] = ()
    """Predictors fitted on other devices, used as a prior if this device has few measurements."""
    incumbent: Incumbent | None = None

    def in_bounds(self) -> tuple[Evaluated, ...]:
        """Measured results within the job's limits, ordered by digest.

        Digests depend on neither identifiers nor the order of arrival, so the proposals depend on neither.
        """
        return tuple(
            sorted((r for r in self.results if r.state == CandidateState.MEASURED), key=lambda r: (r.digest, r.id))
        )


@dataclass(frozen=True)
class Proposal:
    """An architecture to measure, with the `operator` that made the architecture and the ids of the parents."""

    genome: Genome
    architecture: Architecture
    operator: str
    parents: tuple[str, ...] = ()
    predicted: Predicted | None = None


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate of a fixed pool, with the candidate's score by the job's proxy."""

    genome: Genome
    architecture: Architecture
    proxy: float


Probabilities = Sequence[Sequence[float]]
"""Probabilities that a supernet's search found with one seed: a row for each layer, a number for each block type of
`core.search.supernet_settings.BLOCK_TYPES`.
"""


class Need(Enum):
    """Input that an algorithm requires in addition to the results of the search."""

    DEVICE_DATA = "device data"
    """Other measurements of the device: `baselines`, `others`, `launch_noise` and `priors` of `Snapshot`."""
    INCUMBENT = "incumbent"
    """The best model of the job's other targets: `Snapshot.incumbent`."""
    CANDIDATE_POOL = "candidate pool"
    """The candidates of the job's other targets: `Context.candidate_pool`."""
    SUPERNET = "supernet"
    """The result of the supernet that `ParSupernet.supernet` describes: `Context.supernet`."""


@dataclass(frozen=True)
class Context:
    """All inputs of `Algorithm.answer`."""

    seed: int
    generation: int
    snapshot: Snapshot = field(default_factory=Snapshot)
    candidate_pool: Sequence[ScoredCandidate] = ()
    supernet: Sequence[Probabilities] = ()
    """Final probabilities of the supernet for each seed of the supernet's search."""


@dataclass(frozen=True)
class Answer:
    """The proposals of a generation, or the reason for an empty generation."""

    proposals: tuple[Proposal, ...]
    gain: float | None = None
    """Expected relative gain of these proposals, or of the best rejected batch; None if nothing was predicted."""
    widening: tuple[float, float] = (1.0, 1.0)
    """Factors by which audits widen the predicted intervals of latency and of memory."""
    note: str = ""
    """The reason for an empty answer, in a sentence."""


class Algorithm(ABC):
    """Base class of search algorithms. An instance has settings, a space and a test of permitted architectures."""

    seconds_per_generation = 0.0
    """CPU seconds of one generation, for estimates; 0 if negligible."""

    @property
    def note(self) -> str:
        """A warning, in one sentence, that is shown before the search begins; empty if there is no warning."""
        return ""

    @property
    @abstractmethod
    def generations(self) -> int | None:
        """Number of generations, including the first; None if generations follow until the budget is spent."""

    @abstractmethod
    def generation_size(self, generation: int) -> int:
        """Number of proposals of `generation` (counted from 0), unless the space is exhausted."""

    def needs(self, generation: int) -> frozenset[Need]:
        """Input that the context of this generation must contain in addition to the results so far."""
        return frozenset()

    def expected_candidates(self, measured: int, most: int) -> int:
        """Expected number of proposals of the whole search, at most `most`, if the device has already measured
        `measured` architectures.
        """
        return most

    @abstractmethod
    def answer(self, context: Context) -> Answer:
        """Computes the proposals of a generation. The same context gives the same answer.

        The proposals are permitted, distinct and not in the snapshot. There are fewer than `generation_size` when few
        permitted architectures are left, and none when no architecture is left or the algorithm expects no gain.
        """

    def ask(self, seed: int, generation: int, snapshot: Snapshot) -> tuple[Proposal, ...]:
        """Returns the proposals of an algorithm that needs only the snapshot."""
        return self.answer(Context(seed, generation, snapshot)).proposals


def generator(seed: int, generation: int, name: str) -> np.random.Generator:
    """Returns the random generator of one generation: PCG64 seeded with the SHA-256 of algorithm, seed and generation.

    Streams of neighbouring seeds and generations are independent.
    """
    key = hashlib.sha256(f"edgefront/{name}/{seed}/{generation}".encode("ascii")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


def objectives(results: Sequence[Evaluated]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n, 3) float64 rows of (proxy, latency_ms, memory_bytes) of measured results."""
    rows = [(r.proxy, r.latency_ms, r.memory_bytes) for r in results]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 3)
