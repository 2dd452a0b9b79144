"""A device on which model after model fails is quarantined, whatever its owner says of the models."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_SQLITE
from dishonest import Device, Fleet, honest

from edgefront.core.services.measuring import quarantine
from edgefront.core.services.measuring.leases import WAITS_FOR
from edgefront.core.store.tables import Lease
from edgefront.core.wire.agent import LeaseItem

MAX_FAILING = quarantine.MAX_FAILING


def crashes(_: LeaseItem) -> dict[str, Any]:
    return {"outcome": "failed", "reason": "crashed", "message": "signal 11", "wall_s": 1.0}


def job_of_many(fleet: Fleet) -> str:
    """Its first generation is larger than what a device may fail at."""
    random = {"name": "random", "settings": {"population": 3 * MAX_FAILING, "iterations": 1}}
    return fleet.submit(algorithm=random)


def measured_baselines(fleet: Fleet, device: Device) -> str:
    job = job_of_many(fleet)
    for _ in range(20):
        fleet.service.work()
        if fleet.candidates(job, role="search"):
            return job
        device.measure()
    raise AssertionError("no generation was proposed")


def test_a_device_that_fails_again_and_again_gets_no_more(fleet: Fleet) -> None:
    broken, sound = fleet.device("broken"), fleet.device("sound")
    job = measured_baselines(fleet, sound)
    assert broken.measure(crashes, MAX_FAILING - 1) == MAX_FAILING - 1
    fleet.service.work()
    assert fleet.view(broken)["quarantine"] is None
    for _ in range(3):  # the same models again, and one more
        broken.measure(crashes, MAX_FAILING)
        fleet.service.work()
    assert fleet.view(broken)["quarantine"].startswith(f"{MAX_FAILING} models failed")
    assert not broken.lease().items
    fleet.run(sound)
    states = {candidate["state"] for candidate in fleet.candidates(job, role="search")}
    assert "waiting" not in states
    assert fleet.view(sound)["quarantine"] is None

    fleet.admin.post(f"/v1/devices/{broken.id}/trust").raise_for_status()
    job_of_many(fleet)
    fleet.service.work()
    broken.measure(crashes, 1)
    fleet.service.work()
    assert fleet.view(broken)["quarantine"] is None  # it counts from the start


@pytest.mark.parametrize(("done", "of"), [(1, 2), (1, 4)])
@ON_SQLITE
def test_what_is_measured_makes_up_for_what_fails(fleet: Fleet, done: int, of: int) -> None:
    """One on which more models fail than are measured is found out in the end."""
    device = fleet.device("device")
    measured_baselines(fleet, device)
    failed = set()
    for index, item in enumerate(device.lease(3 * MAX_FAILING).items):
        device.report(item, honest(item) if index % of < done else crashes(item))
        failed |= set() if index % of < done else {item.digest}
        fleet.service.work()
    assert len(failed) > MAX_FAILING
    assert (fleet.view(device)["quarantine"] is not None) == (2 * done < of)


@ON_SQLITE
def test_models_that_fail_on_every_device_are_not_held_against_all(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    measured_baselines(fleet, first)
    first.measure(crashes, MAX_FAILING - 1)
    fleet.service.work()
    assert second.measure(crashes, 2 * (MAX_FAILING - 1)) == 2 * (MAX_FAILING - 1)
    fleet.service.work()
    assert fleet.view(second)["quarantine"] is None
    second.measure(crashes, 2 * (MAX_FAILING - 1) + 1)  # one more that no other has failed at
    fleet.service.work()
    assert fleet.view(second)["quarantine"] is not None


@pytest.mark.parametrize("started", [True, False])
def test_falling_silent_with_launches_that_were_started_is_failing(fleet: Fleet, started: bool) -> None:
    silent, sound = fleet.device("silent"), fleet.device("sound")
    measured_baselines(fleet, sound)
    for _ in range(MAX_FAILING):
        lease = silent.lease(1)
        if started:
            silent.start(lease.items[0])
        with fleet.service.database.write() as session:
            row = session.get_one(Lease, lease.lease_id)
            row.expires_at = row.created_at
        fleet.sweep()
        with fleet.service.database.write() as session:  # after the third it has to wait
            session.get_one(Lease, lease.lease_id).expires_at -= WAITS_FOR
            session.get_one(Lease, lease.lease_id).ended_at -= WAITS_FOR
        sound.measure(honest, 1)  # so that another model is next
    assert (fleet.view(silent)["quarantine"] is not None) == started


def infeasible(_: LeaseItem) -> dict[str, Any]:
    return {"outcome": "infeasible", "reason": "out_of_memory", "message": "no", "wall_s": 1.0}


def state_of(fleet: Fleet, job: str, digest: str) -> str:
    return next(
        str(candidate["state"]) for candidate in fleet.candidates(job, role="search") if candidate["digest"] == digest
    )


def leased_small(fleet: Fleet, job: str, device: Device) -> list[LeaseItem]:
    """Launches of models that certainly need less memory than one that was measured there."""
    candidates = fleet.candidates(job)
    most = max(candidate["memory_bytes"] or 0 for candidate in candidates)
    small = {candidate["digest"] for candidate in candidates if 1.2 * 1.35 * candidate["weight_bytes"] < most}
    return [item for item in device.lease(2 * MAX_FAILING).items if item.digest in small]


@ON_SQLITE
def test_a_device_that_calls_small_models_infeasible_is_not_believed(fleet: Fleet) -> None:
    sound, liar = fleet.device("sound"), fleet.device("liar")
    job = measured_baselines(fleet, sound)
    sound.measure(honest, MAX_FAILING)
    fleet.service.work()
    lies = leased_small(fleet, job, liar)
    assert lies
    for item in lies:
        liar.report(item, infeasible(item))
    fleet.service.work()
    assert {state_of(fleet, job, item.digest) for item in lies} == {"waiting"}
    assert (fleet.view(liar)["quarantine"] is not None) == (len(lies) >= MAX_FAILING)
    fleet.run(sound)
    assert {state_of(fleet, job, item.digest) for item in lies} == {"measured"}
    assert fleet.view(sound)["quarantine"] is None


@ON_SQLITE
def test_what_two_devices_call_infeasible_is(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = measured_baselines(fleet, first)
    first.measure(honest, MAX_FAILING)
    fleet.service.work()
    item = leased_small(fleet, job, second)[0]
    second.report(item, infeasible(item))
    fleet.run(first, lambda leased: infeasible(leased) if leased.digest == item.digest else honest(leased))
    assert state_of(fleet, job, item.digest) == "infeasible"
