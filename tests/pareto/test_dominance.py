"""The ε-frontier: the same in any order and by any increments, within ε of every point, no two members alike."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefront.core.pareto.frontier import Dominance, nondominated

Point = tuple[float, float, float]

# A coarse grid makes ties and shared boxes common; the fine one has points on both sides of the edge of a box.
positive = st.one_of(st.integers(1, 6).map(float), st.integers(0, 60).map(lambda n: 5.0 * 1.004**n))
proxies = st.one_of(positive, st.integers(-3, 3).map(float), positive.map(lambda value: -value))
many = st.lists(st.tuples(proxies, positive, positive), max_size=30)
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


@given(many, dominances)
@settings(max_examples=300)
def test_every_point_is_within_epsilon_of_a_member(points: list[Point], dominance: Dominance) -> None:
    kept = [point for point, stays in zip(points, dominance.frontier(points, names(points)), strict=True) if stays]
    assert all(any(as_good(member, point, dominance) for member in kept) for point in points)


@given(many, dominances)
@settings(max_examples=300)
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


@given(many, dominances, st.randoms(use_true_random=False))
@settings(max_examples=300)
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


@given(many)
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


@pytest.mark.parametrize("wrong", [-0.01, 0.5, float("nan")])
def test_an_epsilon_that_makes_no_sense_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="epsilon is at least 0 and below"):
        Dominance(wrong)


def test_a_latency_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Dominance(0.01).frontier([(1.0, 0.0, 1.0)], ["a"])
