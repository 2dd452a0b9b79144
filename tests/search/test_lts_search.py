"""The published algorithm: its parents, its operators, and its settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cost_model import frontier_ids, measured, search
from genomes import places
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.architectures.catalogue import LTS_GPT2
from edgefront.core.search.evolution import LightweightTransformerSearch, LtsSettings, times_used
from edgefront.core.search.interface import Evaluated, Snapshot, generator
from edgefront.core.search.registry import make

DEFAULTS = make("lts", {}, LTS_GPT2)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return search(DEFAULTS, 11, 260)


def test_generations_are_made_as_published(snapshot: Snapshot) -> None:
    first = DEFAULTS.ask(11, 0, Snapshot())
    assert Counter(proposal.operator for proposal in first) == {"sample": 100}
    later = DEFAULTS.ask(11, 3, snapshot)
    assert Counter(proposal.operator for proposal in later) == {"mutate": 40, "crossover": 40}
    assert {len(proposal.parents) for proposal in later if proposal.operator == "mutate"} == {1}
    assert {len(proposal.parents) for proposal in later if proposal.operator == "crossover"} == {2}


def test_parents_are_on_the_frontier_of_everything_so_far(snapshot: Snapshot) -> None:
    later = DEFAULTS.ask(11, 3, snapshot)
    parents = {parent for proposal in later for parent in proposal.parents}
    assert parents <= frontier_ids(snapshot)
    assert 1 < len(parents) <= 20


def test_mutants_and_children_descend_from_their_parents(snapshot: Snapshot) -> None:
    genomes = {result.id: result.genome for result in snapshot.results}
    for proposal in DEFAULTS.ask(11, 3, snapshot):
        ancestors = [genomes[parent] for parent in proposal.parents]
        inherited = [
            any(place.read(proposal.genome) == place.read(ancestor) for ancestor in ancestors)
            for place in places(LTS_GPT2)
        ]
        assert np.mean(inherited) > 0.3, proposal.operator


def test_little_used_parents_are_drawn_more_often(snapshot: Snapshot) -> None:
    """Weight 1 / (1 + times used): a frontier point used in nine generations is drawn a tenth as often."""
    frontier = sorted(frontier_ids(snapshot))
    assert len(frontier) > 3
    veteran = frontier[0]
    fresh = [replace(result, parents=()) for result in snapshot.results]
    children = [replace(fresh[0], id=f"child{g}", digest=f"{g:064d}", generation=g, state="failed") for g in range(9)]
    lineage = Snapshot((*fresh, *(replace(child, parents=(veteran,)) for child in children)))
    assert times_used(lineage) == {veteran: 9}
    search = LightweightTransformerSearch(LtsSettings(population=10_000), LTS_GPT2, bool)
    drawn = Counter(parent.id for draw in range(25) for parent in search._parents(lineage, generator(draw, 1, "test")))
    others = [drawn[key] for key in frontier[1:]]
    assert drawn[veteran] / np.mean(others) == pytest.approx(0.1, abs=0.04)
    assert min(others) > 0.7 * np.mean(others)


def test_uses_are_counted_in_generations() -> None:
    def child(number: int, generation: int, *parents: str) -> Evaluated:
        return Evaluated(f"c{number}", {}, str(number), "failed", 1.0, None, None, generation, parents)

    lineage = Snapshot((child(0, 1, "a"), child(1, 1, "a", "b"), child(2, 2, "a"), child(3, 3, "c", "c")))
    assert times_used(lineage) == {"a": 2, "b": 1, "c": 1}


def test_an_exhausted_neighbourhood_is_filled_up_with_samples() -> None:
    """A mutation probability of 0 makes clones only: none is measured, and the generation keeps its size."""
    algorithm = make("lts", {"mutation_probability": 0.0, "population": 20}, LTS_GPT2)
    first = algorithm.ask(0, 0, Snapshot())
    results = Snapshot(tuple(measured(proposal, index, 0) for index, proposal in enumerate(first)))
    operators = Counter(proposal.operator for proposal in algorithm.ask(0, 1, results))
    assert operators == {"sample": 8, "crossover": 8}


def test_a_frontier_of_one_has_no_crossover() -> None:
    algorithm = make("lts", {"population": 20}, LTS_GPT2)
    (only, *_) = algorithm.ask(0, 0, Snapshot())
    operators = Counter(proposal.operator for proposal in algorithm.ask(0, 1, Snapshot((measured(only, 0, 0),))))
    assert operators == {"mutate": 8, "sample": 8}


@pytest.mark.parametrize(
    "sizes", [(100, 20, 40, 40), (20, 4, 8, 8), (9, 2, 4, 3), (7, 1, 3, 3), (3, 1, 1, 1), (2, 1, 1, 0)]
)
def test_parents_mutants_and_crossovers_share_the_population(sizes: tuple[int, int, int, int]) -> None:
    settings = LtsSettings(population=sizes[0])
    assert (settings.population, settings.parents, settings.mutants, settings.crossovers) == sizes


@given(st.integers(2, 500))
def test_every_population_can_be_shared_out(population: int) -> None:
    settings = LtsSettings(population=population)
    assert settings.parents + settings.mutants + settings.crossovers == population
    assert abs(settings.mutants - settings.crossovers) <= 1
    if population >= 5:
        assert abs(settings.parents - population / 5) < 1
