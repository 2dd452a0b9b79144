"""A report counts only from a device that had the launch, and only as what it is."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
from dishonest import Fleet, honest, result
from ulid import ULID

from edgefront.core.store.tables import Launch

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


def test_a_launch_that_nobody_held_takes_no_report(fleet: Fleet) -> None:
    liar = fleet.device("liar")
    fleet.submit()
    own = liar.lease(1).items[0]
    with fleet.service.database.read() as session:
        (other,) = [row.id for row in session.query(Launch).filter(Launch.state == "wanted").limit(1)]
    unheld = own.model_copy(update={"launch_id": other})
    for fence in (0, 1):
        assert liar.report(unheld, honest(unheld), fence)["outcome"] == "conflict"


def test_a_report_under_a_fence_to_come_is_refused(fleet: Fleet) -> None:
    device = fleet.device("device")
    fleet.submit()
    item = device.lease(1).items[0]
    assert device.report(item, honest(item), item.fence + 1)["outcome"] == "conflict"
    assert device.report(item, honest(item))["outcome"] == "accepted"


def test_the_ids_of_a_batch_do_not_count_up(fleet: Fleet) -> None:
    device = fleet.device("device")
    fleet.submit()
    numbers = sorted(int(ULID.from_str(item.launch_id.removeprefix("lau_").upper())) for item in device.lease(32).items)
    assert len(numbers) > 3
    assert all(after - before > 1 << 32 for before, after in pairwise(numbers))


NUMBERS = (
    ("fence",),
    ("result", "latency", "samples_ms", 0),
    ("result", "latency", "warmup_ms", 0),
    ("result", "memory", "peak_bytes"),
    ("result", "memory", "forward_peak_bytes"),
    ("result", "memory", "build_peak_bytes"),
    ("result", "measuring_s"),
    ("result", "wall_s"),
)


@pytest.mark.parametrize("wrong", ["1", True], ids=["text", "truth"])
@pytest.mark.parametrize("path", NUMBERS, ids=[".".join(map(str, path)) for path in NUMBERS])
def test_only_numbers_are_numbers(fleet: Fleet, path: tuple[str | int, ...], wrong: object) -> None:
    device = fleet.device("device")
    fleet.submit()
    item = device.lease(1).items[0]
    report: Any = {"launch_id": item.launch_id, "fence": item.fence, "result": honest(item)}
    changed = copy.deepcopy(report)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    answer = device.http.post("/v1/reports", json={"reports": [changed], "busy_s": 1.0})
    assert answer.status_code == 422
    assert answer.json()["field"] == ".".join(["reports", "0", *map(str, path)])
    assert device.http.post("/v1/reports", json={"reports": [report], "busy_s": True}).json()["field"] == "busy_s"
    assert device.report(item, honest(item))["outcome"] == "accepted"
