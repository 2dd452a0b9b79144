"""Claims, starts, heartbeats, releases: who holds a launch, and for how long."""

from __future__ import annotations

import pytest
from databases import ON_BOTH
from leasing import CLASS_KEY, Leasing, crashed, done

from edgefront.core.common.errors import Conflict, Gone, NotFound
from edgefront.core.common.states import DeviceState
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import launches, leases
from edgefront.core.services.measuring.queries.leases import wanted_keys
from edgefront.core.store.tables import Device


def test_launches_for_the_device_and_of_its_class_come_by_their_turns(leasing: Leasing) -> None:
    device = leasing.device()
    shared = leasing.launches(2)
    own = leasing.launches(2, leasing.target(device_key=f"device:{device}"))
    assert [item.id for item in leasing.claim(device, 3).items] == [*shared, own[0]]


def test_a_device_takes_only_what_it_can_run(leasing: Leasing) -> None:
    device = leasing.device()
    unfit = [
        MeasurementProtocol(runtime="pytorch"),
        MeasurementProtocol(provider="cuda", memory="anonymous"),
        MeasurementProtocol(memory="resident"),
        MeasurementProtocol(threads=5),
        MeasurementProtocol(dtype="bfloat16"),
        MeasurementProtocol(weights="int8"),
    ]
    for protocol in unfit:
        leasing.launches(9, leasing.target(protocol=protocol))
    fit = leasing.launches(2, leasing.target(protocol=MeasurementProtocol(threads=4)))
    assert [item.id for item in leasing.claim(device, 8).items] == fit
    torch = {"runtime": "pytorch", "version": "2", "providers": ["cpu"], "memory_methods": ["anonymous"]}
    other = leasing.device("torch-box", runtimes=[torch])
    assert len(leasing.claim(other, 16).items) == 9


def test_a_device_takes_the_number_formats_that_it_reported(leasing: Leasing) -> None:
    """By provider; a device that told nothing (its facts are older) computes in float32."""
    runtime = {"runtime": "onnxruntime", "version": "1", "providers": ["cpu"], "memory_methods": ["anonymous"]}
    silent = leasing.device("silent", runtimes=[runtime])
    telling = leasing.device("telling", runtimes=[{**runtime, "numbers": {"cpu": ["float32", "int8"]}}])
    elsewhere = leasing.device("elsewhere", runtimes=[{**runtime, "numbers": {"cuda": ["float32", "int8"]}}])
    int8 = leasing.launches(2, leasing.target(protocol=MeasurementProtocol(weights="int8")))
    leasing.launches(2, leasing.target(protocol=MeasurementProtocol(dtype="float16")))
    assert not leasing.claim(silent).items
    assert not leasing.claim(elsewhere).items
    assert [item.id for item in leasing.claim(telling, 8).items] == int8
    full = leasing.launches(2, leasing.target(protocol=MeasurementProtocol(mode="decode")))
    assert [item.id for item in leasing.claim(silent, 8).items] == full


def test_a_draining_device_gets_no_work_and_a_revoked_one_is_refused(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(2)
    (item,) = leasing.claim(device, 1).items
    with leasing.write() as session:
        session.get_one(Device, device).state = "draining"
    assert leasing.claim(device)[1:] == launches.GrantedLease(frozenset(), state=DeviceState.DRAINING)[1:]
    with leasing.write() as session:
        session.get_one(Device, device).state = "revoked"
    with pytest.raises(Gone):
        leasing.claim(device)
    with pytest.raises(Gone):
        leasing.report(device, (item, done()))
    with pytest.raises(NotFound):
        leasing.claim("dev_none")


def test_start_needs_the_lease_and_its_fence(leasing: Leasing) -> None:
    device, other = leasing.device(), leasing.device("other")
    leasing.launches(1)
    item = leasing.claim(device).items[0]
    leasing.start(device, item)
    began = leasing.launch(item.id).started_at
    assert began == leasing.now
    leasing.tick(1)
    leasing.start(device, item)  # the answer to the first was lost
    assert leasing.launch(item.id).started_at == began
    with pytest.raises(Conflict):
        leasing.start(other, item)
    with pytest.raises(Conflict):
        leasing.start(device, item._replace(fence=2))
    with pytest.raises(NotFound):
        leasing.start(device, item._replace(id="lau_none"))
    leasing.tick(leasing.ttl_s)
    with pytest.raises(Conflict, match="has expired"):
        leasing.start(device, item)


def test_heartbeats_return_withdrawn_launches(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    leasing.launches(3, target)
    lease = leasing.claim(device)
    leasing.start(device, lease.items[0])
    with leasing.write() as session:
        withdrawn = {launch.id for launch in demand.withdraw(session, [target], leasing.now)}
    assert withdrawn == {item.id for item in lease.items[1:]}
    assert set(leasing.heartbeat(device, lease)) == withdrawn
    with pytest.raises(Conflict, match="no running job"):
        leasing.start(device, lease.items[1])


@ON_BOTH
def test_returned_launches_are_wanted_again_without_an_attempt(leasing: Leasing) -> None:
    device, target = leasing.device(), leasing.target()
    made, lease = leasing.launches(3, target), leasing.claim(device)
    leasing.release(device, lease, made[1])
    assert leasing.launch(made[1]).state == "wanted"
    assert leasing.launch(made[1]).attempts == 0
    again = leasing.claim(device)
    assert [(item.id, item.fence) for item in again.items] == [(made[1], 2)]
    leasing.release(device, lease)
    leasing.release(device, lease)
    assert {leasing.launch(made[0]).state, leasing.launch(made[2]).state} == {"wanted"}
    assert leasing.launch(made[1]).state == "leased"
    with pytest.raises(Gone):
        leasing.heartbeat(device, lease)
    with pytest.raises(NotFound):
        leasing.release(leasing.device("other"), lease)
    leasing.set_job(target, "cancelled")
    leasing.release(device, again)
    assert leasing.launch(made[1]).state == "cancelled", "nobody needs it"


def test_wanted_keys_are_those_with_wanted_launches(leasing: Leasing) -> None:
    def wanted() -> set[str]:
        with leasing.database.read() as session:
            return wanted_keys(session)

    device = leasing.device()
    assert wanted() == set()
    leasing.launches(3)
    leasing.launches(2, leasing.target(device_key=f"device:{device}"))
    leasing.launches(2, leasing.target(device_key="class:zebra"))
    assert wanted() == {CLASS_KEY, f"device:{device}", "class:zebra"}
    leasing.claim(device, 32)
    assert wanted() == {"class:zebra"}


def test_claims_and_reports_show_that_the_device_is_there(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(1)
    assert leasing.row(Device, device).last_seen_at is None
    lease = leasing.claim(device)
    assert leasing.row(Device, device).last_seen_at == leasing.now
    leasing.tick(30)
    leasing.heartbeat(device, lease)
    assert leasing.row(Device, device).last_seen_at == leasing.now
    leasing.tick(1)
    leasing.report(device, (lease.items[0], done()), busy_s=2.0)
    seen = leasing.row(Device, device)
    assert (seen.last_seen_at, seen.busy_s, seen.measuring_s) == (leasing.now, 2.0, 0.5)


def test_a_device_whose_leases_were_ended_may_still_report_what_it_has_measured(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(1)
    (item,) = leasing.claim(device).items
    with leasing.write() as session:
        leases.end_leases(session, device, leasing.now)
    assert leasing.outcomes(device, (item, crashed())) == ["conflict"]
    assert leasing.launch(item.id).attempts == 0
    assert leasing.outcomes(device, (item, done())) == ["accepted"]
