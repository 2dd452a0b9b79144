"""A report counts only from a device that had the launch, and only as what it is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from databases import ON_BOTH
from dishonest import Device, Fleet, honest, result
from ulid import ULID

from edgefront.core.schemas.agent import LeaseItem
from edgefront.core.store.tables import Device as Row
from edgefront.core.store.tables import Launch, Lease

LIES = {
    "a fast result": result(0.5, 1 << 30),
    "infeasible": {"outcome": "infeasible", "reason": "out_of_memory", "message": "no", "wall_s": 1.0},
    "a death": {"outcome": "failed", "reason": "crashed", "message": "no", "wall_s": 1.0},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_neighbour_of_the_class_cannot_report_on_a_launch(fleet: Fleet, lie: dict[str, Any]) -> None:
    victim, liar = fleet.device("victim"), fleet.device("liar")
    fleet.submit()
    held = victim.lease(2).items[0]
    own = liar.lease(2).items[0]
    for fence in (held.fence, own.fence, 1):
        receipt = liar.report(held, lie, fence)
        assert receipt["outcome"] == "conflict"
        assert "not leased to this device" in receipt["detail"]
    with fleet.service.database.read() as session:
        row = session.get_one(Launch, held.launch_id)
        assert (row.state, row.attempts, row.device_id, row.reports) == ("leased", 0, victim.id, [])
    assert victim.report(held, honest(held))["outcome"] == "accepted"


@ON_BOTH
def test_a_launch_that_nobody_held_takes_no_report(fleet: Fleet) -> None:
    liar = fleet.device("liar")
    fleet.submit()
    own = liar.lease(1).items[0]
    with fleet.service.database.read() as session:
        (other,) = [row.id for row in session.query(Launch).filter(Launch.state == "wanted").limit(1)]
    unheld = own.model_copy(update={"launch_id": other})
    for fence in (0, 1):
        assert liar.report(unheld, honest(unheld), fence)["outcome"] == "conflict"


def lies_and_truths(fleet: Fleet, liar: Device, items: Iterable[LeaseItem], other: Device) -> None:
    """The liar answers before the device that has the work now, for nothing."""
    held = {item.launch_id: item for item in other.lease(32).items}
    assert set(held) == {item.launch_id for item in items}
    for item in items:
        receipt = liar.report(item, honest(item, 1 / 20))
        assert receipt["outcome"] == "conflict"
        assert "given back" in receipt["detail"]
    assert {other.report(item, honest(item))["outcome"] for item in held.values()} == {"accepted"}
    with fleet.service.database.read() as session:
        assert {row.device_id for row in session.query(Launch).filter(Launch.id.in_(held))} == {other.id}


def test_what_a_device_in_quarantine_held_is_reported_by_who_has_it_now(fleet: Fleet) -> None:
    liar, other = fleet.device("liar"), fleet.device("other")
    fleet.submit()
    lease = liar.lease(32)
    liar.start(lease.items[1])
    with fleet.service.database.write() as session:
        session.get_one(Row, liar.id).quarantine = "caught"
    fleet.sweep()
    lies_and_truths(fleet, liar, lease.items, other)
    with fleet.service.database.read() as session:
        assert session.get_one(Launch, lease.items[1].launch_id).attempts == 0


@ON_BOTH
def test_who_held_a_launch_before_it_was_given_back_reports_it_no_more(fleet: Fleet) -> None:
    """Its lease had run out: of the launches that another gave back, only the present holder knows anything."""
    slow, quick = fleet.device("slow"), fleet.device("quick")
    fleet.submit()
    (item,) = slow.lease(1).items
    with fleet.service.database.write() as session:
        for row in session.query(Lease):
            row.expires_at = row.created_at
    fleet.sweep()
    lease = quick.lease(32)
    assert item.launch_id in {leased.launch_id for leased in lease.items}
    quick.http.post(f"/v1/leases/{lease.lease_id}/release", json={}).raise_for_status()
    assert slow.report(item, honest(item))["outcome"] == "conflict"


def test_the_ids_of_a_batch_do_not_count_up(fleet: Fleet) -> None:
    device = fleet.device("device")
    fleet.submit()
    numbers = sorted(int(ULID.from_str(item.launch_id.removeprefix("lau_").upper())) for item in device.lease(32).items)
    assert len(numbers) > 3
    assert all(after - before > 1 << 32 for before, after in pairwise(numbers))
