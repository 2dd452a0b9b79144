"""Evolutionary searches: LTS and NSGA-II.

Lightweight Transformer Search (LTS, arXiv 2203.02094), Algorithm 1 with the settings of Appendix B:

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

NSGA-II (Deb et al. 2002) uses pymoo's survival and operators on the same genome. Each generation is bred from the
survivors of all results so far instead of a stored population, so the algorithm keeps no state. A genome is coded as
one integer per position: the index of the position's value among the gene's values (`core.architectures.operators`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any

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
from edgefront.core.search.proposals import ATTEMPTS, PopulationSearch, Proposals


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


class _Evolution(PopulationSearch):
    """Base class of evolutions: a population that is not given fits several generations into the budget."""

    def __init__(
        self,
        settings: Any,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = DEFAULT_PROBLEM,
    ) -> None:
        if "population" not in settings.model_fields_set:
            settings = settings.model_copy(update={"population": fitted_population(problem, settings.population)})
        super().__init__(settings, space, accept, problem)


class LightweightTransformerSearch(_Evolution):
    """Lightweight Transformer Search (LTS): evolution from the measured frontier."""

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


OFFSPRING = "offspring"


class Nsga2Settings(BaseModel):
    """Settings of NSGA-II. The defaults are pymoo's for integer variables, LTS's number of generations and, if the job
    has no budget, LTS's population.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations, the first included.")] = 30
    population: Annotated[int, Field(ge=2, le=10_000, description="Survivors, and offspring per generation.")] = 100
    crossover_probability: Annotated[float, Field(ge=0, le=1, description="Probability of a crossover.")] = 0.9
    crossover_eta: Annotated[
        float, Field(gt=0, le=1000, description="Simulated binary crossover: higher stays nearer to the parents.")
    ] = 15.0
    mutation_eta: Annotated[
        float, Field(gt=0, le=1000, description="Polynomial mutation: higher stays nearer to the parent.")
    ] = 20.0


class Nsga2(_Evolution):
    """The algorithm NSGA-II: survival, tournament, simulated binary crossover and polynomial mutation."""

    def __init__(
        self,
        settings: Nsga2Settings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = DEFAULT_PROBLEM,
    ) -> None:
        super().__init__(settings, space, accept, problem)
        self._operators = space.operators
        values = np.zeros(self._operators.n_columns, dtype=int)
        for name, columns in self._operators.columns.items():
            values[columns] = len(space.gene(name).values)
        # Genes with one value are constant.
        self._free = np.flatnonzero(values > 1)
        self._largest = values[self._free] - 1

    def answer(self, context: Context) -> Answer:
        snapshot, generation = context.snapshot, context.generation
        rng = generator(context.seed, generation, "nsga2")
        proposals = Proposals(self._space, self._accept, snapshot, rng)
        size = self._settings.population
        within = snapshot.in_bounds() if generation > 0 else ()
        # Constraint domination (Deb et al. 2002, §VI): results beyond the limits rank last, in order of violation.
        room = max(0, size - len(within))
        beyond = beyond_limits(self._problem, snapshot)[:room] if generation > 0 else []
        if len(within) + len(beyond) > 1 and len(self._free):
            self._breed(within, beyond, size, proposals, rng)
        proposals.fill(size)
        return Answer(proposals.made)

    def _breed(
        self,
        within: tuple[Evaluated, ...],
        beyond: list[Evaluated],
        size: int,
        proposals: Proposals,
        rng: np.random.Generator,
    ) -> None:
        from pymoo.core.population import Population
        from pymoo.core.problem import Problem
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.mutation.pm import PM
        from pymoo.operators.repair.rounding import RoundingRepair
        from pymoo.operators.selection.tournament import TournamentSelection
        from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

        settings = self._settings
        upper = self._largest
        problem = Problem(n_var=len(upper), n_obj=3, xl=np.zeros_like(upper), xu=upper, vtype=int)
        results = (*within, *beyond)
        genomes = self._operators.encode([result.genome for result in results])
        everything = Population.new(
            X=genomes[:, self._free].astype(int),
            F=objectives(results) * (-1.0, 1.0, 1.0),
            index=np.arange(len(results), dtype=int),
        )
        survivors, behind = everything[: len(within)], everything[len(within) :]
        if within:
            survivors = RankAndCrowding().do(
                problem, survivors, n_survive=min(settings.population, len(within)), random_state=rng
            )
        behind.set("rank", len(within) + np.arange(len(behind)))
        behind.set("crowding", np.zeros(len(behind)))
        survivors = Population.merge(survivors, behind)
        selection = TournamentSelection(func_comp=_by_rank_and_crowding)
        crossover = SBX(prob=settings.crossover_probability, eta=settings.crossover_eta, vtype=float)
        crossover.repair = RoundingRepair()
        mutation = PM(eta=settings.mutation_eta, vtype=float)
        mutation.repair = RoundingRepair()

        fruitless = 0
        while len(proposals) < size and fruitless < ATTEMPTS:
            matings = (size - len(proposals) + 1) // 2
            pairs = selection(problem, survivors, matings, n_parents=2, to_pop=False, random_state=rng)
            offspring = mutation(problem, crossover(problem, survivors, pairs, random_state=rng), random_state=rng)
            # pymoo lists the first child of every mating, then the second child of every mating.
            parents = np.concatenate([pairs, pairs])
            rows = survivors.get("index").astype(int)[parents]
            children = genomes[rows[:, 0]]
            children[:, self._free] = offspring.get("X")
            for genome, pair in zip(self._operators.decode(self._operators.repair(children)), rows, strict=True):
                if len(proposals) < size:
                    lineage = tuple(dict.fromkeys(results[row].id for row in pair))
                    made = proposals.add(genome, OFFSPRING, lineage)
                    fruitless = 0 if made else fruitless + 1


def _by_rank_and_crowding(population: Any, pairs: Any, *, random_state: Any, **_: Any) -> Any:
    """Selects the winner of each pair by lower rank, then larger crowding distance, then at random."""
    rank, crowding = population.get("rank"), population.get("crowding")
    winners = np.empty((len(pairs), 1), dtype=int)
    for row, (a, b) in enumerate(pairs):
        if rank[a] != rank[b]:
            winners[row] = a if rank[a] < rank[b] else b
        elif crowding[a] != crowding[b]:
            winners[row] = a if crowding[a] > crowding[b] else b
        else:
            winners[row] = (a, b)[int(random_state.integers(2))]
    return winners
