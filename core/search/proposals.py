"""A generation in the making: what needs no device is settled here, before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.search.interface import SAMPLE, Algorithm, Predicted, Proposal, Snapshot
from edgefront.core.search.problem import PLAIN, Problem, one_generation

ATTEMPTS = 200
"""Fruitless attempts in a row before a generation gives up making one more proposal in a given way."""
DRAWS = 2_000
"""The same for uniform samples: limits of a job may leave one architecture in a few hundred."""
MAX_DRAWS = 10_000
"""Fruitless uniform samples of one generation at most (seconds): it is then smaller than asked for."""
MAX_BATCH = 256
"""Attempts that are made at once where many fail."""
MAX_ENUMERATED = 4096
"""Spaces of at most so many architectures are walked through rather than sampled when they run dry."""


class PopulationSearch(Algorithm):
    """A search in generations of one size, which are `iterations` of `population` architectures."""

    def __init__(
        self, settings: Any, space: SearchSpace, accept: Callable[[Architecture], bool], problem: Problem = PLAIN
    ) -> None:
        self._settings, self._space, self._accept, self._problem = settings, space, accept, problem

    @property
    def note(self) -> str:
        return one_generation(self._problem, self._settings.population)

    @property
    def generations(self) -> int | None:
        return int(self._settings.iterations)

    def generation_size(self, generation: int) -> int:
        return int(self._settings.population)


class Proposals:
    """Collects the proposals of one generation: new, distinct and accepted ones only.

    An architecture that is known from the snapshot, was proposed before in this generation or is refused by `accept`
    is not measured; the attempt is simply made again, up to a bound.
    """

    def __init__(
        self,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        snapshot: Snapshot,
        rng: np.random.Generator,
    ) -> None:
        self._space, self._accept, self._rng = space, accept, rng
        self._settled = {result.digest for result in snapshot.results}
        self._made: list[Proposal] = []

    def __len__(self) -> int:
        return len(self._made)

    @property
    def made(self) -> tuple[Proposal, ...]:
        """The proposals so far, in order."""
        return tuple(self._made)

    def offer(
        self, genome: Genome, operator: str, parents: tuple[str, ...] = (), predicted: Predicted | None = None
    ) -> bool:
        """Takes the genome's architecture as a proposal; False if it is known, repeated or refused."""
        architecture = self._space.architecture(genome)
        if architecture.digest in self._settled:
            return False
        # A refused one is settled too: asking again would give the same answer.
        self._settled.add(architecture.digest)
        if not self._accept(architecture):
            return False
        self._made.append(Proposal(genome, architecture, operator, parents, predicted))
        return True

    def make(
        self,
        count: int,
        operator: str,
        attempts: Callable[[int], Iterable[tuple[Genome, tuple[str, ...]]]],
        patience: int = ATTEMPTS,
        most: int | None = None,
    ) -> None:
        """Adds up to `count` proposals from `attempts`, which gives so many genomes with their parents as it is asked
        for.

        Ends early after `patience` fruitless attempts in a row, and after `most` fruitless ones in all.
        """
        goal, in_a_row, in_all = len(self) + count, 0, 0

        def goes_on() -> bool:
            return len(self) < goal and in_a_row < patience and (most is None or in_all < most)

        while goes_on():
            # The more attempts have failed in a row, the more it will take.
            for genome, parents in attempts(max(goal - len(self), min(in_a_row, MAX_BATCH))):
                fruitless = not self.offer(genome, operator, parents)
                in_a_row = in_a_row + 1 if fruitless else 0
                in_all += fruitless
                if not goes_on():
                    break

    def fill(self, size: int) -> None:
        """Adds uniform samples until there are `size` proposals, or the space has hardly anything left.

        A small space is then walked through, so that it is searched to its last architecture.
        """
        enumerable = self._space.size() <= MAX_ENUMERATED
        patience = ATTEMPTS if enumerable else DRAWS

        def samples(count: int) -> Iterable[tuple[Genome, tuple[str, ...]]]:
            return ((genome, ()) for genome in self._space.samples(count, self._rng))

        self.make(size - len(self), SAMPLE, samples, patience, MAX_DRAWS)
        if len(self) < size and enumerable:
            left = list(self._space.enumerate())
            for index in self._rng.permutation(len(left)):
                if len(self) >= size:
                    return
                self.offer(left[index], SAMPLE)


def smallest(space: SearchSpace, cost: Callable[[Sequence[Architecture]], ArrayLike]) -> Architecture:
    """The architecture with the least `cost` (of many at once) that moving one gene at a time arrives at.

    A gene that is per layer moves in all layers together: what costs least is alike in every layer. The same each time.
    """
    genome = space.sample(np.random.default_rng(0))
    for _ in range(2):
        for gene in space.gene_list:
            several = len(genome[gene.name]) if gene.per_layer else None
            moved = [{**genome, gene.name: value if several is None else [value] * several} for value in gene.values]
            tried = space.rules.decode(space.rules.encode(moved))
            costs = np.asarray(cost([space.architecture(genome) for genome in tried]), dtype=np.float64)
            genome = tried[int(np.argmin(costs))]
    return space.architecture(genome)
