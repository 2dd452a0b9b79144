"""The interface of search algorithms: a pure function from a context, with all results, to the next generation.

1. The caller builds a `Context`: seed, generation, snapshot of the results, and what the algorithm `needs`.
2. `Algorithm.answer` returns the architectures to measure next. The same context gives the same answer on any worker.
3. The caller measures them and asks again with a larger snapshot, until an answer has no proposals.

No algorithm keeps state. It reads its own past (how often a candidate was a parent) from the lineage in the snapshot.
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
"""A candidate of the initial space-filling sample that a search by prediction learns from."""
PREDICTED = "predicted"
AUDIT = "audit"
"""A candidate drawn at random, which checks the predictions without their selection bias."""


@dataclass(frozen=True)
class Predicted:
    """Predictions stored with a candidate when it is proposed: medians and 95 % intervals."""

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
    """A row with the times of a text generation, in ms."""

    @property
    def total_ms(self) -> float | None: ...
    @property
    def first_token_ms(self) -> float | None: ...
    @property
    def token_ms(self) -> float | None: ...


def times_of(row: _HasTimes) -> dict[str, float]:
    """The times of a measurement's or candidate's row, by `core.measurement.protocol.Latency`; empty in other modes."""
    times = {"total": row.total_ms, "first_token": row.first_token_ms, "token": row.token_ms}
    return {name: time for name, time in times.items() if time is not None}


@dataclass(frozen=True)
class Observation:
    """A measurement by the same device and protocol outside this search: of a baseline, or of another job."""

    architecture: Architecture
    latency_ms: float
    memory_bytes: int
    launches: int = 1
    times: Times = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluated:
    """A candidate of a target with its results: `latency_ms` and `memory_bytes` are None until it is measured."""

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
    """Number of launches; `latency_ms` is their median."""
    times: Times = field(default_factory=dict)
    predicted: Predicted | None = None
    """The prediction stored with its proposal."""

    def __post_init__(self) -> None:
        if self.state not in tuple(CandidateState):
            raise ValueError(f"{self.id} has the state {self.state!r}; states are {', '.join(CandidateState)}")
        if self.state == CandidateState.MEASURED and (self.latency_ms is None or self.memory_bytes is None):
            raise ValueError(f"{self.id} is measured, so latency_ms and memory_bytes are required")


@dataclass(frozen=True)
class Incumbent:
    """The best model within the limits among the job's other targets, for a job with one answer over all targets."""

    digest: str
    quality: float
    bits: int
    """Bits of a weight; at equal quality more are better."""
    target: str
    """Name of the target."""

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key; higher is better."""
        return self.quality, self.bits


@dataclass(frozen=True)
class Snapshot:
    """The results of a target's search that a generation is computed from, with other data of its device."""

    results: tuple[Evaluated, ...] = ()
    """The candidates of the search, without the baselines."""
    baselines: tuple[Observation, ...] = ()
    others: tuple[Observation, ...] = ()
    """Measurements of other jobs on this device by this protocol."""
    launch_noise: float | None = None
    """Relative standard deviation of one launch's median on this device (`LaunchVariance.relative`), if known."""
    priors: tuple[LatencyPredictor, ...] = ()
    """Predictors fitted on other devices; they are the prior where this device has few measurements."""
    incumbent: Incumbent | None = None

    def in_bounds(self) -> tuple[Evaluated, ...]:
        """Measured results within the job's limits, ordered by digest.

        Digests do not depend on identifiers or on the order of arrival, so neither do the proposals.
        """
        return tuple(
            sorted((r for r in self.results if r.state == CandidateState.MEASURED), key=lambda r: (r.digest, r.id))
        )


@dataclass(frozen=True)
class Proposal:
    """An architecture to measure, with its lineage: `operator` made it from the candidates with the ids `parents`."""

    genome: Genome
    architecture: Architecture
    operator: str
    parents: tuple[str, ...] = ()
    predicted: Predicted | None = None


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate of a fixed pool, with its score by the job's proxy."""

    genome: Genome
    architecture: Architecture
    proxy: float


Probabilities = Sequence[Sequence[float]]
"""Result of one seed of a supernet's search: a row for each layer, a number for each block type of
`core.search.supernet_settings.BLOCK_TYPES`.
"""


class Need(Enum):
    """Input that an algorithm requires beside the results of its search."""

    DEVICE_DATA = "device data"
    """Other measurements of the device: the remaining fields of `Snapshot`."""
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
    """The supernet's result for each seed of its search."""


@dataclass(frozen=True)
class Answer:
    """The proposals of a generation, and the reason where there are none."""

    proposals: tuple[Proposal, ...]
    gain: float | None = None
    """Expected relative gain of these proposals, or of the best rejected batch; None without predictions."""
    widening: tuple[float, float] = (1.0, 1.0)
    """Factors by which audits widen the intervals of latency and memory."""
    note: str = ""
    """The reason for an empty answer, in a sentence."""


class Algorithm(ABC):
    """A search algorithm with its settings, space and acceptance test."""

    seconds_per_generation = 0.0
    """CPU seconds of one generation, for estimates; 0 where they are negligible."""

    @property
    def note(self) -> str:
        """A warning shown before the search begins, in a sentence; empty where there is none."""
        return ""

    @property
    @abstractmethod
    def generations(self) -> int | None:
        """Number of generations, the first included; None: until the budget is spent."""

    @abstractmethod
    def generation_size(self, generation: int) -> int:
        """Number of proposals of `generation` (from 0) unless the space is exhausted."""

    def needs(self, generation: int) -> frozenset[Need]:
        """Input that the context of this generation must hold beside the results so far."""
        return frozenset()

    def expected_candidates(self, measured: int, most: int) -> int:
        """Expected number of proposals of the whole search, at most `most`, if `measured` architectures of the device
        are known before.
        """
        return most

    @abstractmethod
    def answer(self, context: Context) -> Answer:
        """The proposals of a generation; the same context gives the same answer.

        The proposals are new to the snapshot, distinct and permitted. There are fewer than `generation_size` when
        hardly any permitted architecture is left, and none when none is left or the algorithm expects no gain.
        """

    def ask(self, seed: int, generation: int, snapshot: Snapshot) -> tuple[Proposal, ...]:
        """The proposals of an algorithm that needs nothing but the snapshot."""
        return self.answer(Context(seed, generation, snapshot)).proposals


def generator(seed: int, generation: int, name: str) -> np.random.Generator:
    """The random generator of one generation: PCG64 keyed by the SHA-256 of algorithm, seed and generation.

    Streams of neighbouring seeds and generations are independent.
    """
    key = hashlib.sha256(f"edgefront/{name}/{seed}/{generation}".encode("ascii")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


def objectives(results: Sequence[Evaluated]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows of (proxy, latency_ms, memory_bytes) of measured results, float64 of shape (n, 3)."""
    rows = [(r.proxy, r.latency_ms, r.memory_bytes) for r in results]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 3)
