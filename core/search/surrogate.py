"""Search by prediction over a space. An evolution over predictions optimises the acquisition function.

Each generation (`predictive_search`) predicts about a hundred thousand architectures. A step of the evolution:

1. Mutate and cross the survivors.
2. Predict all children at once.
3. Select survivors. If the goal is a frontier, select the architectures on the predicted frontier. If the goal is the
   best model within limits, select the highest predicted quality at each of several risk levels (`RISKS`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.operators.base import Codes, GenomeOperators
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.states import Goal
from edgefront.core.search.forecast import Forecast, Forecaster, Pool, measured
from edgefront.core.search.interface import Context, Evaluated, Predicted, Proposal
from edgefront.core.search.pareto.frontier import nondominated
from edgefront.core.search.population_shapes import PopulationShapes, identity
from edgefront.core.search.predictive_search import (
    POOL_SIZE,
    RISK_LEVEL,
    Candidates,
    PredictiveSearch,
    SurrogateSettings,
)
from edgefront.core.search.problem import Problem
from edgefront.core.search.proposals import MAX_ENUMERATED, Proposals

TYPICAL_BATCHES = 4
"""Number of predicted batches after which a search typically ends."""
RISKS = (-1.0, 0.0, 1.0, 2.0)
"""Risk levels: numbers of standard deviations above the medians at which the limits must hold. Each risk level selects
an equal share of the survivors."""
FRONTS = 4
"""Number of successive non-dominated fronts that survive. Architectures with the least violation fill the rest."""
MAX_MUTATION_RATE = 0.3
"""Maximum probability that a position mutates, as in LTS. The minimum probability mutates one position per genome."""


class Surrogate(PredictiveSearch):
    """Search by prediction over one space."""

    seconds_per_generation = 10.0

    def __init__(
        self,
        settings: SurrogateSettings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem,
    ) -> None:
        problem.score_function()  # raises for a proxy that cannot be predicted
        super().__init__(settings, problem)
        self._space, self._accept, self._shapes = space, accept, PopulationShapes(space)

    def expected_candidates(self, measured: int, most: int) -> int:
        """Expected number of proposals: the initial candidates and `TYPICAL_BATCHES` batches, at most `most`."""
        learning = max(0, self._settings.initial - measured)
        return min(most, learning + TYPICAL_BATCHES * self._settings.batch)

    def candidates(self, context: Context, rng: np.random.Generator) -> SpaceCandidates:
        proposals = Proposals(self._space, self._accept, context.snapshot, rng)
        return SpaceCandidates(self._settings, self._space, self._shapes, self._problem, proposals, context, rng)

    def end_note(self, gain: float, pool: Pool) -> str:
        least = f"{100 * self._settings.least_gain:g} %"
        if not (pool.forecast.violation(self._problem, RISK_LEVEL) == 0).any():
            return "No architecture is predicted to be within the limits; the nearest architectures have been measured."
        return f"The next launches were expected to gain {100 * gain:.3g} %, less than {least}."


class SpaceCandidates(Candidates):
    """Permitted architectures of a space as candidates; a member is a coded genome."""

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
        codes = self._space.operators.sample(POOL_SIZE, deepcopy(self._rng))  # a copy: every call draws the same
        shapes = self._shapes(codes)
        if self._problem.permitted is None:
            return codes, shapes
        permitted = self._problem.permitted(shapes)
        return codes[permitted], shapes.take(permitted)

    def pool(self, forecaster: Forecaster) -> Pool:
        """All architectures of a small space, or the result of an evolution over predictions in a large space."""
        operators, evolution = self._space.operators, self._evolution(forecaster)
        if self._space.size() <= MAX_ENUMERATED:
            return evolution.pool(operators.encode(list(self._space.enumerate())))
        start = operators.encode([result.genome for result in measured(self._snapshot)])
        return evolution.run(start, self._settings.population, self._settings.steps)

    def random_pool(self, forecaster: Forecaster) -> Pool:
        return self._evolution(forecaster).pool(self._space.operators.sample(POOL_SIZE, self._rng))

    def propose(self, member: NDArray[Any], operator: str, predicted: Predicted | None = None) -> None:
        (genome,) = self._space.operators.decode(member[None])
        self._proposals.add(genome, operator, predicted=predicted)

    def fill(self, count: int) -> None:
        self._proposals.fill(count)

    @property
    def made(self) -> tuple[Proposal, ...]:
        return self._proposals.made

    def _evolution(self, forecaster: Forecaster) -> Evolution:
        return Evolution(self._space.operators, self._shapes, forecaster, self._problem, self._rng)


class Evolution:
    """Evolution over predictions, in place of measurements, within one generation of a search."""

    def __init__(
        self,
        operators: GenomeOperators,
        shapes: PopulationShapes,
        forecast: Callable[[Shapes], Forecast],
        problem: Problem,
        rng: np.random.Generator,
    ) -> None:
        self._operators, self._shapes, self._forecast, self._problem, self.rng = (
            operators,
            shapes,
            forecast,
            problem,
            rng,
        )

    def run(self, start: Codes, size: int, steps: int) -> Pool:
        """Evolves `start` and `size` uniform samples in `steps` steps of `size` children. Returns the survivors."""
        survivors = self.pool(np.concatenate([start, self._operators.sample(size, self.rng)]))
        for _ in range(steps):
            survivors = survivors.take(self._fittest(survivors, size))
            survivors = survivors.with_others(self.pool(self._children(survivors.members, size)))
        return survivors.take(self._fittest(survivors, size))

    def pool(self, codes: Codes) -> Pool:
        """Returns the distinct permitted architectures of these coded genomes, with forecasts."""
        shapes = self._shapes(codes)
        if self._problem.permitted is not None:
            permitted = self._problem.permitted(shapes)
            codes, shapes = codes[permitted], shapes.take(permitted)
        keys, first = np.unique(identity(shapes), return_index=True)
        return Pool(codes[first], keys, self._forecast(shapes.take(first)))

    def _children(self, parents: Codes, count: int) -> Codes:
        """Returns `count` coded children with varying mutation rates: half are mutants, half mutated crossovers."""
        if not len(parents):
            return self._operators.sample(count, self.rng)
        first, second = (parents[self.rng.integers(len(parents), size=count)] for _ in range(2))
        crossed = np.where(np.arange(count) % 2 == 0, 0.0, 0.5)[:, None]
        probability = self._operators.probabilities(count, self.rng, MAX_MUTATION_RATE)
        return self._operators.mutate(self._operators.cross(first, second, self.rng, crossed), self.rng, probability)

    def _fittest(self, pool: Pool, count: int) -> NDArray[np.intp]:
        """Rows of the pool's survivors, at most `count`."""
        if len(pool) <= count:
            return np.arange(len(pool))
        if self._problem.goal == Goal.FRONTIER:
            return self._frontiers(pool, count)
        chosen = []
        for risk in RISKS:
            violation = pool.forecast.violation(self._problem, risk)
            chosen.append(np.lexsort((pool.keys, -pool.forecast.quality, violation))[: count // len(RISKS)])
        return np.unique(np.concatenate(chosen))

    def _frontiers(self, pool: Pool, count: int) -> NDArray[np.intp]:
        violation = pool.forecast.violation(self._problem, RISKS[0])
        left = np.flatnonzero(violation == 0)
        chosen: list[NDArray[np.intp]] = []
        room = count
        for _ in range(FRONTS):
            if not len(left) or not room:
                break
            on = nondominated(pool.forecast.points()[left])
            front = left[on]
            if len(front) > room:
                front = np.sort(self.rng.choice(front, size=room, replace=False))
            chosen.append(front)
            left, room = left[~on], room - len(front)
        outside = np.flatnonzero(violation > 0)
        nearest = outside[np.lexsort((pool.keys[outside], violation[outside]))[:room]]
        return np.unique(np.concatenate([*chosen, nearest]))
