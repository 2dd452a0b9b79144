"""The search by prediction of a whole space: each generation evolves over predictions and measures a few.

A hundred thousand architectures are predicted (`evolution`) for each batch that is measured (`predictive_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.search.evolution import Evolution, Pool
from edgefront.core.search.forecast import Forecaster, measured
from edgefront.core.search.interface import Context, Evaluated, Predicted, Proposal
from edgefront.core.search.population_shapes import PopulationShapes
from edgefront.core.search.predictive_search import (
    POOL_SIZE,
    RISK_LEVEL,
    Candidates,
    PredictiveSearch,
    SurrogateSettings,
)
from edgefront.core.search.problem import Problem
from edgefront.core.search.proposals import MAX_ENUMERATED, Proposals
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.space import SearchSpace

TYPICAL_BATCHES = 4
"""Batches of predictions after which a search typically ends."""


class Surrogate(PredictiveSearch):
    """The search by prediction of one space."""

    seconds_per_generation = 10.0

    def __init__(
        self,
        settings: SurrogateSettings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem,
    ) -> None:
        problem.score()  # refuses a proxy that it cannot predict
        super().__init__(settings, problem)
        self._space, self._accept, self._shapes = space, accept, PopulationShapes(space)

    def expected_candidates(self, measured: int, most: int) -> int:
        """It ends by itself when little is left to gain, typically after `TYPICAL_BATCHES` batches of predictions."""
        learning = max(0, self._settings.initial - measured)
        return min(most, learning + TYPICAL_BATCHES * self._settings.batch)

    def candidates(self, context: Context, rng: np.random.Generator) -> Evolved:
        proposals = Proposals(self._space, self._accept, context.snapshot, rng)
        return Evolved(self._settings, self._space, self._shapes, self._problem, proposals, context, rng)

    def why(self, gain: float, pool: Pool) -> str:
        least = f"{100 * self._settings.least_gain:g} %"
        if not (pool.forecast.violation(self._problem, RISK_LEVEL) == 0).any():
            return "No architecture is predicted to be within the limits; what comes nearest has been measured."
        return f"The next launches were expected to gain {100 * gain:.3g} %, less than {least}."


class Evolved(Candidates):
    """The permitted architectures of a space; a member is a coded genome."""

    def __init__(
        self,
        settings: SurrogateSettings,
        space: SearchSpace,
        shapes: PopulationShapes,
        problem: Problem,
        proposals: Proposals,
        context: Context,
        rng: np.random.Generator,
    ) -> None:
        self._settings, self._space, self._shapes, self._problem = settings, space, shapes, problem
        self._proposals, self._snapshot, self._rng = proposals, context.snapshot, rng

    def shapes(self, results: Sequence[Evaluated]) -> Shapes:
        return self._shapes.of_genomes([result.genome for result in results])

    def drawn(self) -> tuple[NDArray[Any], Shapes]:
        codes = self._space.rules.sample(POOL_SIZE, deepcopy(self._rng))  # the same whenever it is asked
        shapes = self._shapes(codes)
        if self._problem.permitted is None:
            return codes, shapes
        permitted = self._problem.permitted(shapes)
        return codes[permitted], shapes.take(permitted)

    def pool(self, forecaster: Forecaster) -> Pool:
        """The architectures of a small space, or what evolution over predictions finds in a large one."""
        rules, evolution = self._space.rules, self._evolution(forecaster)
        if self._space.size() <= MAX_ENUMERATED:
            return evolution.pool(rules.encode(list(self._space.enumerate())))
        start = rules.encode([result.genome for result in measured(self._snapshot)])
        return evolution.run(start, self._settings.population, self._settings.steps)

    def random_pool(self, forecaster: Forecaster) -> Pool:
        return self._evolution(forecaster).pool(self._space.rules.sample(POOL_SIZE, self._rng))

    def propose(self, member: NDArray[Any], operator: str, predicted: Predicted | None = None) -> None:
        (genome,) = self._space.rules.decode(member[None])
        self._proposals.offer(genome, operator, predicted=predicted)

    def fill(self, count: int) -> None:
        self._proposals.fill(count)

    @property
    def made(self) -> tuple[Proposal, ...]:
        return self._proposals.made

    def _evolution(self, forecaster: Forecaster) -> Evolution:
        return Evolution(self._space.rules, self._shapes, forecaster, self._problem, self._rng)
