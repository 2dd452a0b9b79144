"""Further launches go where they can change the frontier, and nowhere else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from databases import statements
from leasing import Leasing, done

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import LaunchVariance
from edgefront.core.services.search import refining
from edgefront.core.services.search.stalled import stalled
from edgefront.core.store.tables import Candidate, Job, Target


def measured(leasing: Leasing, device: str, target: str, *points: tuple[float, list[float]]) -> list[str]:
    """Candidates with this proxy and these launches' latencies; returns their measurements."""
    made = []
    for proxy, latencies in points:
        measurement, _ = leasing.candidate(target, proxy=proxy, launches=len(latencies))
        items = leasing.claim(device).items
        leasing.report(device, *((item, done(ms)) for item, ms in zip(items, latencies, strict=True)))
        made.append(measurement)
    return made


def uncertain(leasing: Leasing, target: str) -> list[str]:
    with leasing.database.write() as session:
        return refining.uncertain(session, session.get_one(Target, target))


def test_only_points_that_may_be_on_the_frontier_are_uncertain(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target(refinement=2.0, state="refining")
    frontier, near, far = measured(leasing, device, target, (10.0, [10.0, 10.6]), (9.0, [10.35]), (8.0, [20.0]))
    rows = {row.measurement_id: row.on_frontier for row in leasing.rows(Candidate)}
    assert rows == {frontier: True, near: False, far: False}
    assert uncertain(leasing, target) == [frontier, near]


@pytest.mark.parametrize(
    ("refinement", "points", "expected"),
    [
        (2.0, [(10.0, [10.0, 10.001, 9.999, 10.0])], []),  # it is certain
        (2.0, [(10.0, [10.0]), (9.0, [11.0])], [0]),  # while the spread is unknown a frontier point gets a second one
        # The widest come first. Three search candidates beside one baseline's share make a budget of 0.7 · 3 = 2.
        (0.7, [(10.0, [10.0, 12.0, 9.0]), (9.0, [8.0, 8.0]), (8.0, [7.0]), (7.0, [6.0])], [2, 3]),
    ],
)
def test_what_is_launched_again(
    leasing: Leasing, refinement: float, points: list[tuple[float, list[float]]], expected: list[int]
) -> None:
    device, target = leasing.device(), leasing.target(refinement=refinement, state="refining")
    made = measured(leasing, device, target, *points)
    assert uncertain(leasing, target) == [made[place] for place in expected]


def test_baselines_are_made_as_certain_as_the_points_that_are_compared_with_them(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target(refinement=2.0, state="refining")
    baseline, _ = leasing.candidate(target, proxy=9.5, launches=2, role="baseline")
    items = leasing.claim(device).items
    leasing.report(device, *((item, done(ms)) for item, ms in zip(items, (30.0, 33.0), strict=True)))
    (point,) = measured(leasing, device, target, (10.0, [10.0]))
    assert uncertain(leasing, target) == [point, baseline]  # the fewest launches first


def test_the_best_within_limits_is_launched_twice_however_little_launches_scatter(leasing: Leasing) -> None:
    protocol = MeasurementProtocol(precision=0.5)
    device, target = leasing.device(), leasing.target(refinement=2.0, state="refining", protocol=protocol)
    points = [(10.0 - place, [10.0, 10.0001]) for place in range(3)]
    *_, answer = measured(leasing, device, target, *points, (11.0, [12.0]))
    before = uncertain(leasing, target)
    with leasing.write() as session:
        job = session.get_one(Job, session.get_one(Target, target).job_id)
        job.request = {**job.request, "goal": "best_within_limits"}
    assert (before, uncertain(leasing, target)) == ([], [answer])


def test_a_measurement_with_a_live_launch_waits_for_it(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target(refinement=2.0, state="refining")
    measurement, _ = leasing.candidate(target, launches=3)
    for ms, expected in ((10.0, []), (11.0, []), (10.5, [measurement])):
        leasing.report(device, (leasing.claim(device, 1).items[0], done(ms)))
        assert uncertain(leasing, target) == expected


def test_max_launches_ends_it(leasing: Leasing) -> None:
    protocol = MeasurementProtocol(max_launches=2)
    device, target = leasing.device(), leasing.target(refinement=5.0, state="refining", protocol=protocol)
    measured(leasing, device, target, (10.0, [10.0, 12.0]))
    assert uncertain(leasing, target) == []


def test_optimism_names_the_numbers_of_launches_that_are_not_precise_enough() -> None:
    protocol = MeasurementProtocol(precision=0.02, max_launches=5)
    wide = refining.optimism(protocol, LaunchVariance(sum_squares=20 * 0.05**2, degrees=20))
    assert list(wide) == [1, 2, 3, 4]
    assert all(0 < factor < 1 for factor in wide.values())
    assert wide[1] < wide[2]
    assert refining.optimism(protocol, LaunchVariance(20 * 0.001**2, 20)) == {}
    assert refining.optimism(protocol, LaunchVariance()) == {1: 1.0}


def test_a_sweep_asks_as_much_of_twenty_timed_targets_as_of_one(leasing: Leasing) -> None:
    counts, targets = [], []
    for number in range(20):
        targets.append(leasing.target(planned=4))
        with leasing.write() as session:
            target = session.get_one(Target, targets[-1])
            job = session.get_one(Job, target.job_id)
            target.started_at = leasing.now
            job.request = {**job.request, "budget": {**job.request["budget"], "minutes": 10}}
        if number in (0, 19):
            with statements(leasing.database) as seen, leasing.database.read() as session:
                stalled(session, leasing.now)
            counts.append(len(seen))
    assert counts[0] == counts[1]
    with leasing.database.read() as session:
        assert set(targets) <= set(stalled(session, leasing.now + timedelta(minutes=10)))
