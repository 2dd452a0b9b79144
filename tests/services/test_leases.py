"""Claims, starts, heartbeats, releases: who holds a launch, and for how long."""

from __future__ import annotations

import pytest
from databases import ON_BOTH
from lease_world import CLASS_KEY, World, done

from edgefront.core.common.errors import Conflict, Gone, NotFound
from edgefront.core.common.states import DeviceState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import launches
from edgefront.core.services.measuring.queries.leases import wanted_keys
from edgefront.core.store.tables import Device


def test_launches_for_the_device_and_of_its_class_come_by_their_turns(world: World) -> None:
    device = world.device()
    shared = world.launches(2)
    own = world.launches(2, world.target(device_key=f"device:{device}"))
    assert [item.id for item in world.claim(device, 3).items] == [*shared, own[0]]


def test_a_device_takes_only_what_it_can_run(world: World) -> None:
    device = world.device()
    unfit = [
        MeasurementProtocol(runtime="pytorch"),
        MeasurementProtocol(provider="cuda", memory="anonymous"),
        MeasurementProtocol(memory="resident"),
        MeasurementProtocol(threads=5),
        MeasurementProtocol(dtype="bfloat16"),
        MeasurementProtocol(weights="int8"),
    ]
    for protocol in unfit:
        world.launches(9, world.target(protocol=protocol))
    fit = world.launches(2, world.target(protocol=MeasurementProtocol(threads=4)))
    assert [item.id for item in world.claim(device, 8).items] == fit
    torch = {"runtime": "pytorch", "version": "2", "providers": ["cpu"], "memory_methods": ["anonymous"]}
    other = world.device("torch-box", runtimes=[torch])
    assert len(world.claim(other, 16).items) == 9


def test_a_device_takes_the_number_formats_that_it_reported(world: World) -> None:
    """By provider; a device that told nothing (its facts are older) computes in float32."""
    runtime = {"runtime": "onnxruntime", "version": "1", "providers": ["cpu"], "memory_methods": ["anonymous"]}
    silent = world.device("silent", runtimes=[runtime])
    telling = world.device("telling", runtimes=[{**runtime, "numbers": {"cpu": ["float32", "int8"]}}])
    elsewhere = world.device("elsewhere", runtimes=[{**runtime, "numbers": {"cuda": ["float32", "int8"]}}])
    int8 = world.launches(2, world.target(protocol=MeasurementProtocol(weights="int8")))
    world.launches(2, world.target(protocol=MeasurementProtocol(dtype="float16")))
    assert not world.claim(silent).items
    assert not world.claim(elsewhere).items
    assert [item.id for item in world.claim(telling, 8).items] == int8
    full = world.launches(2, world.target(protocol=MeasurementProtocol(mode="decode")))
    assert [item.id for item in world.claim(silent, 8).items] == full


def test_a_draining_device_gets_no_work_and_a_revoked_one_is_refused(world: World) -> None:
    device = world.device()
    world.launches(2)
    (item,) = world.claim(device, 1).items
    with world.write() as session:
        session.get_one(Device, device).state = "draining"
    assert world.claim(device)[1:] == launches.GrantedLease(frozenset(), state=DeviceState.DRAINING)[1:]
    with world.write() as session:
        session.get_one(Device, device).state = "revoked"
    with pytest.raises(Gone):
        world.claim(device)
    with pytest.raises(Gone):
        world.report(device, (item, done()))
    with pytest.raises(NotFound):
        world.claim("dev_none")


def test_start_needs_the_lease_and_its_fence(world: World) -> None:
    device, other = world.device(), world.device("other")
    world.launches(1)
    item = world.claim(device).items[0]
    world.start(device, item)
    began = world.launch(item.id).started_at
    assert began == world.now
    world.tick(1)
    world.start(device, item)  # the answer to the first was lost
    assert world.launch(item.id).started_at == began
    with pytest.raises(Conflict):
        world.start(other, item)
    with pytest.raises(Conflict):
        world.start(device, item._replace(fence=2))
    with pytest.raises(NotFound):
        world.start(device, item._replace(id="lau_none"))
    world.tick(world.ttl_s)
    with pytest.raises(Conflict, match="has expired"):
        world.start(device, item)


def test_heartbeats_return_withdrawn_launches(world: World) -> None:
    device, target = world.device(), world.target()
    world.launches(3, target)
    lease = world.claim(device)
    world.start(device, lease.items[0])
    with world.write() as session:
        withdrawn = {launch.id for launch in demand.withdraw(session, [target], world.now)}
    assert withdrawn == {item.id for item in lease.items[1:]}
    assert set(world.heartbeat(device, lease)) == withdrawn
    with pytest.raises(Conflict, match="no running job"):
        world.start(device, lease.items[1])


@ON_BOTH
def test_returned_launches_are_wanted_again_without_an_attempt(world: World) -> None:
    device, target = world.device(), world.target()
    made, lease = world.launches(3, target), world.claim(device)
    world.release(device, lease, made[1])
    assert world.launch(made[1]).state == "wanted"
    assert world.launch(made[1]).attempts == 0
    again = world.claim(device)
    assert [(item.id, item.fence) for item in again.items] == [(made[1], 2)]
    world.release(device, lease)
    world.release(device, lease)
    assert {world.launch(made[0]).state, world.launch(made[2]).state} == {"wanted"}
    assert world.launch(made[1]).state == "leased"
    with pytest.raises(Gone):
        world.heartbeat(device, lease)
    with pytest.raises(NotFound):
        world.release(world.device("other"), lease)
    world.set_job(target, "cancelled")
    world.release(device, again)
    assert world.launch(made[1]).state == "cancelled", "nobody needs it"


def test_wanted_keys_are_those_with_wanted_launches(world: World) -> None:
    def wanted() -> set[str]:
        with world.database.read() as session:
            return wanted_keys(session)

    device = world.device()
    assert wanted() == set()
    world.launches(3)
    world.launches(2, world.target(device_key=f"device:{device}"))
    world.launches(2, world.target(device_key="class:zebra"))
    assert wanted() == {CLASS_KEY, f"device:{device}", "class:zebra"}
    world.claim(device, 32)
    assert wanted() == {"class:zebra"}


def test_claims_and_reports_show_that_the_device_is_there(world: World) -> None:
    device = world.device()
    world.launches(1)
    assert world.row(Device, device).last_seen_at is None
    lease = world.claim(device)
    assert world.row(Device, device).last_seen_at == world.now
    world.tick(30)
    world.heartbeat(device, lease)
    assert world.row(Device, device).last_seen_at == world.now
    world.tick(1)
    world.report(device, (lease.items[0], done()), busy_s=2.0)
    seen = world.row(Device, device)
    assert (seen.last_seen_at, seen.busy_s, seen.measuring_s) == (world.now, 2.0, 0.5)
