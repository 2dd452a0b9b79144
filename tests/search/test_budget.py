"""The published algorithms within a job's budget and limits: several generations, and a way to the limits."""

from __future__ import annotations

import numpy as np
import pytest
from cost_model import latency_ms, search

from edgefront.core.architectures.catalogue import LTS_GPT2
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.search.interface import Algorithm
from edgefront.core.search.problem import Problem
from edgefront.core.search.registry import make


@pytest.mark.parametrize(("budget", "population"), [(16, 8), (60, 15), (400, 40), (2420, 98), (10_000, 100)])
def test_the_population_fits_several_generations_into_the_budget(budget: int, population: int) -> None:
    algorithm = make("lts", {}, LTS_GPT2, problem=Problem(candidates=budget))
    assert algorithm.generation_size(0) == population
    assert algorithm.note == ""
    generations, left = 0, budget
    while left > 0:
        left -= algorithm.generation_size(generations)
        generations += 1
    assert generations >= 2
    assert budget < 60 or generations >= 4


def test_a_population_that_is_given_stays() -> None:
    algorithm = make("lts", {"population": 100}, LTS_GPT2, problem=Problem(candidates=60))
    assert algorithm.generation_size(0) == 100
    assert "one generation" in algorithm.note
    assert "15" in algorithm.note
    assert make("lts", {"population": 20}, LTS_GPT2, problem=Problem(candidates=60)).note == ""


def fifteen(latency_ms: float | None) -> Algorithm:
    return make("lts", {"population": 15}, LTS_GPT2, problem=Problem(latency_ms=latency_ms))


@pytest.mark.slow
def test_what_is_nearest_to_the_limits_leads_there() -> None:
    """Hardly one of four hundred samples is within this limit: told of it, a search has many more."""
    rng = np.random.default_rng(0)
    drawn = [latency_ms(LTS_GPT2.architecture(LTS_GPT2.sample(rng))) for _ in range(400)]
    limit = float(np.quantile(drawn, 0.0025))
    inside = {
        told: sum(len(search(fifteen(told), seed, 120, limit_ms=limit).in_bounds()) for seed in range(3))
        for told in (None, limit)
    }
    assert inside[limit] > 1.3 * inside[None]


def test_while_nothing_is_within_the_limits_the_nearest_are_parents() -> None:
    algorithm = fifteen(0.001)
    snapshot = search(algorithm, 0, 30, limit_ms=0.001)
    assert not snapshot.in_bounds()
    asked = algorithm.ask(0, 2, snapshot)
    parents = {parent for proposal in asked for parent in proposal.parents}
    assert parents
    latency = {result.id: result.latency_ms for result in snapshot.results if result.latency_ms is not None}
    assert max(latency[parent] for parent in parents) < sorted(latency.values())[15]
    assert all(costs(proposal.architecture).decoder_parameters for proposal in asked)
