"""A device that takes work and reports none: others get the rest at once, and what it holds after a time."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest
from lease_world import World, done
from sqlalchemy import func, select

from edgefront.core.errors import Gone
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.measuring.leases import LIMITS_PER_LAUNCH, MOST_HELD, ROOM_PER_LAUNCH_S
from edgefront.core.store.tables import Launch, Lease, Target
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


@pytest.mark.parametrize("limit_s", [5.0, 3600.0])
def test_heartbeats_do_not_keep_a_launch_for_ever(world: World, limit_s: float) -> None:
    hoarder, other = world.device("hoarder"), world.device("other")
    made = world.launches(3, world.target(protocol=MeasurementProtocol(time_limit_s=limit_s)))
    first = world.claim(hoarder, 1)
    second = world.claim(hoarder, 2)
    world.start(hoarder, second.items[0])
    longest = 3 * (LIMITS_PER_LAUNCH * limit_s + ROOM_PER_LAUNCH_S)  # it also waits for the one before
    assert longest > 3 * limit_s
    assert longest <= kept(world, hoarder, second) < longest + BEAT_S
    with pytest.raises(Gone):
        world.heartbeat(hoarder, first)
    world.sweep()
    assert [world.launch(id_).state for id_ in made] == ["wanted"] * 3
    assert [world.launch(id_).attempts for id_ in made] == [0, 1, 0]
    assert {item.launch_id for item in world.claim(other).items} == set(made)
    assert world.outcomes(hoarder, (second.items[1], done())) == ["accepted"], "a late report of its holder counts"


def test_the_end_is_told_with_each_heartbeat(world: World) -> None:
    device = world.device()
    world.launches(1, world.target(protocol=MeasurementProtocol(time_limit_s=1.0)))
    world.ttl_s = 3600.0
    lease = world.claim(device)
    (row,) = world.rows(Lease)
    assert lease.expires_at == row.expires_at == row.ends_at
    assert (row.ends_at - world.now).total_seconds() == LIMITS_PER_LAUNCH + ROOM_PER_LAUNCH_S
    world.tick(ROOM_PER_LAUNCH_S)
    world.heartbeat(device, lease)
    assert world.rows(Lease)[0].expires_at == row.ends_at


def test_giving_back_and_taking_again_does_not_move_the_end(world: World) -> None:
    device = world.device()
    world.launches(2)
    ends: list[datetime] = []
    kept_one = world.claim(device, 1)
    for _ in range(5):
        lease = world.claim(device, 1)
        assert lease.lease_id is not None
        ends.append(world.row(Lease, lease.lease_id).ends_at)
        world.release(device, lease)
    assert len(set(ends)) == 1
    assert kept_one.items


def test_a_lease_of_the_release_before_has_no_end(world: World) -> None:
    device = world.device()
    world.launches(1)
    lease = world.claim(device)
    with world.write() as session:
        session.get_one(Lease, lease.lease_id).ends_at = None
    for _ in range(50):
        world.tick(world.ttl_s - 1)
        assert world.heartbeat(device, lease) == ()
