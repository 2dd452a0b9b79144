"""Which depths of the stock model are measured for the best model within limits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.search.depths import MAX_DEPTHS, Depth, next_depths
from edgefront.core.search.problem import Problem

EVERY = space("lts-gpt2").baselines(list(range(1, 31)))
MS, BYTES = 3.0, 10_000_000
"""That each layer adds."""


def layers_of(model: Architecture) -> int:
    return len(model.blocks) // 2


def depth(model: Architecture, scatter: float = 0.0) -> Depth:
    layers = layers_of(model)
    latency = 2.0 + MS * layers * (1 + scatter)
    return Depth(len(model.blocks), latency, 50_000_000 + BYTES * layers, {"first_token": 10.0 * layers})


def measured(problem: Problem, scatter: Sequence[float] = (0.0,)) -> dict[int, Depth]:
    """Layers → the depths that are measured until no more is wanted, off by each `scatter` in turn."""
    depths: dict[int, Depth] = {}
    while wanted := next_depths(list(depths.values()), EVERY, problem):
        for model in wanted:
            assert layers_of(model) not in depths
            depths[layers_of(model)] = depth(model, scatter[len(depths) % len(scatter)])
    return depths


def deepest_within(depths: dict[int, Depth], limit: float) -> int:
    return max((layers for layers, known in depths.items() if (known.latency_ms or 0.0) <= limit), default=0)


@pytest.mark.parametrize("limit", [1.0, 5.0, 5.5, 8.1, 20.0, 21.0, 30.0, 47.0, 49.0, 75.0, 91.9, 92.1, 1000.0])
def test_the_deepest_within_the_limit_is_among_five(limit: float) -> None:
    found = measured(Problem("best_within_limits", latency_ms=limit))
    assert deepest_within(found, limit) == sum(2.0 + MS * layers <= limit for layers in range(1, 31))
    assert len(found) <= MAX_DEPTHS


@pytest.mark.parametrize("limit", [8.1, 20.0, 30.0, 47.0, 75.0])
@pytest.mark.parametrize("scatter", [(0.05, -0.05), (-0.05, 0.05, 0.0), (0.1, 0.0)])
def test_where_launches_scatter_it_is_off_by_what_they_scatter(limit: float, scatter: Sequence[float]) -> None:
    found = measured(Problem("best_within_limits", latency_ms=limit), scatter)
    true = sum(2.0 + MS * layers <= limit for layers in range(1, 31))
    assert abs(deepest_within(found, limit) - true) <= 1 + 0.1 * true
    assert len(found) <= MAX_DEPTHS


def test_memory_ends_it_as_latency_does() -> None:
    found = measured(Problem("best_within_limits", latency_ms=1000.0, memory_bytes=95_000_000))
    assert {4, 5} <= found.keys()
    assert max(found) == 5


def test_every_limited_time_counts() -> None:
    found = measured(Problem("best_within_limits", latency_ms=1000.0, times_ms={"first_token": 75.0}))
    assert {7, 8} <= found.keys()


def test_one_that_the_device_refuses_is_beyond_the_limits() -> None:
    refused = [depth(EVERY[0]), Depth(len(EVERY[4].blocks), infeasible=True)]
    wanted = next_depths(refused, EVERY, Problem("best_within_limits", latency_ms=1000.0))
    assert [layers_of(model) for model in wanted] < [5]


def test_one_whose_launch_failed_says_nothing_and_is_not_asked_for_again() -> None:
    failed = [Depth(len(EVERY[0].blocks)), Depth(len(EVERY[4].blocks))]
    wanted = next_depths(failed, EVERY, Problem("best_within_limits", latency_ms=10.0))
    assert [layers_of(model) for model in wanted] != [1]
    assert len(wanted) == 1


def test_few_depths_are_all_measured() -> None:
    problem = Problem("best_within_limits", latency_ms=1000.0)
    assert list(next_depths([], EVERY[:1], problem)) == list(EVERY[:1])
    assert not next_depths([depth(EVERY[0])], EVERY[:1], problem)
    assert list(next_depths([], EVERY[:2], problem)) == list(EVERY[:2])


def test_a_frontier_is_compared_with_every_depth_at_once() -> None:
    assert list(next_depths([], EVERY, Problem(latency_ms=1.0))) == list(EVERY)
    assert not next_depths([depth(model) for model in EVERY], EVERY, Problem(latency_ms=1.0))
