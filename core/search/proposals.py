"""Collects the proposals of one generation, after all checks that need no device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.search.interface import SAMPLE, Algorithm, Predicted, Proposal, Snapshot
from edgefront.core.search.problem import DEFAULT_PROBLEM, Problem, fitted_population

ATTEMPTS = 200
"""Number of consecutive failed attempts after which an operator makes no more proposals."""
DRAWS = 2_000
"""Number of consecutive failed uniform samples after which sampling ends. Limits may permit one architecture in a few
hundred."""
MAX_DRAWS = 10_000
"""Maximum number of failed uniform samples in one generation (seconds). The generation then stays small."""
MAX_BATCH = 256
"""Maximum number of attempts that are made together."""
MAX_ENUMERATED = 4096
"""Maximum size of a space that is enumerated when sampling finds no new architecture."""


class PopulationSearch(Algorithm):
    """Base class of searches with `iterations` generations of `population` architectures each."""

    def __init__(
        self,
        settings: Any,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = DEFAULT_PROBLEM,
    ) -> None:
        self._settings, self._space, self._accept, self._problem = settings, space, accept, problem

    @property
    def note(self) -> str:
        size, budget = self._settings.population, self._problem.candidates
        if budget is None or budget > size:
            return ""
        return (
            f"A budget of {budget} candidates permits only one generation of {size}, which is a random search: omit "
            f"population, or set population to {fitted_population(self._problem, size)}."
        )

    @property
    def generations(self) -> int | None:
        return int(self._settings.iterations)

    def generation_size(self, generation: int) -> int:
        return int(self._settings.population)


class Proposals:
    """Collects the proposals of one generation. All proposals are new, distinct and accepted.

    An architecture that is in the snapshot, was proposed earlier in this generation or is refused by `accept` is
    replaced by another attempt, up to a maximum number of attempts.
    """

    def __init__(
        self,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        snapshot: Snapshot,
        rng: np.random.Generator,
    ) -> None:
        self._space, self._accept, self._rng = space, accept, rng
        self._seen = {result.digest for result in snapshot.results}
        self._made: list[Proposal] = []

    def __len__(self) -> int:
        return len(self._made)

    @property
    def made(self) -> tuple[Proposal, ...]:
        """The proposals of this generation so far, in order."""
        return tuple(self._made)

    def add(
        self, genome: Genome, operator: str, parents: tuple[str, ...] = (), predicted: Predicted | None = None
    ) -> bool:
        """Adds the genome's architecture. Returns False if in the snapshot, repeated or refused, otherwise True."""
        architecture = self._space.architecture(genome)
        if architecture.digest in self._seen:
            return False
        self._seen.add(architecture.digest)  # a refused architecture is not tried again
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
        """Adds up to `count` proposals. `attempts(n)` makes n genomes, each with the ids of the genome's parents.

        Ends early after `patience` consecutive failed attempts, or after `most` failed attempts in all.
        """
        goal, in_a_row, in_all = len(self) + count, 0, 0

        def goes_on() -> bool:
            return len(self) < goal and in_a_row < patience and (most is None or in_all < most)

        while goes_on():
            # The batch grows with the number of consecutive failures.
            for genome, parents in attempts(max(goal - len(self), min(in_a_row, MAX_BATCH))):
                failed = not self.add(genome, operator, parents)
                in_a_row = in_a_row + 1 if failed else 0
                in_all += failed
                if not goes_on():
                    break

    def fill(self, size: int) -> None:
        """Adds uniform samples until there are `size` proposals or sampling finds nothing new.

        Then enumerates the space, if small, to find the remaining architectures.
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
                self.add(left[index], SAMPLE)


def smallest(space: SearchSpace, cost: Callable[[Sequence[Architecture]], ArrayLike]) -> Architecture:
    """Finds the architecture with the least `cost` by coordinate descent over the genes. Deterministic.

    A gene with a value per layer changes in all layers at once, because the cheapest model is uniform.
    """
    genome = space.sample(np.random.default_rng(0))
    for _ in range(2):
        for gene in space.gene_list:
            several = len(genome[gene.name]) if gene.per_layer else None
            moved = [{**genome, gene.name: value if several is None else [value] * several} for value in gene.values]
            tried = space.operators.decode(space.operators.encode(moved))
            costs = np.asarray(cost([space.architecture(genome) for genome in tried]), dtype=np.float64)
            genome = tried[int(np.argmin(costs))]
    return space.architecture(genome)
