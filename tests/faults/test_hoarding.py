"""A device that takes work and reports none: others get the rest at once, and what it holds after a time."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime
from typing import Literal

import pytest
from lease_world import World, done
from sqlalchemy import func, select

from edgefront.core.errors import Gone
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.measuring.leases import LIMITS_PER_LAUNCH, MOST_HELD, MOST_LEASE_S, ROOM_S, WAIT_S
from edgefront.core.store.tables import Device, Launch, Lease, Target
from edgefront.core.wire.agent import MAX_BATCH, LeaseResponse

BEAT_S = 50.0


def held(world: World, device: str) -> int:
    with world.database.read() as session:
        query = select(func.count()).where(Launch.device_id == device, Launch.state == "leased")
        return session.scalar(query) or 0


def test_a_device_holds_a_bounded_number_of_launches(world: World) -> None:
    hoarder, other = world.device("hoarder"), world.device("other")
    world.launches(MOST_HELD + 40)
    first = world.claim(hoarder, MAX_BATCH)
    world.claim(hoarder, MAX_BATCH - 1)
    assert len(world.claim(hoarder, MAX_BATCH).items) == 1, "as many as it may still hold"
    for _ in range(3):
        assert world.claim(hoarder, MAX_BATCH) == LeaseResponse()
    assert held(world, hoarder) == MOST_HELD
    assert len(world.claim(other, MAX_BATCH).items) == MAX_BATCH

    world.append(hoarder, *((item, done()) for item in first.items[:3]))
    world.release(hoarder, first, first.items[3].launch_id)
    assert len(world.claim(hoarder, MAX_BATCH).items) == 4, "a report, or one that is given back, makes room"
    assert held(world, hoarder) == MOST_HELD


def test_requests_at_once_hold_no_more(world: World) -> None:
    hoarder = world.device()
    world.launches(MOST_HELD + 60)
    begin = threading.Barrier(8)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            begin.wait()
            for _ in range(6):
                world.claim(hoarder, MAX_BATCH)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    while world.claim(hoarder, MAX_BATCH).items:  # a request during another one gets nothing
        pass
    assert held(world, hoarder) == MOST_HELD


def test_a_device_that_holds_enough_makes_no_further_launches(world: World) -> None:
    """Refinements are made for who asks: none for a device that may not take them."""
    hoarder, other, target = world.device("hoarder"), world.device("other"), world.target(planned=MOST_HELD + 4)
    world.launches(MOST_HELD + 4, target)
    (first, *_) = world.claim(hoarder, 4).items
    world.report(hoarder, (first, done()))
    while world.claim(hoarder, MAX_BATCH).items:
        pass
    assert held(world, hoarder) == MOST_HELD
    with world.write() as session:
        session.query(Launch).filter(Launch.state == "wanted").delete()
    assert not world.claim(hoarder).items
    assert world.row(Target, target).refinements == 0
    assert world.claim(other).items
    assert world.row(Target, target).refinements > 0


def kept(world: World, device: str, lease: LeaseResponse) -> float:
    """Seconds for which heartbeats keep the lease."""
    begun = world.now
    while True:
        world.tick(BEAT_S)
        try:
            world.heartbeat(device, lease)
        except Gone:
            return (world.now - begun).total_seconds()


@pytest.mark.parametrize("limit_s", [5.0, MOST_LEASE_S / 2 / LIMITS_PER_LAUNCH])
def test_heartbeats_do_not_keep_a_launch_for_ever(world: World, limit_s: float) -> None:
    hoarder, other = world.device("hoarder"), world.device("other")
    made = world.launches(3, world.target(protocol=MeasurementProtocol(time_limit_s=limit_s)))
    first = world.claim(hoarder, 1)
    second = world.claim(hoarder, 2)
    world.start(hoarder, second.items[0])
    longest = world.ttl_s + ROOM_S + 3 * LIMITS_PER_LAUNCH * limit_s  # it also waits for the one before
    assert longest <= kept(world, hoarder, second) < longest + BEAT_S
    with pytest.raises(Gone):
        world.heartbeat(hoarder, first)
    world.sweep()
    assert [world.launch(id_).state for id_ in made] == ["wanted"] * 3
    assert [world.launch(id_).attempts for id_ in made] == [0, 1, 0]
    assert {item.launch_id for item in world.claim(other).items} == set(made)
    assert world.claim(hoarder) == LeaseResponse(state="draining")
    assert world.outcomes(hoarder, (second.items[1], done())) == ["accepted"], "a late report of its holder counts"


def test_a_hoarder_gets_no_more_and_others_get_what_it_held(world: World) -> None:
    """It holds all that it may, sends heartbeats for ever, and asks for more each time. It waits no longer than all that
    it holds at once may take, whatever the limits of what it took first.
    """
    hoarder, other = world.device("hoarder"), world.device("other")
    protocol = MeasurementProtocol(time_limit_s=3600.0)
    own = world.launches(2, world.target(device_key=f"device:{hoarder}", protocol=protocol))
    made, begun = world.launches(MOST_HELD - 2), world.now
    held_leases: list[LeaseResponse] = []
    while (lease := world.claim(hoarder, MAX_BATCH)).items:
        held_leases.append(lease)
    assert held(world, hoarder) == MOST_HELD
    assert not world.claim(other).items

    taken: list[str] = []
    while len(taken) < len(made):
        world.tick(BEAT_S)
        for lease in held_leases:
            with suppress(Gone):
                world.heartbeat(hoarder, lease)
        world.sweep()
        while (lease := world.claim(hoarder, MAX_BATCH)).items:
            held_leases.append(lease)
        while items := world.claim(other, MAX_BATCH).items:
            world.report(other, *((item, done()) for item in items))
            taken += [item.launch_id for item in items]
        # The longest limit of what it holds, one lease as long as any may be, the room, the first expiry and a sweep.
        assert (world.now - begun).total_seconds() < 3600 * LIMITS_PER_LAUNCH + MOST_LEASE_S + ROOM_S + 60 + 2 * BEAT_S
    assert set(made) <= set(taken)
    assert "heartbeats" in world.row(Device, hoarder).quarantine
    assert held(world, hoarder) == 0
    assert {world.launch(id_).attempts for id_ in (*own, *made)} == {0}
    assert world.row(Device, other).quarantine is None


@pytest.mark.parametrize("when_busy", ["mark", "wait"])
def test_an_agent_that_takes_long_keeps_its_lease(world: World, when_busy: Literal["mark", "wait"]) -> None:
    """It waits for another one on its host before each launch, for better conditions where the protocol says so, and asks
    for the next batch when it starts the last launch.
    """
    device = world.device()
    protocol = MeasurementProtocol(time_limit_s=60.0, when_busy=when_busy)
    world.launches(14, world.target(planned=14, protocol=protocol))
    lease, following = world.claim(device, 4), LeaseResponse()
    for _ in range(3):
        for item in lease.items:
            if item is lease.items[-1]:
                following = world.claim(device, 4)
            for _ in range(12):
                world.tick((LIMITS_PER_LAUNCH * 60.0 + (WAIT_S if when_busy == "wait" else 0.0)) / 12)
                world.heartbeat(device, lease)
                if item is lease.items[-1]:
                    world.heartbeat(device, following)
            world.sweep()
            assert world.outcomes(device, (item, done())) == ["accepted"]
        lease = following
    assert world.row(Device, device).quarantine is None


@pytest.mark.parametrize("beats", [0, 1, 20])
def test_an_agent_that_is_lost_is_not_quarantined(world: World, beats: int) -> None:
    """Without a network it sends no heartbeats, however long a lease lasts without one."""
    world.ttl_s = 3600.0 if not beats else 60.0
    device = world.device()
    (made,) = world.launches(1, world.target(protocol=MeasurementProtocol(time_limit_s=1.0)))
    lease = world.claim(device)
    for _ in range(beats):
        world.tick(BEAT_S)
        world.heartbeat(device, lease)
    world.tick(2 * world.ttl_s + ROOM_S)
    world.sweep()
    assert world.launch(made).state == "wanted"
    assert world.row(Device, device).quarantine is None
    assert world.claim(device).items


def test_launches_that_take_long_are_leased_in_small_batches(world: World) -> None:
    """Its own queue and its class's get half of them each."""
    device = world.device()
    protocol = MeasurementProtocol(time_limit_s=600.0)
    own = world.launches(8, world.target(device_key=f"device:{device}", protocol=protocol))
    shared = world.launches(8, world.target(protocol=protocol))
    taken = {item.launch_id for item in world.claim(device, MAX_BATCH).items}
    assert len(taken) == MOST_LEASE_S / LIMITS_PER_LAUNCH / 600
    assert len(taken.intersection(own)) == len(taken.intersection(shared)) == len(taken) / 2
    alone = world.device("alone", device_class="slow")
    protocol = MeasurementProtocol(time_limit_s=3600.0, when_busy="wait")
    world.launches(2, world.target(device_key=f"device:{alone}", protocol=protocol))
    assert len(world.claim(alone, MAX_BATCH).items) == 1, "one is taken however long it may take"


def test_no_heartbeat_extends_a_lease_beyond_its_latest_expiry(world: World) -> None:
    device = world.device()
    world.launches(1, world.target(protocol=MeasurementProtocol(time_limit_s=1.0)))
    world.ttl_s = 3600.0
    lease = world.claim(device)
    (row,) = world.rows(Lease)
    assert lease.expires_at == row.expires_at < row.latest_expiry_at
    assert (row.latest_expiry_at - world.now).total_seconds() == world.ttl_s + LIMITS_PER_LAUNCH + ROOM_S
    world.tick(ROOM_S + 100.0)
    world.heartbeat(device, lease)
    assert world.rows(Lease)[0].expires_at == row.latest_expiry_at


def test_giving_back_and_taking_again_does_not_move_the_latest_expiry(world: World) -> None:
    device = world.device()
    world.launches(2)
    ends: list[datetime] = []
    kept_one = world.claim(device, 1)
    for _ in range(5):
        lease = world.claim(device, 1)
        assert lease.lease_id is not None
        ends.append(world.row(Lease, lease.lease_id).latest_expiry_at)
        world.release(device, lease)
    assert len(set(ends)) == 1
    assert kept_one.items


def test_a_lease_of_the_release_before_has_no_latest_expiry(world: World) -> None:
    device = world.device()
    world.launches(1)
    lease = world.claim(device)
    with world.write() as session:
        session.get_one(Lease, lease.lease_id).latest_expiry_at = None
    for _ in range(50):
        world.tick(world.ttl_s - 1)
        assert world.heartbeat(device, lease) == ()
    world.tick(world.ttl_s)
    world.sweep()
    assert world.row(Device, device).quarantine is None
