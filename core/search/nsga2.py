"""NSGA-II (Deb et al. 2002) over the same genome, with pymoo's survival and operators.

Pure like the others: each generation is bred from the survivors of everything measured within the limits so far, rather
than of a population carried along, so nothing good is ever lost to truncation. Only pymoo's operators are used, not its
algorithm object: that one keeps state.

A genome is coded as one integer a place, the index of its value among the gene's values (`core.spaces.rules`);
offspring are repaired into the space, as mutants and crossovers of `lts` are.

With a budget and no population the population is such that several generations fit the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.search.interface import Answer, Context, Evaluated, generator, objectives
from edgefront.core.search.problem import PLAIN, Problem, beyond_limits, fitted_population
from edgefront.core.search.proposals import ATTEMPTS, PopulationSearch, Proposals
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.space import SearchSpace

OFFSPRING = "offspring"


class Nsga2Settings(BaseModel):
    """pymoo's defaults for integer variables, LTS's number of generations and, without a budget, its population."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations, the first included.")] = 30
    population: Annotated[int, Field(ge=2, le=10_000, description="Survivors, and offspring a generation.")] = 100
    crossover_probability: Annotated[float, Field(ge=0, le=1, description="That two parents are crossed.")] = 0.9
    crossover_eta: Annotated[
        float, Field(gt=0, le=1000, description="Simulated binary crossover: higher stays nearer to the parents.")
    ] = 15.0
    mutation_eta: Annotated[
        float, Field(gt=0, le=1000, description="Polynomial mutation: higher stays nearer to the parent.")
    ] = 20.0


class Nsga2(PopulationSearch):
    """NSGA-II's survival, tournament, simulated binary crossover and polynomial mutation."""

    def __init__(
        self,
        settings: Nsga2Settings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = PLAIN,
    ) -> None:
        if "population" not in settings.model_fields_set:
            settings = settings.model_copy(update={"population": fitted_population(problem, settings.population)})
        super().__init__(settings, space, accept, problem)
        self._rules = space.rules
        values = np.zeros(self._rules.places, dtype=int)
        for name, columns in self._rules.columns.items():
            values[columns] = len(space.gene(name).values)
        # A gene with one value has nothing to evolve.
        self._free = np.flatnonzero(values > 1)
        self._largest = values[self._free] - 1

    def answer(self, context: Context) -> Answer:
        snapshot, generation = context.snapshot, context.generation
        rng = generator(context.seed, generation, "nsga2")
        proposals = Proposals(self._space, self._accept, snapshot, rng)
        size = self._settings.population
        within = snapshot.in_bounds() if generation > 0 else ()
        # Constraint domination (Deb et al. 2002, §VI): behind those within the limits come the nearest to them.
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
        genomes = self._rules.encode([result.genome for result in results])
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
            # pymoo lists the first child of every mating, then the second of every one.
            parents = np.concatenate([pairs, pairs])
            rows = survivors.get("index").astype(int)[parents]
            children = genomes[rows[:, 0]]
            children[:, self._free] = offspring.get("X")
            for genome, pair in zip(self._rules.decode(self._rules.repair(children)), rows, strict=True):
                if len(proposals) < size:
                    lineage = tuple(dict.fromkeys(results[row].id for row in pair))
                    made = proposals.offer(genome, OFFSPRING, lineage)
                    fruitless = 0 if made else fruitless + 1


def _by_rank_and_crowding(population: Any, pairs: Any, *, random_state: Any, **_: Any) -> Any:
    """The winner of each pair: the lower rank, then the larger crowding distance, then a coin."""
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
