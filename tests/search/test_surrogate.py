"""Search by prediction: pure, inside its space and limits, audited, and it finds and ends by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from replayed_device import QUICK, SPACE, Device, Run, perplexity, search

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import LTS_GPT2
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.units import MIB
from edgefront.core.search.interface import AUDIT, PREDICTED, SPREAD, Context, Snapshot, objectives
from edgefront.core.search.pareto.baseline import reference
from edgefront.core.search.pareto.frontier import hypervolume
from edgefront.core.search.problem import Problem
from edgefront.core.search.registry import make
from edgefront.core.search.surrogate import Surrogate

pytestmark = pytest.mark.slow

BEST = Problem(
    goal="best_within_limits", latency_ms=1.5, memory_bytes=120 * MIB, proxy="quality_law", custom_score=perplexity
)
FRONTIER = replace(BEST, goal="frontier")
ENDLESS = {**QUICK, "least_gain": 0.0}


def surrogate(problem: Problem = BEST, space: SearchSpace = SPACE, **settings: Any) -> Surrogate:
    made = make("surrogate", {**QUICK, **settings}, space, None, problem)
    assert isinstance(made, Surrogate)
    return made


def digests(proposals: Any) -> list[str]:
    return [proposal.architecture.digest for proposal in proposals]


@pytest.fixture(scope="module")
def run() -> Run:
    return search(Device(BEST), settings=ENDLESS, candidates=40)


@cache
def whole_frontier() -> Run:
    return search(Device(FRONTIER), settings=ENDLESS, candidates=40)


@cache
def until_it_ends(jump: float = 1.0) -> Run:
    return search(Device(BEST, jump=jump), candidates=60)


def asked(run: Run, candidates: int) -> Snapshot:
    return replace(run.snapshot, results=run.snapshot.results[:candidates])


def test_it_learns_from_spread_out_candidates_then_predicts(run: Run) -> None:
    """Ten models in all, the baselines among them."""
    operators = [result.operator for result in run.snapshot.results]
    spread = 10 - len(run.snapshot.baselines)
    assert operators[:spread] == [SPREAD] * spread
    assert set(operators[spread:]) == {PREDICTED, AUDIT}
    first = [result for result in run.snapshot.results[:spread] if result.latency_ms is not None]
    assert len({proposal.genome["d_model"] for proposal in first}) > 3
    assert len({proposal.genome["n_layer"] for proposal in first}) > 2


def test_one_in_ten_of_what_is_predicted_is_an_audit() -> None:
    """While measuring is worth it, as it long is for a whole frontier."""
    results = whole_frontier().snapshot.results
    assert len(results) == 40
    assert sum(result.operator == AUDIT for result in results[10:]) == math.ceil(30 / 10)


def test_predictions_come_with_intervals_that_hold(run: Run) -> None:
    results = [*run.snapshot.results, *whole_frontier().snapshot.results]
    predicted = [(result, result.predicted) for result in results if result.predicted is not None]
    held = [
        guess.latency_low_ms <= result.latency_ms <= guess.latency_high_ms
        and guess.memory_low_bytes <= result.memory_bytes <= guess.memory_high_bytes
        for result, guess in predicted
        if result.latency_ms is not None and result.memory_bytes is not None
    ]
    assert len(predicted) == len(results) - sum(result.operator == SPREAD for result in results)
    assert sum(held) >= 0.8 * len(held)  # latency and memory, where predictions were best


def test_what_is_permitted_is_known_to_a_whole_population_at_once() -> None:
    def light(architecture: Architecture) -> bool:
        return costs(architecture).decoder_parameters < 6_000_000

    def permitted(shapes: Shapes) -> Any:
        return shapes.decoder_parameters < 6_000_000

    results = search(Device(replace(BEST, permitted=permitted)), candidates=20, accept=light).snapshot.results
    assert len(results) >= 12
    assert all(light(SPACE.architecture(result.genome)) for result in results)


def test_nothing_is_proposed_that_is_heavier_than_what_the_device_refused() -> None:
    device = Device(replace(BEST, latency_ms=None, memory_bytes=None), refused_bytes=150 * MIB)
    results = search(device, candidates=30).snapshot.results
    weights = [device.memory_bytes(SPACE.architecture(result.genome)) for result in results]
    for generation in range(1, results[-1].generation + 1):
        refused = [
            weight
            for result, weight in zip(results, weights, strict=True)
            if result.state == "infeasible" and result.generation < generation
        ]
        proposed = [weight for result, weight in zip(results, weights, strict=True) if result.generation == generation]
        assert max(proposed) < 1.2 * min(refused, default=math.inf)
    assert "infeasible" in {result.state for result in results}


def test_it_ends_by_itself_and_says_why() -> None:
    run = until_it_ends()
    last = run.answers[-1]
    assert last.proposals == ()
    assert last.gain is not None
    assert last.gain < 0.01
    assert "expected to gain" in last.note
    assert len(run.snapshot.results) < 60


def test_it_beats_random_search_at_25_launches(run: Run) -> None:
    predicted = replace(run, snapshot=asked(run, 22))
    drawn = search(Device(BEST), "random", {}, candidates=22)
    assert predicted.best > drawn.best * 0.96  # both are negative: a perplexity that is 4 % lower and more


def test_its_frontier_is_larger_than_that_of_random_search() -> None:
    drawn = search(Device(FRONTIER), "random", {}, candidates=40)
    volumes = []
    for snapshot in (whole_frontier().snapshot, drawn.snapshot):
        shapes = Shapes.of([baseline.architecture for baseline in snapshot.baselines])
        figures = [(baseline.latency_ms, baseline.memory_bytes) for baseline in snapshot.baselines]
        corner = reference(np.column_stack([perplexity(shapes), figures]))
        volumes.append(hypervolume(objectives(snapshot.in_bounds()), corner))
    assert volumes[0] > 1.2 * volumes[1]


def test_limits_that_nothing_meets_are_answered_with_what_comes_nearest() -> None:
    device = Device(replace(BEST, latency_ms=0.01, memory_bytes=MIB))
    run = search(device)
    results = run.snapshot.results
    nearest = [
        device.problem.violation(np.array([result.latency_ms]), np.array([result.memory_bytes]))[0]
        for result in results
    ]
    spread = 10 - len(run.snapshot.baselines)
    assert min(nearest[spread:]) < min(nearest[:spread])
    assert "nearest" in run.answers[-1].note
    assert len(results) < 40


@pytest.mark.parametrize("goal", ["frontier", "best_within_limits"])
def test_a_small_space_is_searched_without_repetition_and_ends(goal: Any) -> None:
    space = LTS_GPT2.narrow({"n_layer": 2, "d_model": [128, 192], "n_head": 2, "d_inner": [512, 1024, 2048]})
    device = Device(Problem(goal=goal), space=space)
    results = search(device, settings=ENDLESS, candidates=1000).snapshot.results
    assert len({result.digest for result in results}) == len(results) <= space.size()
    best = max(costs(space.architecture(genome)).decoder_parameters for genome in space.enumerate())
    assert max(result.proxy for result in results) == best


def test_intervals_widen_until_they_hold_on_a_device_that_jumps() -> None:
    calm, jumping = (until_it_ends(factor).snapshot.results for factor in (1.0, 2.0))
    assert len(jumping) > len(calm) + 20
    later = [result for result in jumping[20:] if result.predicted is not None]
    held = [
        result.predicted.latency_low_ms <= result.latency_ms <= result.predicted.latency_high_ms
        for result in later
        if result.predicted is not None and result.latency_ms is not None
    ]
    assert sum(held) >= 0.9 * len(held)


def test_audits_that_miss_their_intervals_widen_them(run: Run) -> None:
    snapshot = asked(run, 20)
    missed = tuple(
        replace(result, latency_ms=2 * result.latency_ms) if result.operator == AUDIT and result.latency_ms else result
        for result in snapshot.results
    )
    calm, wide = (
        surrogate().answer(Context(0, 3, asked)).widening for asked in (snapshot, replace(snapshot, results=missed))
    )
    assert wide[0] > 2 * calm[0]
    assert wide[1] == calm[1]


def test_one_lucky_launch_of_a_noisy_device_does_not_end_the_search(run: Run) -> None:
    """Better than everything else, too slow by its prediction, and measured as fast enough."""
    lucky = max(
        (result for result in run.snapshot.results if result.latency_ms), key=lambda result: result.latency_ms or 0.0
    )
    assert lucky.state == "out_of_bounds"

    def gain(noise: float | None, launches: int) -> float:
        fast = replace(lucky, state="measured", latency_ms=1.45, memory_bytes=MIB, launches=launches, proxy=-25.0)
        results = tuple(fast if result is lucky else result for result in run.snapshot.results)
        answer = surrogate(least_gain=0.0).answer(
            Context(0, 9, replace(run.snapshot, results=results, launch_noise=noise))
        )
        assert answer.gain is not None
        return answer.gain

    assert gain(None, 1) == gain(0.3, 10_000) == 0.0
    assert gain(0.3, 1) > 0.01


def test_what_other_jobs_measured_spares_the_first_launches(run: Run) -> None:
    others = tuple(
        replace(run.snapshot.baselines[0], architecture=SPACE.architecture(result.genome), **figures(result))
        for result in run.snapshot.results[:20]
    )
    first = surrogate().answer(Context(0, 0, Snapshot((), run.snapshot.baselines, others))).proposals
    assert {proposal.operator for proposal in first} == {PREDICTED, AUDIT}
    device = Device(BEST)
    assert search(device, candidates=8, others=others).best > search(device, candidates=8).best * 0.9


def test_models_that_lack_a_kind_of_block_spare_no_launches(run: Run) -> None:
    def attention_alone(genome: Any) -> Architecture:
        whole = SPACE.architecture(genome)
        return whole.model_copy(update={"blocks": tuple(block for block in whole.blocks if block.kind == "attention")})

    others = tuple(
        replace(run.snapshot.baselines[0], architecture=attention_alone(result.genome), **figures(result))
        for result in run.snapshot.results[:20]
    )
    first = surrogate().answer(Context(0, 0, Snapshot((), (), others))).proposals
    assert {proposal.operator for proposal in first} == {SPREAD}


def figures(model: Any) -> dict[str, Any]:
    return {"latency_ms": model.latency_ms, "memory_bytes": model.memory_bytes}


def test_too_little_to_learn_from_is_said() -> None:
    proposals = surrogate().ask(0, 0, Snapshot())
    results = tuple(
        replace(Device(BEST).measured(proposal, index, 0), state="failed", latency_ms=None, memory_bytes=None)
        for index, proposal in enumerate(proposals)
    )
    again = surrogate().answer(Context(0, 1, Snapshot(results)))
    assert len(again.proposals) == 10
    assert not {result.digest for result in results} & set(digests(again.proposals))


def test_a_proxy_that_is_no_function_of_shapes_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="published_score") as caught:
        surrogate(Problem(proxy="published_score"))
    assert caught.value.field == "proxy"
    assert surrogate(Problem(proxy="total_parameters")).ask(0, 0, Snapshot())
