"""Launches that are made again: those that differ, those that alone decide on a limit, and those that ended badly."""

from __future__ import annotations

import pytest
from leasing import Leasing, crashed, done, out_of_memory
from sqlalchemy.orm import Session

from edgefront.core.common.states import Purpose
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.search.pareto.options import Estimate
from edgefront.core.services.jobs.progress import has_next_step
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring.decision import LAUNCH_ATTEMPTS, MAX_INFEASIBLE
from edgefront.core.services.measuring.result_processing import MAX_REPEATED
from edgefront.core.services.search.proposing import missing_launches
from edgefront.core.store.tables import Candidate, Launch, Measurement, Target

LIMIT_MS = 40.0


def limited(leasing: Leasing, **limits: float) -> str:
    target = leasing.target()
    with leasing.write() as session:
        session.get_one(Target, target).limits = limits or {"latency_ms": LIMIT_MS}
    return target


def measure(leasing: Leasing, device: str, *results: LaunchResult) -> int:
    """Reports these of the launches that come, one after the other; returns how many were made."""
    for made, result in enumerate(results):
        items = leasing.claim(device, 1).items
        if not items:
            return made
        leasing.report(device, (items[0], result))
    return len(results)


def only(leasing: Leasing) -> tuple[Candidate, Measurement]:
    (candidate,), (measurement,) = leasing.rows(Candidate), leasing.rows(Measurement)
    return candidate, measurement


def may_advance(leasing: Leasing, target: str) -> bool:
    with leasing.database.read() as session:
        return has_next_step(session, session.get_one(Target, target), leasing.now)


def has_repeat(leasing: Leasing, target: str) -> bool:
    with leasing.database.read() as session:
        return demand.has_live_launch(session, session.get_one(Target, target), Purpose.REPEAT)


def test_launches_that_differ_are_repeated_and_the_interval_covers_what_remains(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.candidate(target, launches=2)
    assert measure(leasing, device, done(10.0), done(16.0)) == 2
    candidate, measurement = only(leasing)
    assert (candidate.state, candidate.latency_ms) == ("measured", 13.0)
    assert candidate.latency_half_width_ms is not None
    assert 13.0 - candidate.latency_half_width_ms < 10.0 < 16.0 < 13.0 + candidate.latency_half_width_ms
    assert not may_advance(leasing, target), "the search waits for it"
    assert measure(leasing, device, *[done(10.2)] * 3) == MAX_REPEATED - 2
    candidate, measurement = only(leasing)
    assert (measurement.launches, candidate.latency_ms) == (3, 10.2)
    assert Estimate.plus_minus(10.2, candidate.latency_half_width_ms).high > 16.0, "nobody is set aside"
    assert [row.purpose for row in leasing.rows(Launch)].count(Purpose.REPEAT) == 1
    assert may_advance(leasing, target)


@pytest.mark.parametrize(
    ("role", "first_ms", "second_ms", "state"),
    [
        ("search", 42.8, None, "out_of_bounds"),  # what would change the answer is launched again at the end
        ("baseline", 39.0, 42.0, "out_of_bounds"),  # a depth that was within the limit at first
        ("baseline", 42.0, 37.0, "measured"),
        ("baseline", 42.0, 43.0, "out_of_bounds"),
        ("baseline", 20.0, None, "measured"),
        ("baseline", 60.0, None, "out_of_bounds"),
    ],
)
def test_one_launch_near_a_limit_does_not_decide_on_a_depth(
    leasing: Leasing, role: str, first_ms: float, second_ms: float | None, state: str
) -> None:
    device, target = leasing.device(), limited(leasing)
    leasing.candidate(target, role=role)
    assert measure(leasing, device, done(first_ms)) == 1
    assert has_repeat(leasing, target) == (second_ms is not None)
    assert measure(leasing, device, *[done(second_ms or first_ms)] * 3) <= MAX_REPEATED - 1
    candidate, measurement = only(leasing)
    assert candidate.state == state
    assert measurement.launches > 1 or second_ms is None


def test_no_launch_is_requested_while_another_is_still_to_come(leasing: Leasing) -> None:
    device, target = leasing.device(), limited(leasing)
    leasing.candidate(target, role="baseline", launches=2)
    assert measure(leasing, device, done(LIMIT_MS - 1)) == 1
    assert not has_repeat(leasing, target)


def test_what_is_certain_is_not_launched_again(leasing: Leasing) -> None:
    """Launches within the scatter of their device; and what is excluded by another limit, however near it is to one."""
    device, target = leasing.device(), leasing.target()
    leasing.candidate(target, launches=2)
    assert measure(leasing, device, done(10.0), done(12.0), done(1.0)) == 2
    leasing.candidate(limited(leasing, latency_ms=LIMIT_MS, memory_mb=1.0), role="baseline")
    assert measure(leasing, device, done(41.0, memory=2 << 20), done(1.0)) == 1
    assert leasing.rows(Candidate)[-1].state == "out_of_bounds"


def test_a_second_launch_that_fails_leaves_the_first(leasing: Leasing) -> None:
    device, target = leasing.device(), limited(leasing)
    leasing.candidate(target, role="baseline")
    assert measure(leasing, device, done(42.0), *[crashed()] * LAUNCH_ATTEMPTS, done(1.0)) == 1 + LAUNCH_ATTEMPTS
    candidate, measurement = only(leasing)
    assert (candidate.state, measurement.launches) == ("out_of_bounds", 1)
    assert not has_repeat(leasing, target)


@pytest.mark.parametrize("then", [out_of_memory(), done(10.0)], ids=["again", "not again"])
def test_two_launches_say_that_a_model_is_infeasible(leasing: Leasing, then: LaunchResult) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.candidate(target)
    assert measure(leasing, device, out_of_memory()) == 1
    assert only(leasing)[0].state == "waiting"
    assert measure(leasing, device, then, then) == MAX_INFEASIBLE - 1
    assert only(leasing)[0].state == ("infeasible" if then.outcome == "infeasible" else "measured")


def test_what_failed_for_one_job_is_measured_for_the_next(leasing: Leasing) -> None:
    """The device may have been broken; what is infeasible stays so."""
    device, target = leasing.device(), leasing.target()
    measurement, _ = leasing.candidate(target)
    assert measure(leasing, device, *[crashed()] * LAUNCH_ATTEMPTS, crashed()) == LAUNCH_ATTEMPTS
    assert only(leasing)[1].state == "failed"
    later = leasing.target()
    leasing.candidate(later, measurement=measurement, launches=0)

    def propose(session: Session) -> list[str]:
        row = session.get_one(Measurement, measurement)
        want = demand.Want(row.digest, row.architecture, row.seed)
        found = demand.measurements(session, row.device_key, row.protocol, row.protocol_digest, [want])
        candidates = session.query(Candidate).filter(Candidate.target_id == later).all()
        return missing_launches(session, candidates, {each.id: each for each in found.values()}, 1)

    with leasing.write() as session:
        assert propose(session) == [measurement]
