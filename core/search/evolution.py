"""Lightweight Transformer Search (LTS, arXiv 2203.02094), Algorithm 1 with the settings of Appendix B.

1. Generation 0 has `population` (100) uniform samples.
2. F is the non-dominated set of all results within the limits. (The paper mentions the lower convex hull of F, but
   neither the algorithm nor the reference code uses a hull.)
3. `parents` (20) are drawn from F with replacement, weighted 1 / (1 + times used), as in the reference code
   (microsoft/archai, branch neurips-lts). The times used are read from the lineage in the snapshot.
4. A later generation has `mutants` (40, each gene resampled with probability 0.3) and `crossovers` (40, each gene from
   either parent with probability 0.5). The parents complete the population of 100 and are not measured again.
5. `iterations` (30) counts generations, the first included: 100 + 29 · 80 = 2,420 architectures in all.

Two rules differ from the paper. If a budget but no population is given, the population is smaller, so that several
generations fit into the budget. While hardly any result is within the limits, the results with the least violation are
parents too.

Differences from the reference code:

- The reference code checks limits and duplicates after the measurement and discards a fifth of the measurements. This
  code makes all checks that need no device before, and redraws each slot until a permitted new architecture is found.
- The reference code's frontier drops a point only if another point is strictly better in all three objectives. Here a
  point is dropped if another point is better in one objective and no worse in the other objectives.
- The reference code's crossover does not repair d_inner below 2·d_model, and the minimum ratio is 1.7. Here genomes are
  repaired to a ratio of at least 2.
- The reference code's ranges omit the largest value (d_model 1024, d_inner 4096). Here ranges include the largest
  value, as printed in the paper.
- The final iteration's measurements never enter the reference code's frontier. Here all measurements do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.search.interface import (
    CROSSOVER,
    MUTATE,
    Answer,
    Context,
    Evaluated,
    Snapshot,
    generator,
    objectives,
)
from edgefront.core.search.pareto.frontier import nondominated
from edgefront.core.search.problem import DEFAULT_PROBLEM, Problem, beyond_limits, fitted_population
from edgefront.core.search.proposals import PopulationSearch, Proposals


class LtsSettings(BaseModel):
    """Settings of Lightweight Transformer Search. A fifth of the population are parents, the rest mutants and
    crossovers in equal numbers. Without a population, it follows from the job's budget (`fitted_population`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations, the first included.")] = 30
    population: Annotated[int, Field(ge=2, le=10_000, description="Parents, mutants and crossovers together.")] = 100
    mutation_probability: Annotated[
        float, Field(ge=0, le=1, description="Probability that a gene of a mutant is resampled.")
    ] = 0.3
    crossover_probability: Annotated[
        float, Field(ge=0, le=1, description="Probability that a gene comes from the second parent.")
    ] = 0.5

    @property
    def parents(self) -> int:
        """Number of parents drawn from the frontier in each generation; they are not measured again."""
        return max(1, round(self.population / 5))

    @property
    def mutants(self) -> int:
        """Number of mutated parents in each generation after the first."""
        return (self.population - self.parents + 1) // 2

    @property
    def crossovers(self) -> int:
        """Number of children of two parents in each generation after the first."""
        return self.population - self.parents - self.mutants


class LightweightTransformerSearch(PopulationSearch):
    """Lightweight Transformer Search (LTS): evolution from the measured frontier. A population that is not given fits
    several generations into the budget.
    """

    def __init__(
        self,
        settings: LtsSettings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = DEFAULT_PROBLEM,
    ) -> None:
        if "population" not in settings.model_fields_set:
            settings = settings.model_copy(update={"population": fitted_population(problem, settings.population)})
        super().__init__(settings, space, accept, problem)

    def generation_size(self, generation: int) -> int:
        settings: LtsSettings = self._settings
        return settings.population if generation == 0 else settings.mutants + settings.crossovers

    def answer(self, context: Context) -> Answer:
        """Proposes uniform samples in generation 0, then mutants and crossovers of the frontier.

        Uniform samples fill the remaining slots when the frontier is empty or has no new neighbours.
        """
        settings, space, snapshot, generation = self._settings, self._space, context.snapshot, context.generation
        rng = generator(context.seed, generation, "lts")
        proposals = Proposals(space, self._accept, snapshot, rng)
        parents = self._parents(snapshot, rng) if generation > 0 else []

        codes = space.operators.encode([parent.genome for parent in parents])

        def mutants(count: int) -> Iterator[tuple[Genome, tuple[str, ...]]]:
            drawn = rng.integers(len(parents), size=count)
            made = space.operators.mutate(codes[drawn], rng, settings.mutation_probability)
            for genome, row in zip(space.operators.decode(made), drawn, strict=True):
                yield genome, (parents[row].id,)

        def children(count: int) -> Iterator[tuple[Genome, tuple[str, ...]]]:
            first = rng.integers(len(parents), size=count)
            second = (first + rng.integers(1, len(parents), size=count)) % len(parents)
            made = space.operators.cross(codes[first], codes[second], rng, settings.crossover_probability)
            for genome, mother, father in zip(space.operators.decode(made), first, second, strict=True):
                yield genome, (parents[mother].id, parents[father].id)

        if parents:
            proposals.make(settings.mutants, MUTATE, mutants)
        if len({parent.digest for parent in parents}) > 1:
            proposals.make(settings.crossovers, CROSSOVER, children)
        proposals.fill(self.generation_size(generation))
        return Answer(proposals.made)

    def _parents(self, snapshot: Snapshot, rng: np.random.Generator) -> list[Evaluated]:
        """Draws this generation's parents from the frontier with replacement. If fewer results than `parents` are
        within the limits, first adds the results with the least violation to the frontier.
        """
        results = snapshot.in_bounds()
        mask = nondominated(objectives(results))
        frontier = [result for result, stays in zip(results, mask, strict=True) if stays]
        # Constraint domination (Deb 2000).
        frontier += beyond_limits(self._problem, snapshot)[: max(0, self._settings.parents - len(results))]
        if not frontier:
            return []
        used = times_used(snapshot)
        weights = np.array([1.0 / (1 + used[result.id]) for result in frontier])
        drawn = rng.choice(len(frontier), size=self._settings.parents, p=weights / weights.sum())
        return [frontier[int(index)] for index in drawn]


def times_used(snapshot: Snapshot) -> Counter[str]:
    """Maps the id of each candidate to the number of generations in which the candidate was a parent."""
    uses = {(parent, result.generation) for result in snapshot.results for parent in result.parents}
    return Counter(parent for parent, _ in uses)
