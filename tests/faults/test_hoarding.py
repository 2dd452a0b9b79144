"""A device that takes work and reports none: others get the rest at once, and what it holds after a time."""

from __future__ import annotations

import pytest
from concurrency import at_once
from databases import ON_BOTH
from lease_world import World, done
from sqlalchemy import func, select

from edgefront.core.common.errors import Gone
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import MAX_BATCH
from edgefront.core.services.measuring.launches import MAX_HELD, GrantedLease
from edgefront.core.services.measuring.leases import LIMITS_PER_LAUNCH, ROOM_S
from edgefront.core.services.measuring.quarantine import MAX_FAILING
from edgefront.core.store.tables import Device, Launch

BEAT_S = 50.0


def held(world: World, device: str) -> int:
    with world.database.read() as session:
        query = select(func.count()).where(Launch.device_id == device, Launch.state == "leased")
        return session.scalar(query) or 0


def test_a_device_holds_a_bounded_number_of_launches(world: World) -> None:
    hoarder, other = world.device("hoarder"), world.device("other")
    world.launches(MAX_HELD + 40)
    first = world.claim(hoarder, MAX_BATCH)
    world.claim(hoarder, MAX_BATCH - 1)
    assert len(world.claim(hoarder, MAX_BATCH).items) == 1, "as many as it may still hold"
    for _ in range(3):
        assert not world.claim(hoarder, MAX_BATCH).items
    assert held(world, hoarder) == MAX_HELD
    assert len(world.claim(other, MAX_BATCH).items) == MAX_BATCH

    world.append(hoarder, *((item, done()) for item in first.items[:3]))
    world.release(hoarder, first, first.items[3].id)
    assert len(world.claim(hoarder, MAX_BATCH).items) == 4, "a report, or one that is given back, makes room"
    assert held(world, hoarder) == MAX_HELD


@ON_BOTH
def test_requests_at_once_hold_no_more(world: World) -> None:
    hoarder = world.device()
    world.launches(MAX_HELD + 60)
    at_once(*[lambda: [world.claim(hoarder, MAX_BATCH) for _ in range(6)]] * 8)
    while world.claim(hoarder, MAX_BATCH).items:  # a request during another one gets nothing
        pass
    assert held(world, hoarder) == MAX_HELD


def kept(world: World, device: str, *held: GrantedLease, stop_s: float = 1e6) -> float:
    """Seconds for which heartbeats keep the last of the leases, at most about `stop_s`."""
    begun, alive = world.now, list(held)
    while alive and (world.now - begun).total_seconds() < stop_s:
        world.tick(BEAT_S)
        for lease in list(alive):
            try:
                world.heartbeat(device, lease)
            except Gone:
                alive.remove(lease)
    return (world.now - begun).total_seconds()


@pytest.mark.parametrize("limit_s", [5.0, 3600.0])
def test_heartbeats_without_results_do_not_keep_a_launch_for_ever(world: World, limit_s: float) -> None:
    """Until one launch would have had its result."""
    hoarder, other = world.device("hoarder"), world.device("other")
    made = world.launches(3, world.target(protocol=MeasurementProtocol(time_limit_s=limit_s)))
    first = world.claim(hoarder, 1)
    second = world.claim(hoarder, 2)
    world.start(hoarder, second.items[0])
    longest = LIMITS_PER_LAUNCH * limit_s + ROOM_S
    assert longest <= kept(world, hoarder, first, second) <= longest + 2 * BEAT_S
    world.sweep()
    assert [world.launch(id_).state for id_ in made] == ["wanted"] * 3
    assert [world.launch(id_).attempts for id_ in made] == [0, 1, 0]
    assert len(world.row(Device, hoarder).failing) == 2, "one of each lease"
    assert {item.id for item in world.claim(other).items} == set(made)
    assert world.outcomes(hoarder, (second.items[1], done())) == ["accepted"], "a late report of its holder counts"
    assert len(world.row(Device, hoarder).failing) == 1, "what is measured makes up for a failure"


def test_an_agent_that_takes_long_keeps_its_lease(world: World) -> None:
    """It takes minutes for each launch, and asks for the next batch when it starts the last launch."""
    device = world.device()
    protocol = MeasurementProtocol(time_limit_s=60.0)
    world.launches(14, world.target(planned=14, protocol=protocol))
    lease, following = world.claim(device, 4), GrantedLease(frozenset())
    for _ in range(3):
        for item in lease.items:
            if item is lease.items[-1]:
                following = world.claim(device, 4)
            for _ in range(8):
                world.tick(BEAT_S)
                world.heartbeat(device, lease)
                if item is lease.items[-1]:
                    world.heartbeat(device, following)
            world.sweep()
            assert world.outcomes(device, (item, done())) == ["accepted"]
        lease = following
    assert world.row(Device, device).quarantine is None


def test_what_is_lost_again_and_again_is_quarantined_and_others_get_the_work(world: World) -> None:
    """An agent that is started again and again, and dies before it starts a launch."""
    broken, other = world.device("broken"), world.device("other")
    made = world.launches(8)
    for _ in range(MAX_FAILING):
        assert len(world.claim(broken).items) == 8
        world.tick(world.ttl_s + 1)
        world.sweep()
    assert "leased without a result" in world.row(Device, broken).quarantine
    assert (world.claim(broken).items, world.claim(broken).state) == ((), "draining")
    assert {item.id for item in world.claim(other).items} == set(made)
    assert {world.launch(id_).attempts for id_ in made} == {0}


def test_leases_of_launches_that_were_withdrawn_or_reported_are_not_lost(world: World) -> None:
    device = world.device()
    for _ in range(MAX_FAILING):
        target = world.target(planned=2)
        world.launches(2, target)
        assert world.claim(device).items
        with world.write() as session:
            session.query(Launch).filter(Launch.target_id == target).update({"state": "cancelled"})
        world.tick(world.ttl_s + 1)
        world.sweep()
    assert world.row(Device, device).failing is None
