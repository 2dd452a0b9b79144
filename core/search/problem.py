"""The optimisation problem of a search: goal, limits, budget and quality score."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateState, Goal
from edgefront.core.measurement.protocol import Latency, MeasurementProtocol
from edgefront.core.search.interface import Evaluated, Observation, Snapshot, objectives

Floats = NDArray[np.float64]
ScoreFunction = Callable[[Shapes], Floats]
"""(n,) scores of n architectures by the proxy; higher is better."""


@dataclass(frozen=True)
class Problem:
    """The optimisation problem of a search, without the space. Each algorithm uses only some of the fields.

    The limits are those of the searched device (the job's target). Here the limits guide the search; `accept` and the
    measurement enforce the limits.
    """

    goal: Goal = Goal.FRONTIER
    latency_ms: float | None = None
    """Maximum latency; None: unlimited."""
    memory_bytes: float | None = None
    """Maximum peak memory; None: unlimited."""
    times_ms: Mapping[Latency, float] = field(default_factory=dict)
    """Maximum of each limited time of a text generation, in ms, by name."""
    candidates: int | None = None
    """Maximum number of proposals; None: unlimited."""
    protocol: MeasurementProtocol = field(default_factory=MeasurementProtocol)
    """Measurement protocol of the target."""
    proxy: str = "decoder_parameters"
    custom_score: ScoreFunction | None = None
    """Score function of a proxy other than a count of parameters, such as a scaling law."""
    permitted: Callable[[Shapes], NDArray[np.bool_]] | None = None
    """Vectorised `accept`: returns a mask of the permitted architectures."""

    def score_function(self) -> ScoreFunction:
        """The score function of the proxy. Raises `InvalidInput` if the proxy is no function of shapes."""
        scores = self.custom_score or COUNTED.get(self.proxy)
        if scores is None:
            allowed = ", ".join(["quality_law", *COUNTED])
            raise InvalidInput(
                f"a search by prediction computes its proxy from the shapes of models, which the proxy {self.proxy} "
                f"does not permit. Supported proxies are {allowed}",
                field="proxy",
                value=self.proxy,
                allowed=f"{allowed}, or another algorithm",
            )
        return scores

    @property
    def can_score(self) -> bool:
        """Whether the problem's proxy has a score function."""
        return self.custom_score is not None or self.proxy in COUNTED

    def times_of(self, measured: Sequence[Evaluated | Observation]) -> Floats:
        """(n, times) limited times of n measurements, in ms; ∞ for an unknown time."""
        rows = [[model.times.get(name, math.inf) for name in self.times_ms] for model in measured]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.times_ms))

    def violation(self, latency_ms: Floats, memory_bytes: Floats, times_ms: Floats | None = None) -> Floats:
        """(n,) constraint violation: the sum of ln(value / limit) over the exceeded limits; 0 within all limits.

        `times_ms` is (n, times) in the order of `self.times_ms`, and required if `self.times_ms` is not empty.
        """
        beyond = np.zeros(len(latency_ms))
        if times_ms is None:
            times_ms = np.zeros((len(latency_ms), 0))
        for column, limit in enumerate(self.times_ms.values()):
            beyond += np.maximum(0.0, np.log(times_ms[:, column] / limit))
        for value, most in ((latency_ms, self.latency_ms), (memory_bytes, self.memory_bytes)):
            if most is not None:
                beyond += np.maximum(0.0, np.log(value / most))
        return beyond


DEFAULT_PROBLEM = Problem()
"""The problem of finding the frontier by decoder parameters, without limits or budget."""

POPULATION_FACTOR = 2.0
"""Population of an evolution divided by the square root of the budget: 16 for a budget of 60, LTS's 100 for 2,420.
"""


def fitted_population(problem: Problem, most: int) -> int:
    """Size of a population, at most `most`, with several generations in the budget; `most` without a budget."""
    if problem.candidates is None:
        return most
    return max(4, min(most, round(POPULATION_FACTOR * math.sqrt(problem.candidates))))


def beyond_limits(problem: Problem, snapshot: Snapshot, least: float = 0.0) -> list[Evaluated]:
    """Measured results with a violation above `least`, in order of violation; empty if there are no limits."""
    beyond = [
        result
        for result in snapshot.results
        if result.state == CandidateState.OUT_OF_BOUNDS and None not in (result.latency_ms, result.memory_bytes)
    ]
    _, latency_ms, memory_bytes = objectives(beyond).T
    violations = problem.violation(latency_ms, memory_bytes, problem.times_of(beyond)).tolist()
    ranked = sorted(zip(violations, beyond, strict=True), key=lambda pair: (pair[0], pair[1].digest, pair[1].id))
    return [result for violation, result in ranked if violation > least]


COUNTED: Mapping[str, ScoreFunction] = {
    "decoder_parameters": lambda shapes: shapes.decoder_parameters.astype(np.float64),
    "total_parameters": lambda shapes: shapes.total_parameters.astype(np.float64),
}
"""Score functions of the proxies that count parameters."""
