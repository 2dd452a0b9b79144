"""The model of a space that costs least: whether limits leave anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.space import Genome, SearchSpace

ROUNDS = 2


def smallest(space: SearchSpace, cost: Callable[[Sequence[Architecture]], ArrayLike]) -> Architecture:
    """The architecture with the least `cost` (of many at once) that moving one gene at a time arrives at.

    A gene that is per layer moves in all layers together: what costs least is alike in every layer. The same each time.
    """
    genome = space.sample(np.random.default_rng(0))
    for _ in range(ROUNDS):
        for gene in space.gene_list:
            moved = [_with(genome, gene.name, value, gene.per_layer) for value in gene.values]
            tried = space.rules.decode(space.rules.encode(moved))
            costs = np.asarray(cost([space.architecture(genome) for genome in tried]), dtype=np.float64)
            genome = tried[int(np.argmin(costs))]
    return space.architecture(genome)


def _with(genome: Genome, name: str, value: int | str, per_layer: bool) -> Genome:
    return {**genome, name: [value] * len(genome[name]) if per_layer else value}
