"""What holds for every algorithm: pure, restart-safe, inside the space, nothing measured twice, nothing refused."""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cost_model import latency_ms, measured, search, volume
from every_algorithm import POPULATIONS, SMALL, SMALL_SEARCHES, next_proposals, small_search
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import BERT, HYBRID, LTS_GPT2, PAR_32, SRUPP, spaces
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.parameters import count
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.search.interface import AUDIT, PREDICTED, Algorithm, Snapshot, generator
from edgefront.core.search.registry import ALGORITHMS, make

pytestmark = pytest.mark.slow

TINY = LTS_GPT2.narrow({"n_layer": 2, "d_model": [128, 192], "n_head": 2, "d_inner": [512, 1024, 2048]})
WIDTHS = {"d_model": [128, 256], "n_head": 4, "d_inner": 512}
ENDING = [
    TINY,
    PAR_32.narrow({"n_block": 4}),
    SRUPP.narrow({"n_layer": [2, 3], "d_model": 256, "attn_ratio": [4, 8]}),
    BERT.narrow({**WIDTHS, "n_block": 3}),
    HYBRID.narrow({**WIDTHS, "n_block": 2, "attn_ratio": 4}),
]


def make_small(name: str, space: SearchSpace = SMALL) -> Algorithm:
    return make(name, {"population": 20}, space)


def digests(proposals: Any) -> list[str]:
    return [proposal.architecture.digest for proposal in proposals]


@pytest.fixture(scope="module", params=POPULATIONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("name", "space"),
    [
        *((name, None) for name in ALGORITHMS),
        *((name, space) for name in ("surrogate", *POPULATIONS) for space in spaces().values()),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_search_stays_in_its_space_and_measures_nothing_twice(name: str, space: SearchSpace | None) -> None:
    run = small_search(name, space, candidates=80 if name in POPULATIONS else 15)
    space, results = space or SMALL_SEARCHES[name].space, run.snapshot.results
    proposals = [proposal for answer in run.answers for proposal in answer.proposals]
    assert len(results) > 10
    assert all(space.contains(proposal.architecture) for proposal in proposals)
    assert all(space.architecture(proposal.genome) == proposal.architecture for proposal in proposals)
    generations = {result.id: result.generation for result in results}
    assert all(generations[parent] < result.generation for result in results for parent in result.parents)
    assert len({result.digest for result in results}) == len(results)
    if name in POPULATIONS:
        sizes = [make_small(name, space).generation_size(generation) for generation in range(len(run.answers) - 1)]
        assert [len(answer.proposals) for answer in run.answers[:-1]] == sizes
    if name == "surrogate":
        assert {result.operator for result in results[10:]} == {PREDICTED, AUDIT}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_order_of_arrival_and_identifiers_do_not_matter(name: str) -> None:
    """So a run that was killed and went on proposes what an undisturbed one would have."""
    snapshot = small_search(name, candidates=SMALL_SEARCHES[name].known).snapshot
    renamed = {result.id: f"other_{index * 7919 % 101:03d}" for index, result in enumerate(snapshot.results)}
    other = Snapshot(
        tuple(
            replace(result, id=renamed[result.id], parents=tuple(renamed[parent] for parent in result.parents))
            for result in reversed(snapshot.results)
        ),
        tuple(reversed(snapshot.baselines)),
    )
    first = next_proposals(name, 5, snapshot)
    assert first
    assert next_proposals(name, 5, other) == [
        (digest, genome, operator, tuple(renamed[parent] for parent in parents))
        for digest, genome, operator, parents in first
    ]


def test_another_process_proposes_the_same() -> None:
    """With other threads and another order of sets; another seed leads to other proposals."""
    snapshots = {name: small_search(name, candidates=SMALL_SEARCHES[name].known).snapshot for name in ALGORITHMS}
    question = (
        "import json, pickle, sys; from every_algorithm import next_proposals;"
        "asked = pickle.load(sys.stdin.buffer);"
        "print(json.dumps({name: next_proposals(name, 3, snapshot) for name, snapshot in asked.items()}))"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    answer = subprocess.run(
        [sys.executable, "-c", question],
        input=pickle.dumps(snapshots),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parent,
        env={**os.environ, **dict.fromkeys(names, "2"), "PYTHONHASHSEED": "42"},
    )
    here = {name: next_proposals(name, 3, snapshot) for name, snapshot in snapshots.items()}
    assert json.loads(answer.stdout) == json.loads(json.dumps(here))
    others = {name for name, snapshot in snapshots.items() if next_proposals(name, 4, snapshot) != here[name]}
    assert others == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_refused_architectures_are_never_proposed(name: str) -> None:
    sizes = [result.proxy for result in small_search(name).snapshot.results]

    def light(architecture: Architecture) -> bool:
        return costs(architecture).decoder_parameters < statistics.median(sizes)

    results = small_search(name, accept=light).snapshot.results
    assert len(results) > 5
    assert all(result.proxy < statistics.median(sizes) for result in results)
    assert next_proposals(name, 1, Snapshot(), accept=lambda _: False) == []


def test_narrow_limits_are_met_by_drawing_on(name: str) -> None:
    """Less than one in a hundred of lts-gpt2 is within these limits; the search goes on until it finds them."""
    assert len(make(name, {"population": 4}, LTS_GPT2, slim).ask(0, 0, Snapshot())) == 4


def slim(architecture: Architecture) -> bool:
    return 10_000_000 <= count(architecture).decoder < 10_150_000


def test_the_narrow_limits_are_narrow() -> None:
    drawn = [LTS_GPT2.architecture(LTS_GPT2.sample(generator(0, 0, str(index)))) for index in range(300)]
    assert sum(map(slim, drawn)) < 3


@pytest.mark.parametrize("space", ENDING, ids=lambda space: space.name)
def test_a_small_space_is_searched_to_its_last_architecture(name: str, space: SearchSpace) -> None:
    """Of two spaces some architectures are refused, of the others none."""
    everything = {space.architecture(genome) for genome in space.enumerate()}
    accept = odd if space in ENDING[:2] else None
    algorithm = make(name, {"population": 5}, space, accept)
    snapshot = search(algorithm, 2, 10_000)
    permitted = {architecture.digest for architecture in everything if accept is None or accept(architecture)}
    assert len(everything) == space.size()
    assert (len(permitted) < len(everything)) == (accept is not None)
    assert {result.digest for result in snapshot.results} == permitted
    assert len(snapshot.results) == len(permitted)
    assert algorithm.ask(2, 29, snapshot) == ()


def odd(architecture: Architecture) -> bool:
    return costs(architecture).decoder_parameters % 1000 < 600


def test_a_generation_may_be_asked_with_everything_failed(name: str) -> None:
    first = make_small(name).ask(1, 0, Snapshot())
    states = ["infeasible", "failed", "out_of_bounds", "cancelled", "waiting"]
    results = tuple(
        replace(measured(proposal, index, 0), state=states[index % len(states)]) for index, proposal in enumerate(first)
    )
    again = make_small(name).ask(1, 1, Snapshot(results))
    assert len(again) == make_small(name).generation_size(1)
    assert not {result.digest for result in results} & set(digests(again))
    assert {proposal.operator for proposal in again} == {"sample"}


def test_candidates_out_of_bounds_are_never_parents(name: str) -> None:
    limit = sorted(latency_ms(proposal.architecture) for proposal in make_small(name).ask(0, 0, Snapshot()))[10]
    snapshot = search(make_small(name), 0, 120, limit_ms=limit)
    outside = {result.id for result in snapshot.results if result.state == "out_of_bounds"}
    assert outside
    assert not outside & {parent for result in snapshot.results for parent in result.parents}


def test_a_lone_survivor_is_enough(name: str) -> None:
    (survivor, *_) = make_small(name).ask(1, 0, Snapshot())
    again = make_small(name).ask(1, 1, Snapshot((measured(survivor, 0, 0),)))
    assert len(again) == make_small(name).generation_size(1)


@given(st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_any_seed_serves(seed: int, generation: int) -> None:
    for name in POPULATIONS:
        algorithm = make(name, {"population": 5}, SMALL)
        asked = algorithm.ask(seed, generation, Snapshot())
        assert digests(asked) == digests(algorithm.ask(seed, generation, Snapshot()))
        assert len(asked) == algorithm.generation_size(generation)


@cache
def volume_after(name: str, seed: int) -> float:
    """The hypervolume of a search of 400 candidates."""
    return volume(search(make(name, {"population": 40}, LTS_GPT2), seed, 400), LTS_GPT2)


@pytest.mark.parametrize("seeds", [2, pytest.param(16, marks=pytest.mark.long)])
def test_evolution_beats_random_search_at_equal_budget(seeds: int) -> None:
    """On latency and memory additive over layers: nearly always, and by a margin on average (see cost_model).

    All of sixteen seeds won, by 3.6 % and more on average.
    """
    gains = [volume_after("lts", seed) / volume_after("random", seed) - 1 for seed in range(seeds)]
    assert sum(gain < 0 for gain in gains) <= seeds / 8
    assert sum(gains) / len(gains) > 0.025


@pytest.mark.parametrize("name", POPULATIONS)
def test_defaults_are_the_papers(name: str) -> None:
    algorithm = make(name, {}, LTS_GPT2)
    assert algorithm.generations == 30
    assert algorithm.generation_size(0) == 100
    assert algorithm.generation_size(1) == (80 if name == "lts" else 100)
    properties = ALGORITHMS[name].settings.model_json_schema()["properties"]
    assert properties["population"]["default"] == 100
    assert properties["iterations"]["default"] == 30
    assert all(setting.get("description") for setting in properties.values())


@pytest.mark.parametrize(
    ("name", "wrong", "field"),
    [
        ("evolution", {}, "name"),
        ("lts", {"populations": 3}, "settings.populations"),
        ("lts", {"population": 0}, "settings.population"),
        ("lts", {"population": 1}, "settings.population"),
        ("lts", {"population": "many"}, "settings.population"),
        ("lts", {"mutation_probability": 1.5}, "settings.mutation_probability"),
        ("lts", {"mutation_probability": float("nan")}, "settings.mutation_probability"),
        ("random", {"iterations": 0}, "settings.iterations"),
        ("surrogate", {"initial": 2}, "settings.initial"),
        ("surrogate", {"audit_share": 1.5}, "settings.audit_share"),
        ("surrogate", {"least_gain": -0.1}, "settings.least_gain"),
        ("surrogate", {"batches": 3}, "settings.batches"),
    ],
)
def test_wrong_settings_are_named(name: str, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(name, wrong, LTS_GPT2)
    assert caught.value.field == field
