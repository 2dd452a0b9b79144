"""A generation in the making: what needs no device is settled here, before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from edgefront.core.search.interface import SAMPLE, Predicted, Proposal, Snapshot
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.space import Genome, SearchSpace

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
