"""Evolution over predictions: what is measured next is looked for among a hundred thousand that are not.

Each step mutates and crosses the survivors and predicts the children, all rows at once. Who survives depends on the
goal. For a frontier, those whose predicted figures no other beats. For the best model within limits, those of the
highest predicted quality at several levels of risk: that the limits hold even if everything comes out slower and
larger than predicted, or only if it comes out faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.pareto.frontier import nondominated
from edgefront.core.search.forecast import Forecast
from edgefront.core.search.population_shapes import PopulationShapes, identity
from edgefront.core.search.problem import Problem
from edgefront.core.spaces.rules.base import Rules
from edgefront.core.spaces.rules.table import Codes
from edgefront.core.states import Goal

RISKS = (-1.0, 0.0, 1.0, 2.0)
"""Standard deviations by which latency and memory may exceed their predictions; each level has its share of room."""
FRONTS = 4
"""Frontiers, each without the ones before, that fill the room before the rest comes in by its violation of limits."""
MAX_MUTATION_RATE = 0.3
"""Largest probability that a place mutates, as in LTS; the smallest is one place in all."""


class Pool:
    """Distinct architectures with their forecasts, a row each.

    Args:
        members: what each is: coded genomes, or places in a list.
        keys: their identities.
    """

    def __init__(self, members: NDArray[Any], keys: NDArray[np.uint64], forecast: Forecast) -> None:
        self.members, self.keys, self.forecast = members, keys, forecast

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: NDArray[np.intp]) -> Pool:
        return Pool(self.members[rows], self.keys[rows], self.forecast.take(rows))

    def with_others(self, other: Pool) -> Pool:
        """These and those of the others that are not among them, in the order of their identities."""
        keys = np.concatenate([self.keys, other.keys])
        _, first = np.unique(keys, return_index=True)
        both = Pool(
            np.concatenate([self.members, other.members]), keys, Forecast.concatenate([self.forecast, other.forecast])
        )
        return both.take(first)


class Evolution:
    """A search over the predictions of one generation."""

    def __init__(
        self,
        rules: Rules,
        shapes: PopulationShapes,
        forecast: Callable[[Shapes], Forecast],
        problem: Problem,
        rng: np.random.Generator,
    ) -> None:
        self._rules, self._shapes, self._forecast, self._problem, self.rng = rules, shapes, forecast, problem, rng

    def run(self, start: Codes, size: int, steps: int) -> Pool:
        """The survivors of `steps` steps with `size` children each, from `start` and as many samples."""
        survivors = self.pool(np.concatenate([start, self._rules.sample(size, self.rng)]))
        for _ in range(steps):
            survivors = survivors.take(self._fittest(survivors, size))
            survivors = survivors.with_others(self.pool(self._children(survivors.members, size)))
        return survivors.take(self._fittest(survivors, size))

    def pool(self, codes: Codes) -> Pool:
        """The permitted ones of these genomes, predicted."""
        shapes = self._shapes(codes)
        if self._problem.permitted is not None:
            permitted = self._problem.permitted(shapes)
            codes, shapes = codes[permitted], shapes.take(permitted)
        keys, first = np.unique(identity(shapes), return_index=True)
        return Pool(codes[first], keys, self._forecast(shapes.take(first)))

    def _children(self, parents: Codes, count: int) -> Codes:
        """Half of them mutants, half children of two that mutate as well; bold and timid ones."""
        if not len(parents):
            return self._rules.sample(count, self.rng)
        first, second = (parents[self.rng.integers(len(parents), size=count)] for _ in range(2))
        crossed = np.where(np.arange(count) % 2 == 0, 0.0, 0.5)[:, None]
        probability = self._rules.probabilities(count, self.rng, MAX_MUTATION_RATE)
        return self._rules.mutate(self._rules.cross(first, second, self.rng, crossed), self.rng, probability)

    def _fittest(self, pool: Pool, count: int) -> NDArray[np.intp]:
        """The rows that survive, at most `count`."""
        if len(pool) <= count:
            return np.arange(len(pool))
        if self._problem.goal == Goal.FRONTIER:
            return self._frontiers(pool, count)
        return self._best(pool, count)

    def _best(self, pool: Pool, count: int) -> NDArray[np.intp]:
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
