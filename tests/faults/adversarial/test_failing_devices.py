"""A device on which model after model fails is quarantined, whatever its owner says of the models."""

from __future__ import annotations

import pytest
from databases import ON_BOTH
from dishonest import Device, Fleet, Report, crashes, honest, times

from edgefront.core.services.measuring import quarantine

MAX_FAILING = quarantine.MAX_FAILING


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


@ON_BOTH
@pytest.mark.parametrize("report", [crashes, times(1e-6)], ids=["crashes", "impossible results"])
def test_a_device_that_fails_again_and_again_gets_no_more(fleet: Fleet, report: Report) -> None:
    broken, sound = fleet.device("broken"), fleet.device("sound")
    job = measured_baselines(fleet, sound)
    assert broken.measure(report, MAX_FAILING - 1) == MAX_FAILING - 1
    fleet.service.work()
    assert fleet.view(broken)["quarantine"] is None
    for _ in range(3):  # the same models again, and one more
        broken.measure(report, MAX_FAILING)
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
    broken.measure(report, 1)
    fleet.service.work()
    assert fleet.view(broken)["quarantine"] is None  # it counts from the start


@pytest.mark.parametrize(("done", "of"), [(1, 2), (1, 4)])
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
