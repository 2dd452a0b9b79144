"""What a search is to find: goal, limits, budget, and by what quality is judged."""

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
from edgefront.core.search.interface import Evaluated, Observation, Snapshot

Floats = NDArray[np.float64]
Scores = Callable[[Shapes], Floats]
"""The proxy of many architectures, higher is better."""


@dataclass(frozen=True)
class Problem:
    """What a search is to find, beside the space: an algorithm reads what it has a use for.

    Limits are those of the job on its target. What they, or `accept`, refuse without a device is refused anyway; here
    they say where to look.
    """

    goal: Goal = Goal.FRONTIER
    latency_ms: float | None = None
    """Most latency; None without a limit."""
    memory_bytes: float | None = None
    """Most peak memory."""
    times_ms: Mapping[Latency, float] = field(default_factory=dict)
    """Most of other times of a generation than its latency, by the time."""
    candidates: int | None = None
    """Budget: architectures that the search proposes at most."""
    protocol: MeasurementProtocol = field(default_factory=MeasurementProtocol)
    """How they are measured."""
    proxy: str = "decoder_parameters"
    scores: Scores | None = None
    """Needed for a proxy that is no count of parameters, such as a quality law."""
    permitted: Callable[[Shapes], NDArray[np.bool_]] | None = None
    """What `accept` says, of many architectures at once, so that no prediction is spent on what it refuses."""

    def score(self) -> Scores:
        """The proxy of many architectures. `InvalidInput` for one that takes a model to be built."""
        scores = self.scores or COUNTED.get(self.proxy)
        if scores is None:
            allowed = ", ".join(["quality_law", *COUNTED])
            raise InvalidInput(
                f"the proxy {self.proxy} needs every model built and run, so a search by prediction cannot rank a "
                f"hundred thousand by it; it can by {allowed}",
                field="proxy",
                value=self.proxy,
                allowed=f"{allowed}, or another algorithm",
            )
        return scores

    @property
    def ranks(self) -> bool:
        """Whether `score` knows the proxy."""
        return self.scores is not None or self.proxy in COUNTED

    def times_of(self, measured: Sequence[Evaluated | Observation]) -> Floats:
        """(n, times) the limited times of what was measured; ∞ where a limited one is not known."""
        rows = [[model.times.get(name, math.inf) for name in self.times_ms] for model in measured]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.times_ms))

    def violation(self, latency_ms: Floats, memory_bytes: Floats, times_ms: Floats | None = None) -> Floats:
        """By how much each of n is beyond the limits, as the sum of the logarithms of its shares of them; 0 within.

        `times_ms`: (n, times) in the order of `self.times_ms`; needed where there are any.
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


PLAIN = Problem()
"""The frontier, without limits or budget, by decoder parameters."""

FITTING = 2.0
"""An evolution's population is so many times the square root of its budget: 16 of 60, LTS's 100 of 2,420."""


def fitted_population(problem: Problem, most: int) -> int:
    """The population with which several generations fit the budget; `most`, the published one, without a budget."""
    if problem.candidates is None:
        return most
    return max(4, min(most, round(FITTING * math.sqrt(problem.candidates))))


def one_generation(problem: Problem, size: int) -> str:
    """A warning where the first generation, of so many, spends the budget; empty where more fit."""
    if problem.candidates is None or problem.candidates > size:
        return ""
    return (
        f"A budget of {problem.candidates} candidates holds one generation of {size} only, which is random search: "
        f"leave population to its default, or set it to {fitted_population(problem, size)}."
    )


def beyond_limits(problem: Problem, snapshot: Snapshot) -> list[Evaluated]:
    """Measured results beyond the limits, the nearest first; none where no limits are known."""
    ranked = [
        (
            float(
                problem.violation(
                    np.array([result.latency_ms]), np.array([result.memory_bytes]), problem.times_of([result])
                )[0]
            ),
            result.digest,
            result.id,
            result,
        )
        for result in snapshot.results
        if result.state == CandidateState.OUT_OF_BOUNDS
        and result.latency_ms is not None
        and result.memory_bytes is not None
    ]
    return [result for violation, *_, result in sorted(ranked, key=lambda item: item[:3]) if violation > 0]


COUNTED: Mapping[str, Scores] = {
    "decoder_parameters": lambda shapes: shapes.decoder_parameters.astype(np.float64),
    "total_parameters": lambda shapes: shapes.total_parameters.astype(np.float64),
}
"""Proxies that are counted, of many architectures at once."""
