"""Dominance and hypervolume against brute force, and the incremental frontier against a fresh one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from core.pareto import frontier as frontier_module
from core.pareto.frontier import Change, Frontier, hypervolume, nondominated

REFERENCE = {"proxy": 0.0, "proxy_scale": 10.0, "latency_ms": 11.0, "memory_bytes": 11.0}

# A small grid makes ties, duplicates and dominance in one objective alone common.
coordinate = st.integers(1, 6).map(float)
point = st.tuples(coordinate, coordinate, coordinate)
many = st.lists(point, max_size=30)


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    no_worse = a[0] >= b[0] and a[1] <= b[1] and a[2] <= b[2]
    return no_worse and a != b


def brute_force(points: list[tuple[float, ...]]) -> list[bool]:
    return [not any(dominates(other, one) for other in points) for one in points]


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


@given(many, st.randoms(use_true_random=False))
def test_neither_order_nor_duplicates_matter(points: list[tuple[float, ...]], random: Any) -> None:
    shuffled = [*points, *points[:5]]
    random.shuffle(shuffled)
    kept = {point for point, stays in zip(points, nondominated(points), strict=True) if stays}
    again = [point for point, stays in zip(shuffled, nondominated(shuffled), strict=True) if stays]
    assert set(again) == kept
    assert len(again) == sum(point in kept for point in shuffled), "all of equal points are on it"
    assert hypervolume(shuffled, REFERENCE) == pytest.approx(hypervolume(points, REFERENCE), rel=1e-12)


@given(many)
def test_hypervolume_counts_the_dominated_cells(points: list[tuple[float, ...]]) -> None:
    assert hypervolume(points, REFERENCE) == pytest.approx(grid_volume(points), abs=1e-12)


@given(many)
def test_dominated_points_add_nothing(points: list[tuple[float, ...]]) -> None:
    mask = nondominated(points)
    kept = [point for point, stays in zip(points, mask, strict=True) if stays]
    assert hypervolume(kept, REFERENCE) == pytest.approx(hypervolume(points, REFERENCE), rel=1e-12)


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
    Frontier(enumerate(points), reference=REFERENCE).insert("new", points[0])
    assert points.tolist() == [[1.0, 2.0, 3.0], [2.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    "wrong", [[(1.0, 2.0)], [(1.0, float("nan"), 1.0)], [(1.0, 1.0, float("inf"))], [1.0, 2.0, 3.0]]
)
@pytest.mark.parametrize(
    "function", [nondominated, lambda p: hypervolume(p, REFERENCE), lambda p: Frontier(enumerate(p))]
)
def test_what_is_no_point_is_refused(function: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        function(wrong)


class FrontierMachine(RuleBasedStateMachine):
    """Whatever is inserted, moved and removed, the frontier is that of what is there, and changes add up."""

    @initialize(points=many)
    def start(self, points: list[tuple[float, ...]]) -> None:
        self.points: dict[int, tuple[float, ...]] = dict(enumerate(points))
        self.frontier: Frontier[int] = Frontier(self.points.items(), reference=REFERENCE)
        self.known = set(self.frontier.keys)
        self.next = len(points)

    def _saw(self, change: Change[int]) -> None:
        joined, left = set(change.joined), set(change.left)
        assert len(joined) == len(change.joined)
        assert len(left) == len(change.left)
        assert not joined & self.known
        assert left <= self.known
        self.known = (self.known | joined) - left
        assert bool(change) == bool(joined or left)

    @rule(point=point)
    def insert(self, point: tuple[float, ...]) -> None:
        self.points[self.next] = point
        self._saw(self.frontier.insert(self.next, point))
        self.next += 1

    @rule(point=point, data=st.data())
    def update(self, point: tuple[float, ...], data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*self.points, self.next]))
        self.next += key == self.next
        self.points[key] = point
        self._saw(self.frontier.update(key, point))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.points:
            key = data.draw(st.sampled_from(list(self.points)))
            del self.points[key]
            self._saw(self.frontier.remove(key))

    @invariant()
    def is_the_frontier_of_what_is_there(self) -> None:
        listed = list(self.points.values())
        expected = {key for key, stays in zip(self.points, brute_force(listed), strict=True) if stays}
        assert set(self.frontier.keys) == expected == self.known
        assert len(self.frontier) == len(expected)
        assert self.frontier.total == len(self.points)
        assert all((key in self.frontier) == (key in expected) for key in [*self.points, -1])
        found = dict(zip(self.frontier.keys, map(tuple, self.frontier.points.tolist()), strict=True))
        assert found == {key: self.points[key] for key in expected}
        assert sorted(proxy for proxy, _, _ in found.values()) == [proxy for proxy, _, _ in found.values()]
        assert self.frontier.hypervolume == pytest.approx(grid_volume(listed), abs=1e-12)


FrontierMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestFrontierMachine = FrontierMachine.TestCase


class LargeFrontierMachine(FrontierMachine):
    """The same with the volume kept up by what each new point adds."""

    @initialize(points=many)
    def start(self, points: list[tuple[float, ...]]) -> None:
        super().start(points)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(frontier_module, "LARGE", 0)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()


LargeFrontierMachine.TestCase.settings = FrontierMachine.TestCase.settings
TestLargeFrontierMachine = LargeFrontierMachine.TestCase


def test_a_large_frontier_grown_point_by_point_agrees_with_a_fresh_one() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([1, 1, 1], 1500)  # on a plane: none dominates another
    points = np.column_stack([10 * weights[:, 0], 10 * (1 - weights[:, 1]), 10 * (1 - weights[:, 2])])
    grown: Frontier[int] = Frontier(reference=REFERENCE)
    for key, one in enumerate(points):
        grown.insert(key, one)
        assert grown.hypervolume >= 0
    assert len(grown) == 1500
    assert grown.hypervolume == pytest.approx(hypervolume(points, REFERENCE), rel=1e-12)


def test_keys_are_told_apart() -> None:
    frontier: Frontier[str] = Frontier({"a": (1, 1, 1)}.items())
    with pytest.raises(KeyError):
        frontier.insert("a", (2, 2, 2))
    with pytest.raises(KeyError):
        frontier.remove("b")
    with pytest.raises(ValueError, match="reference"):
        _ = frontier.hypervolume
    assert frontier.update("a", (1, 1, 1)) == Change()
