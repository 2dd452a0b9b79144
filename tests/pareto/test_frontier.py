"""Dominance and hypervolume against brute force, and the incremental frontier against a fresh one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.search.pareto.frontier import Dominance, hypervolume, nondominated

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


# The ε-frontier: the same in any order and by any increments, within ε of every point, no two members alike -----------

Point = tuple[float, float, float]

# A coarse grid makes ties and shared boxes common; the fine one has points on both sides of the edge of a box.
positive = st.one_of(st.integers(1, 6).map(float), st.integers(0, 60).map(lambda n: 5.0 * 1.004**n))
proxies = st.one_of(positive, st.integers(-3, 3).map(float), positive.map(lambda value: -value))
near = st.lists(st.tuples(proxies, positive, positive), max_size=30)
dominances = st.builds(Dominance, st.sampled_from([0.01, 0.05, 0.3]), st.booleans())


def names(points: list[Point]) -> list[str]:
    """Digests that tell nothing of the order."""
    return [f"{hash((index, point)) & 0xFFFFFFFF:08x}{index}" for index, point in enumerate(points)]


def members(dominance: Dominance, points: list[Point], digests: list[str]) -> set[str]:
    return {name for name, stays in zip(digests, dominance.frontier(points, digests), strict=True) if stays}


def as_good(point: Point, other: Point, dominance: Dominance) -> bool:
    """Whether `point` is nowhere worse than `other` by more than ε."""
    factor = (1 + dominance.epsilon) * (1 + 1e-9)
    if dominance.logarithmic:
        quality = point[0] + math.log(factor) >= other[0]
    else:
        quality = (point[0] * factor if point[0] > 0 else point[0] / factor) >= other[0]
    return quality and point[1] <= other[1] * factor and point[2] <= other[2] * factor


@given(near, dominances)
def test_every_point_is_within_epsilon_of_a_member(points: list[Point], dominance: Dominance) -> None:
    kept = [point for point, stays in zip(points, dominance.frontier(points, names(points)), strict=True) if stays]
    assert all(any(as_good(member, point, dominance) for member in kept) for point in points)


@given(near, dominances)
def test_members_are_not_dominated_and_no_two_are_alike(points: list[Point], dominance: Dominance) -> None:
    mask = dominance.frontier(points, names(points))
    plain = nondominated(points)
    assert all(plain[index] for index in range(len(points)) if mask[index])
    kept = [point for point, stays in zip(points, mask, strict=True) if stays]
    boxes = [box(point, dominance) for point in kept]
    for index, own_box in enumerate(boxes):
        others = boxes[:index] + boxes[index + 1 :]
        assert not any(all(theirs >= own for theirs, own in zip(other, own_box, strict=True)) for other in others)


def box(point: Point, dominance: Dominance) -> tuple[int, ...]:
    """Of an independent definition; higher is better."""
    width = math.log1p(dominance.epsilon)
    quality = point[0]
    if not dominance.logarithmic and quality:
        quality = math.copysign(750 + math.log(abs(quality)), quality)
    return tuple(math.floor(value / width) for value in (quality, -math.log(point[1]), -math.log(point[2])))


@given(near, dominances, st.randoms(use_true_random=False))
def test_one_after_the_other_in_any_order_is_all_at_once(
    points: list[Point], dominance: Dominance, random: Any
) -> None:
    named = dict(zip(names(points), points, strict=True))
    order = list(named)
    random.shuffle(order)
    archive: set[str] = set()
    for name in order:
        pool = sorted({*archive, name})
        archive = members(dominance, [named[name] for name in pool], pool)
    assert archive == members(dominance, points, names(points))


@given(near)
def test_without_epsilon_every_difference_counts(points: list[Point]) -> None:
    assert Dominance().frontier(points, names(points)).tolist() == nondominated(points).tolist()


def test_the_same_difference_is_judged_by_its_share() -> None:
    """1 % of a latency counts as little as 1 % of a memory or of a perplexity, whose logarithm the score is."""
    law = Dominance(0.05, logarithmic=True)
    better = (-math.log(30.0), 10.2, 1000.0)
    alike = [(-math.log(30.1), 10.2, 1000.0), (-math.log(30.0), 10.21, 1000.0), (-math.log(30.0), 10.2, 1001.0)]
    for other in alike:
        assert law.frontier([better, other], ["b", "a"]).tolist() == [True, False], other
    quicker = (-math.log(33.0), 9.0, 1000.0)
    assert law.frontier([better, quicker], ["b", "a"]).tolist() == [True, True]
    assert law.frontier([better, better], ["b", "a"]).tolist() == [False, True], "of equal ones the lower digest"
