"""A device that takes work and reports none: others get the rest at once, and what it holds after a time."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest
from databases import ON_SQLITE
from lease_world import World, done
from sqlalchemy import func, select

from edgefront.core.errors import Gone
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.fleet.devices import own_device
from edgefront.core.services.measuring.leases import (
    LIMITS_PER_LAUNCH,
    MAX_HELD,
    MAX_LOST,
    ROOM_S,
    WAITS_FOR,
    GrantedLease,
    blocked_reason,
)
from edgefront.core.store.tables import Device, Launch, Lease, Target
from edgefront.core.wire.agent import MAX_BATCH

BEAT_S = 50.0


def held(world: World, device: str) -> int:
    with world.database.read() as session:
        query = select(func.count()).where(Launch.device_id == device, Launch.state == "leased")
        return session.scalar(query) or 0


@ON_SQLITE
def test_a_device_holds_a_bounded_number_of_launches(world: World) -> None:
    hoarder, other = world.device("hoarder"), world.device("other")
    world.launches(MAX_HELD + 40)
    first = world.claim(hoarder, MAX_BATCH)
    world.claim(hoarder, MAX_BATCH - 1)
    assert len(world.claim(hoarder, MAX_BATCH).items) == 1, "as many as it may still hold"
    for _ in range(3):
        assert world.claim(hoarder, MAX_BATCH) == GrantedLease()
    assert held(world, hoarder) == MAX_HELD
    assert len(world.claim(other, MAX_BATCH).items) == MAX_BATCH

    world.append(hoarder, *((item, done()) for item in first.items[:3]))
    world.release(hoarder, first, first.items[3].launch_id)
    assert len(world.claim(hoarder, MAX_BATCH).items) == 4, "a report, or one that is given back, makes room"
    assert held(world, hoarder) == MAX_HELD


def test_requests_at_once_hold_no_more(world: World) -> None:
    hoarder = world.device()
    world.launches(MAX_HELD + 60)
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
    assert held(world, hoarder) == MAX_HELD


def test_a_device_that_holds_enough_makes_no_further_launches(world: World) -> None:
    """Refinements are made for who asks: none for a device that may not take them."""
    hoarder, other, target = world.device("hoarder"), world.device("other"), world.target(planned=MAX_HELD + 4)
    world.launches(MAX_HELD + 4, target)
    (first, *_) = world.claim(hoarder, 4).items
    world.report(hoarder, (first, done()))
    while world.claim(hoarder, MAX_BATCH).items:
        pass
    assert held(world, hoarder) == MAX_HELD
    with world.write() as session:
        session.query(Launch).filter(Launch.state == "wanted").delete()
    assert not world.claim(hoarder).items
    assert world.row(Target, target).refinements == 0
    assert world.claim(other).items
    assert world.row(Target, target).refinements > 0


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
@ON_SQLITE
def test_heartbeats_without_results_do_not_keep_a_launch_for_ever(world: World, limit_s: float) -> None:
    """Until one launch would have had its result: then the device has failed at all that it held."""
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
    assert len(world.row(Device, hoarder).failing) == 3
    assert {item.launch_id for item in world.claim(other).items} == set(made)
    assert world.outcomes(hoarder, (second.items[1], done())) == ["accepted"], "a late report of its holder counts"
    assert len(world.row(Device, hoarder).failing) == 2, "what is measured makes up for a failure"


def test_a_device_that_holds_many_and_has_no_result_is_quarantined(world: World) -> None:
    hoarder, other = world.device("hoarder"), world.device("other")
    made = world.launches(MAX_HELD)
    held_leases: list[GrantedLease] = []
    while (lease := world.claim(hoarder, MAX_BATCH)).items:
        held_leases.append(lease)
    assert not world.claim(other).items
    kept(world, hoarder, *held_leases)
    world.sweep()
    assert "held without a result" in world.row(Device, hoarder).quarantine
    assert world.claim(hoarder) == GrantedLease(state="draining")
    taken: list[str] = []
    while items := world.claim(other, MAX_BATCH).items:
        world.report(other, *((item, done()) for item in items))
        taken += [item.launch_id for item in items]
    assert set(taken) >= set(made)
    assert {world.launch(id_).attempts for id_ in made} == {0}
    assert world.row(Device, other).quarantine is None


@ON_SQLITE
def test_results_keep_a_lease_as_long_as_its_launches_may_take(world: World) -> None:
    """One result shortly before each time that the lease would end, and never more."""
    hoarder, limit_s = world.device(), 60.0
    world.launches(20, world.target(planned=20, protocol=MeasurementProtocol(time_limit_s=limit_s)))
    lease, begun = world.claim(hoarder, 20), world.now
    for item in lease.items:
        if kept(world, hoarder, lease, stop_s=ROOM_S) < ROOM_S:
            break
        world.append(hoarder, (item, done()))
    longest = world.ttl_s + ROOM_S + 20 * limit_s
    assert longest <= (world.now - begun).total_seconds() <= longest + 2 * BEAT_S


@ON_SQLITE
def test_an_agent_that_takes_long_keeps_its_lease(world: World) -> None:
    """It waits minutes before each launch, and asks for the next batch when it starts the last launch."""
    device = world.device()
    protocol = MeasurementProtocol(time_limit_s=60.0, when_busy="wait")
    world.launches(14, world.target(planned=14, protocol=protocol))
    lease, following = world.claim(device, 4), GrantedLease()
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


@pytest.mark.parametrize("beats", [0, 1, 8])
@ON_SQLITE
def test_an_agent_that_is_lost_has_failed_at_nothing_that_it_has_not_started(world: World, beats: int) -> None:
    """Without a network it sends no heartbeats, however long a lease lasts without one."""
    world.ttl_s = 60.0 if beats else 3600.0
    device = world.device()
    made = world.launches(8)
    lease = world.claim(device)
    for _ in range(beats):
        world.tick(BEAT_S)
        world.heartbeat(device, lease)
    world.tick(2 * world.ttl_s + 2 * ROOM_S)
    world.sweep()
    assert {world.launch(id_).state for id_ in made} == {"wanted"}
    assert world.row(Device, device).failing is None
    assert world.claim(device).items


def lose(world: World, device: str, times: int, most: int = 8) -> list[int]:
    """The agent dies after each lease, before it starts anything; returns how many launches each had."""
    held_each = []
    for _ in range(times):
        held_each.append(len(world.claim(device, most).items))
        world.tick(world.ttl_s + 1)
        world.sweep()
    return held_each


def why_blocked(world: World, device: str) -> str | None:
    with world.database.read() as session:
        return blocked_reason(session, own_device(session, device), world.now, world.ttl_s)


@ON_SQLITE
def test_a_device_that_loses_its_leases_one_after_another_waits(world: World) -> None:
    """An agent that is started again and again, and dies: the others of its class get the work meanwhile."""
    broken, other = world.device("broken"), world.device("other")
    made = world.launches(8)
    assert lose(world, broken, MAX_LOST + 1) == [8] * MAX_LOST + [0]
    assert {item.launch_id for item in world.claim(other).items} == set(made)
    assert {world.launch(id_).attempts for id_ in made} == {0}
    assert world.row(Device, broken).quarantine is None
    world.launches(8)
    assert world.claim(broken).items == ()
    said = why_blocked(world, broken)
    assert said is not None
    assert said.startswith(f"its agent took launches {MAX_LOST} times and was not heard of again")
    assert why_blocked(world, other) is None
    world.tick(WAITS_FOR.total_seconds())
    assert lose(world, broken, 3) == [8, 0, 0], "one try each time"


@ON_SQLITE
def test_a_result_ends_the_waiting(world: World) -> None:
    device = world.device()
    world.launches(8)
    (item, *_) = world.claim(device).items
    world.tick(world.ttl_s + 1)
    world.sweep()
    lose(world, device, MAX_LOST - 1)
    assert world.claim(device).items == ()
    assert world.outcomes(device, (item, done())) == ["accepted"]
    assert world.claim(device).items


def test_leases_of_launches_that_were_withdrawn_or_reported_are_not_lost(world: World) -> None:
    device = world.device()
    for _ in range(MAX_LOST):
        target = world.target(planned=2)
        world.launches(2, target)
        assert world.claim(device).items
        with world.write() as session:
            session.query(Launch).filter(Launch.target_id == target).update({"state": "cancelled"})
        world.tick(world.ttl_s + 1)
        world.sweep()
    world.launches(3)
    assert world.claim(device).items


def test_no_heartbeat_extends_a_lease_beyond_its_end(world: World) -> None:
    device = world.device()
    world.launches(1, world.target(protocol=MeasurementProtocol(time_limit_s=1.0)))
    world.ttl_s = 3600.0
    lease = world.claim(device)
    (row,) = world.rows(Lease)
    assert lease.expires_at == row.expires_at < row.ends_at
    assert (row.ends_at - row.expires_at).total_seconds() == LIMITS_PER_LAUNCH + ROOM_S
    world.ttl_s *= 2
    world.tick(ROOM_S)
    world.heartbeat(device, lease)
    assert world.rows(Lease)[0].expires_at == row.ends_at


@ON_SQLITE
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


def test_a_lease_of_an_older_release_has_no_end_while_there_are_results(world: World) -> None:
    device = world.device()
    (other, *_) = world.launches(50)
    lease = world.claim(device, 1)
    with world.write() as session:
        session.get_one(Lease, lease.lease_id).ends_at = None
    for _ in range(40):
        world.tick(world.ttl_s - 1)
        assert world.heartbeat(device, lease) == ()
        world.report(device, *((item, done()) for item in world.claim(device, 1).items))
    assert world.launch(other).state == "leased"
