"""Dominance and hypervolume against brute force, and the incremental frontier against a fresh one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefront.core.pareto.frontier import hypervolume, nondominated

REFERENCE = {"proxy": 0.0, "proxy_scale": 10.0, "latency_ms": 11.0, "memory_bytes": 11.0}

# A small grid makes ties, duplicates and dominance in one objective alone common.
coordinate = st.integers(1, 6).map(float)
point = st.tuples(coordinate, coordinate, coordinate)
many = st.lists(point, max_size=30)


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    no_worse = a[0] >= b[0] and a[1] <= b[1] and a[2] <= b[2]
    return no_worse and a != b


def brute_force(points: list[tuple[float, ...]]) -> list[bool]:
    return [not any(dominates(other, point) for other in points) for point in points]


def grid_volume(points: list[tuple[float, ...]]) -> float:
    """Hypervolume by counting unit cells; points and reference have whole coordinates."""
    cells = {
        (p, latency, memory)
        for proxy, least_latency, least_memory in points
        for p in range(int(proxy))
        for latency in range(int(least_latency), 11)
        for memory in range(int(least_memory), 11)
    }
    return len(cells) / (10 * 11 * 11)


@given(many)
@settings(max_examples=300)
def test_nondominated_is_brute_force(points: list[tuple[float, ...]]) -> None:
    assert nondominated(points).tolist() == brute_force(points)


@given(many)
def test_hypervolume_counts_the_dominated_cells(points: list[tuple[float, ...]]) -> None:
    assert hypervolume(points, REFERENCE) == pytest.approx(grid_volume(points), abs=1e-12)


@pytest.mark.parametrize(
    ("points", "volume"),
    [
        ([], 0.0),
        ([(5.0, 5.5, 5.5)], 0.125),
        ([(10.0, 0.0, 0.0)], 1.0),
        ([(20.0, 0.0, 0.0)], 2.0),  # a proxy above the scale
        ([(5.0, 11.0, 5.5)], 0.0),  # on the reference plane
        ([(5.0, 30.0, 5.5)], 0.0),  # beyond it
        ([(5.0, 5.5, 5.5), (5.0, 30.0, 1.0)], 0.125),
        ([(10.0, 5.5, 5.5), (5.0, 0.0, 5.5)], 0.375),
    ],
)
def test_hypervolume_in_units_of_the_box(points: list[tuple[float, ...]], volume: float) -> None:
    assert hypervolume(points, REFERENCE) == pytest.approx(volume, abs=1e-15)


def test_inputs_stay_as_they_are() -> None:
    points = np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 1.0]])
    points.flags.writeable = False
    nondominated(points)
    hypervolume(points, REFERENCE)
    assert points.tolist() == [[1.0, 2.0, 3.0], [2.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    "wrong", [[(1.0, 2.0)], [(1.0, float("nan"), 1.0)], [(1.0, 1.0, float("inf"))], [1.0, 2.0, 3.0]]
)
@pytest.mark.parametrize("function", [nondominated, lambda p: hypervolume(p, REFERENCE)])
def test_invalid_points_are_refused(function: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        function(wrong)
