"""What cannot be true is kept aside, with a sentence why, and measured again, up to a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from databases import ON_BOTH
from dishonest import Fleet, Report, honest, result, times

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.schemas.agent import LeaseItem
from edgefront.core.store.tables import Device, Launch, Lease, Target


def weightless(item: LeaseItem) -> dict[str, Any]:
    return result(honest(item)["latency"]["samples_ms"][0], 5)


def endless(item: LeaseItem) -> dict[str, Any]:
    return {**honest(item), "wall_s": 900.0, "measuring_s": 800.0}


def beyond_the_device(item: LeaseItem) -> dict[str, Any]:
    return result(honest(item)["latency"]["samples_ms"][0], 1 << 50)


LIES = {
    "5 bytes is less than the weights": weightless,
    "for a device with 1.6": beyond_the_device,
    "operations are": times(1e-5),
    "was leased for": endless,
}


@pytest.mark.parametrize(("why", "lie"), LIES.items(), ids=["little memory", "much memory", "speed", "time"])
def test_an_impossible_report_is_kept_aside(fleet: Fleet, why: str, lie: Report) -> None:
    liar = fleet.device("liar")
    job = fleet.submit()
    item = liar.lease(1).items[0]
    assert liar.report(item, lie(item))["outcome"] == "accepted"
    digest = Architecture.parse(item.architecture).digest
    (candidate,) = [listed for listed in fleet.candidates(job) if listed["digest"] == digest]
    assert (candidate["state"], candidate["latency_ms"], candidate["on_frontier"]) == ("waiting", None, False)
    launches = {launch["id"]: launch for launch in fleet.launches(candidate["id"])}
    launch = launches[item.launch_id]
    assert launch["state"] == "implausible"
    assert launch["reason"].startswith("implausible: ")
    assert why in launch["reason"]
    assert launch["result"]["latency"] is not None  # as it was reported

    # Another device of the class measures it, and all the rest.
    other = fleet.device("honest")
    assert fleet.run(other)
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
    points = fleet.user.get(f"/v1/jobs/{job}/frontier").json()["points"]
    assert points
    shown = {candidate["id"]: candidate for candidate in fleet.candidates(job)}
    for point in points:
        assert all(
            launch["device_id"] == other.id for launch in fleet.launches(point["id"]) if launch["state"] == "done"
        )
    assert shown[candidate["id"]]["state"] == "measured"


@ON_BOTH
def test_three_impossible_results_end_a_measurement(fleet: Fleet) -> None:
    liar = fleet.device("liar")
    job = fleet.submit()
    first = liar.lease(1).items[0]
    held = [first]
    for _ in range(3):
        item = next(leased for leased in held if leased.digest == first.digest)
        held.remove(item)
        assert liar.report(item, weightless(item))["outcome"] == "accepted"
        held += liar.lease(32).items
    (candidate,) = [listed for listed in fleet.candidates(job) if listed["digest"] == first.digest]
    states = [launch["state"] for launch in fleet.launches(candidate["id"])]
    assert states.count("implausible") == 3
    assert candidate["state"] == "failed"
    assert candidate["reason"].startswith("implausible: ")


def waited_long(fleet: Fleet) -> None:
    """All launches have been wanted for an hour."""
    with fleet.service.database.write() as session:
        for launch in session.query(Launch):
            launch.created_at -= timedelta(hours=1)


def state_of(fleet: Fleet, item: LeaseItem) -> str:
    with fleet.service.database.read() as session:
        return session.get_one(Launch, item.launch_id).state


@ON_BOTH
def test_a_launch_takes_no_longer_than_it_was_leased_however_long_it_was_wanted(fleet: Fleet) -> None:
    """Its agent has not told that it started."""
    liar = fleet.device("liar")
    fleet.submit()
    waited_long(fleet)
    item = liar.lease(1).items[0]
    liar.report(item, endless(item))
    assert state_of(fleet, item) == "implausible"


def test_what_took_long_under_an_earlier_lease_is_believed(fleet: Fleet) -> None:
    """It was away for an hour, and another device has begun the launch a moment ago."""
    slow, quick = fleet.device("slow"), fleet.device("quick")
    fleet.submit()
    lease = slow.lease(1)
    (item,) = lease.items
    slow.start(item)
    waited_long(fleet)
    with fleet.service.database.write() as session:
        row = session.get_one(Lease, lease.lease_id)
        row.expires_at = row.created_at
    fleet.sweep()
    (again,) = [leased for leased in quick.lease(32).items if leased.launch_id == item.launch_id]
    quick.start(again)
    assert slow.report(item, endless(item))["outcome"] == "accepted"
    assert state_of(fleet, item) == "done"
    assert fleet.view(slow)["quarantine"] is None


@ON_BOTH
def test_a_report_does_not_use_up_the_time_of_a_job(fleet: Fleet) -> None:
    """A target's clock starts with its first launch, which is said to have taken eleven days."""
    liar = fleet.device("liar")
    job = fleet.submit(budget={"refinement": 0, "minutes": 60})
    item = liar.lease(1).items[0]
    liar.report(item, {"outcome": "failed", "reason": "crashed", "message": "signal 11", "wall_s": 1e6})
    with fleet.service.database.read() as session:
        (target,) = session.query(Target).filter(Target.job_id == job)
        assert target.started_at is not None
        assert fleet.service.later() - target.started_at < timedelta(minutes=10)
    fleet.run(fleet.device("honest"))
    shown = fleet.user.get(f"/v1/jobs/{job}").json()
    assert shown["state"] == "finished"
    assert "60 minutes" not in shown["targets"][0]["note"]


def test_only_the_owner_or_an_admin_trusts_a_device_again(fleet: Fleet) -> None:
    liar = fleet.device("liar", owner="ada")
    job = fleet.submit()
    with fleet.service.database.write() as session:
        session.get_one(Device, liar.id).quarantine = "its anchor failed"
    note = fleet.user.get(f"/v1/jobs/{job}").json()["targets"][0]["note"]
    assert "'liar' is in quarantine" in note
    assert fleet.user.post(f"/v1/devices/{liar.id}/trust").status_code == 403
    assert fleet.service.client("user", "ada").post("/v1/devices/liar/trust").status_code == 200
    assert fleet.view(liar)["quarantine"] is None
    assert liar.lease().items


OVER_TIME = {"outcome": "infeasible", "reason": "over_time", "message": "too slow"}


@pytest.mark.parametrize(("wall_s", "why"), [(0.1, "after at most 0.1 s"), (60.0, "after at most 1")])
def test_nothing_is_over_its_time_limit_before_that_has_passed(fleet: Fleet, wall_s: float, why: str) -> None:
    liar = fleet.device("liar")
    fleet.submit()
    item = liar.lease(1).items[0]
    liar.start(item)
    assert liar.report(item, {**OVER_TIME, "wall_s": wall_s})["outcome"] == "accepted"
    assert state_of(fleet, item) == "implausible"
    with fleet.service.database.read() as session:
        assert why in (session.get_one(Launch, item.launch_id).reason or "")


@ON_BOTH
def test_what_took_as_long_as_its_time_limit_is_over_it(fleet: Fleet) -> None:
    slow = fleet.device("slow")
    fleet.submit()
    item = slow.lease(1).items[0]
    slow.start(item)
    with fleet.service.database.write() as session:
        session.get_one(Launch, item.launch_id).started_at -= timedelta(seconds=item.protocol.time_limit_s)
    slow.report(item, {**OVER_TIME, "wall_s": item.protocol.time_limit_s})
    assert state_of(fleet, item) == "infeasible"
    assert fleet.view(slow)["quarantine"] is None


ENDS = {
    "done": {},
    "failed": {"outcome": "failed", "reason": "crashed", "message": "no", "latency": None, "memory": None},
    "infeasible": {
        "outcome": "infeasible", "reason": "out_of_memory", "message": "no", "latency": None, "memory": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_report_adds_more_time_than_has_passed(fleet: Fleet, end: dict[str, Any]) -> None:
    liar = fleet.device("liar")
    fleet.submit()
    item = liar.lease(1).items[0]
    result = {**honest(item), **end, "wall_s": 1e6, "measuring_s": 1e6, "build_s": 1e6}
    report = {"launch_id": item.launch_id, "fence": item.fence, "result": result}
    answer = liar.http.post("/v1/reports", json={"reports": [report], "busy_s": 1e6})
    assert answer.json()["receipts"][0]["outcome"] == "accepted"
    fleet.service.work()
    with fleet.service.database.read() as session:
        (target,) = session.query(Target)
        assert 0 < target.busy_s < 60
        assert 0 < target.measuring_s < 60
        row = session.get_one(Device, liar.id)
        assert 0 < row.busy_s < 60
        assert 0 < row.measuring_s < 60


def test_no_launch_has_more_samples_than_its_protocol_asks_for(fleet: Fleet) -> None:
    """Percentiles are taken over all samples: those of one launch would outweigh the others."""
    liar = fleet.device("liar")
    fleet.submit()
    item = liar.lease(1).items[0]
    result = honest(item)
    result["latency"]["samples_ms"] *= 20
    answer = liar.send(item, result)
    assert answer.status_code == 422
    assert answer.json()["field"] == "reports.0.result.latency.samples_ms"
    assert f"{item.protocol.repeats} timed passes, not 100" in answer.json()["detail"]
    assert liar.report(item, honest(item))["outcome"] == "accepted"
