"""A device that takes work and reports none: others get the rest at once, and what it holds after a time."""

from __future__ import annotations

import pytest
from concurrency import at_once
from databases import ON_BOTH
from leasing import Leasing, done
from sqlalchemy import func, select

from edgefront.core.common.errors import Gone
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import MAX_BATCH
from edgefront.core.services.measuring.launches import MAX_HELD, GrantedLease
from edgefront.core.services.measuring.leases import LIMITS_PER_LAUNCH, ROOM_S
from edgefront.core.services.measuring.quarantine import MAX_FAILING
from edgefront.core.store.tables import Device, Launch

BEAT_S = 50.0


def held(leasing: Leasing, device: str) -> int:
    with leasing.database.read() as session:
        query = select(func.count()).where(Launch.device_id == device, Launch.state == "leased")
        return session.scalar(query) or 0


def test_a_device_holds_a_bounded_number_of_launches(leasing: Leasing) -> None:
    hoarder, other = leasing.device("hoarder"), leasing.device("other")
    leasing.launches(MAX_HELD + 40)
    first = leasing.claim(hoarder, MAX_BATCH)
    leasing.claim(hoarder, MAX_BATCH - 1)
    assert len(leasing.claim(hoarder, MAX_BATCH).items) == 1, "as many as it may still hold"
    for _ in range(3):
        assert not leasing.claim(hoarder, MAX_BATCH).items
    assert held(leasing, hoarder) == MAX_HELD
    assert len(leasing.claim(other, MAX_BATCH).items) == MAX_BATCH

    leasing.append(hoarder, *((item, done()) for item in first.items[:3]))
    leasing.release(hoarder, first, first.items[3].id)
    assert len(leasing.claim(hoarder, MAX_BATCH).items) == 4, "a report, or one that is given back, makes room"
    assert held(leasing, hoarder) == MAX_HELD


@ON_BOTH
def test_requests_at_once_hold_no_more(leasing: Leasing) -> None:
    hoarder = leasing.device()
    leasing.launches(MAX_HELD + 60)
    at_once(*[lambda: [leasing.claim(hoarder, MAX_BATCH) for _ in range(6)]] * 8)
    while leasing.claim(hoarder, MAX_BATCH).items:  # a request during another one gets nothing
        pass
    assert held(leasing, hoarder) == MAX_HELD


def kept(leasing: Leasing, device: str, *held: GrantedLease, stop_s: float = 1e6) -> float:
    """Seconds for which heartbeats keep the last of the leases, at most about `stop_s`."""
    begun, alive = leasing.now, list(held)
    while alive and (leasing.now - begun).total_seconds() < stop_s:
        leasing.tick(BEAT_S)
        for lease in list(alive):
            try:
                leasing.heartbeat(device, lease)
            except Gone:
                alive.remove(lease)
    return (leasing.now - begun).total_seconds()


@pytest.mark.parametrize("limit_s", [5.0, 3600.0])
def test_heartbeats_without_results_do_not_keep_a_launch_for_ever(leasing: Leasing, limit_s: float) -> None:
    """Until one launch would have had its result."""
    hoarder, other = leasing.device("hoarder"), leasing.device("other")
    made = leasing.launches(3, leasing.target(protocol=MeasurementProtocol(time_limit_s=limit_s)))
    first = leasing.claim(hoarder, 1)
    second = leasing.claim(hoarder, 2)
    leasing.start(hoarder, second.items[0])
    longest = LIMITS_PER_LAUNCH * limit_s + ROOM_S
    assert longest <= kept(leasing, hoarder, first, second) <= longest + 2 * BEAT_S
    leasing.sweep()
    assert [leasing.launch(id_).state for id_ in made] == ["wanted"] * 3
    assert [leasing.launch(id_).attempts for id_ in made] == [0, 1, 0]
    assert len(leasing.row(Device, hoarder).failing) == 2, "one of each lease"
    assert {item.id for item in leasing.claim(other).items} == set(made)
    assert leasing.outcomes(hoarder, (second.items[1], done())) == ["accepted"], "a late report of its holder counts"
    assert len(leasing.row(Device, hoarder).failing) == 1, "what is measured makes up for a failure"


def test_an_agent_that_takes_long_keeps_its_lease(leasing: Leasing) -> None:
    """It takes minutes for each launch, and asks for the next batch when it starts the last launch."""
    device = leasing.device()
    protocol = MeasurementProtocol(time_limit_s=60.0)
    leasing.launches(14, leasing.target(planned=14, protocol=protocol))
    lease, following = leasing.claim(device, 4), GrantedLease(frozenset())
    for _ in range(3):
        for item in lease.items:
            if item is lease.items[-1]:
                following = leasing.claim(device, 4)
            for _ in range(8):
                leasing.tick(BEAT_S)
                leasing.heartbeat(device, lease)
                if item is lease.items[-1]:
                    leasing.heartbeat(device, following)
            leasing.sweep()
            assert leasing.outcomes(device, (item, done())) == ["accepted"]
        lease = following
    assert leasing.row(Device, device).quarantine is None


def test_what_is_lost_again_and_again_is_quarantined_and_others_get_the_work(leasing: Leasing) -> None:
    """An agent that is started again and again, and dies before it starts a launch."""
    broken, other = leasing.device("broken"), leasing.device("other")
    made = leasing.launches(8)
    for _ in range(MAX_FAILING):
        assert len(leasing.claim(broken).items) == 8
        leasing.tick(leasing.ttl_s + 1)
        leasing.sweep()
    assert "leased without a result" in leasing.row(Device, broken).quarantine
    assert (leasing.claim(broken).items, leasing.claim(broken).state) == ((), "draining")
    assert {item.id for item in leasing.claim(other).items} == set(made)
    assert {leasing.launch(id_).attempts for id_ in made} == {0}


def test_leases_of_launches_that_were_withdrawn_or_reported_are_not_lost(leasing: Leasing) -> None:
    device = leasing.device()
    for _ in range(MAX_FAILING):
        target = leasing.target(planned=2)
        leasing.launches(2, target)
        assert leasing.claim(device).items
        with leasing.write() as session:
            session.query(Launch).filter(Launch.target_id == target).update({"state": "cancelled"})
        leasing.tick(leasing.ttl_s + 1)
        leasing.sweep()
    assert leasing.row(Device, device).failing is None
