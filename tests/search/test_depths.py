"""Which depths of the stock model are measured for the best model within limits."""

from __future__ import annotations

import pytest

from edgefront.core.search.depths import Depth, complete, next_depths
from edgefront.core.search.problem import Problem
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space

EVERY = space("lts-gpt2").baselines()
MS, BYTES = 3.0, 10_000_000
"""That each layer adds."""


def depth(architecture: Architecture, scatter: float = 0.0) -> Depth:
    layers = len(architecture.blocks) // 2
    return Depth(2.0 + MS * layers * (1 + scatter), 0.02 * MS * layers, 50_000_000 + BYTES * layers)


def measured(problem: Problem, scatter: float = 0.0) -> list[Depth]:
    """The depths that are measured until no more is wanted; each second one is slower by `scatter`."""
    depths: list[Depth] = []
    while not complete(depths, len(EVERY), problem):
        next_models = next_depths(depths, EVERY, problem)
        assert next_models
        depths += [depth(model, scatter * (index % 2)) for index, model in enumerate(next_models)]
    return depths


@pytest.mark.parametrize("limit", [1.0, 5.5, 8.1, 20.0, 21.0, 30.0, 47.0, 49.0, 51.0])
@pytest.mark.parametrize("scatter", [0.0, 0.01, -0.01])
def test_the_largest_that_fits_is_measured_and_none_far_beyond(limit: float, scatter: float) -> None:
    problem = Problem("best_within_limits", latency_ms=limit)
    within = [model for model in EVERY if (depth(model).latency_ms or 0.0) * (1 + abs(scatter)) <= limit]
    count = len(measured(problem, scatter))
    assert count >= min(len(within) + 1, len(EVERY))
    assert count <= max(2, min(len(within) + 3, len(EVERY)))


def test_memory_ends_it_as_latency_does() -> None:
    problem = Problem("best_within_limits", latency_ms=1000.0, memory_bytes=95_000_000)
    assert len(measured(problem)) == 5


def test_one_that_may_be_within_its_interval_does_not_end_it() -> None:
    problem = Problem("best_within_limits", latency_ms=10.0)
    assert Depth(10.5, 0.1, 1).beyond(problem)
    assert not Depth(10.5, 0.6, 1).beyond(problem)
    assert Depth(infeasible=True).beyond(problem)
    assert not Depth().beyond(problem), "a launch that failed says nothing of deeper ones"
    assert len(next_depths([Depth(), Depth()], EVERY, problem)) == 1


def test_a_frontier_is_compared_with_every_depth_at_once() -> None:
    assert list(next_depths([], EVERY, Problem(latency_ms=1.0))) == list(EVERY)
    assert not complete([], len(EVERY), Problem(latency_ms=1.0))
    assert complete([Depth(5.0, 0.1, 1)] * len(EVERY), len(EVERY), Problem(latency_ms=1.0))
