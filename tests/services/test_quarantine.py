"""What puts a device in quarantine: failures at different models, less what it has measured since."""

from __future__ import annotations

from leasing import Leasing

from edgefront.core.services.measuring import quarantine
from edgefront.core.services.measuring.quarantine import MAX_FAILING
from edgefront.core.store.tables import Device


def test_failures_of_one_model_count_once(leasing: Leasing) -> None:
    device = leasing.device()
    with leasing.write() as session:
        for _ in range(MAX_FAILING + 1):
            quarantine.add_failing(session, device, ["m1"])
        quarantine.add_failing(session, device, ["m1", "m2", "m3"])
    row = leasing.row(Device, device)
    assert (row.failing, row.quarantine) == (["m1", "m2"], None)


def test_what_is_measured_removes_the_oldest_failure(leasing: Leasing) -> None:
    device = leasing.device()
    with leasing.write() as session:
        for failed in (["m1"], ["m2"], (), ["m3"]):
            quarantine.add_failing(session, device, failed)
    assert leasing.row(Device, device).failing == ["m2", "m3"]


def test_the_first_reason_stays(leasing: Leasing) -> None:
    device = leasing.device()
    with leasing.write() as session:
        for reason in ("the first reason", "the second"):
            quarantine.put_in(session, device, reason)
    assert leasing.row(Device, device).quarantine == "the first reason"
