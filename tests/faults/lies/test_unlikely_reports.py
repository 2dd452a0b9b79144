"""What is possible but far from all that is known waits for a second launch that agrees."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_SQLITE
from dishonest import Device, Fleet, Report, honest

from edgefront.core.services.measuring import result_validation
from edgefront.core.store.tables import Candidate, Launch, Measurement
from edgefront.core.wire.agent import LeaseItem


def heavy(item: LeaseItem) -> dict[str, Any]:
    """Honest, with a peak memory of two and a half times the weights."""
    result = honest(item)
    result["memory"]["peak_bytes"] = int(result["memory"]["peak_bytes"] * 2.5 / 1.2)
    return result


def started(fleet: Fleet, device: Device, report: Report = honest) -> str:
    """A job whose baselines and first generation are measured honestly by the device."""
    job = fleet.submit(algorithm={"name": "lts", "settings": {"iterations": 3, "population": 8}})
    for _ in range(20):
        fleet.service.work()
        if sum(candidate["state"] == "measured" for candidate in fleet.candidates(job, role="search")) >= 8:
            break
        device.measure(report)
    fleet.service.work()
    return job


def started_by_another(fleet: Fleet, device: Device, report: Report = honest) -> str:
    """The same, measured by a device that is drained since, so that it speaks for neither side; `device` is online."""
    veteran = fleet.device("veteran")
    job = started(fleet, veteran, report)
    fleet.admin.post(f"/v1/devices/{veteran.id}/drain").raise_for_status()
    assert device.measure(report, 1) == 1
    return job


def candidate_of(fleet: Fleet, job: str, item: LeaseItem) -> dict[str, Any]:
    (candidate,) = [
        candidate for candidate in fleet.candidates(job, role="search") if candidate["digest"] == item.digest
    ]
    return candidate


@ON_SQLITE
def test_a_lie_waits_and_is_found_out_by_the_others_of_the_class(fleet: Fleet) -> None:
    liar, honest_one = fleet.device("liar"), fleet.device("honest")
    job = started_by_another(fleet, honest_one)
    item = liar.lease(1).items[0]
    liar.report(item, honest(item, 1 / 20))
    candidate = candidate_of(fleet, job, item)
    assert candidate["state"] == "unconfirmed"
    assert "times faster than expected" in candidate["reason"]
    assert candidate["latency_ms"] is not None
    assert not candidate["on_frontier"]

    # Not shared: another user's job goes on waiting for it.
    with fleet.service.database.read() as session:
        row = session.query(Measurement).filter(Measurement.digest == item.digest).one()
        assert row.state == "unconfirmed"

    # The second launch is the other device's alone.
    assert item.digest not in [leased.digest for leased in liar.lease(32).items]
    fleet.run(honest_one)
    candidate = candidate_of(fleet, job, item)
    assert candidate["state"] == "measured"
    assert candidate["latency_ms"] == honest(item)["latency"]["samples_ms"][0]
    states = {launch["device_id"]: launch["state"] for launch in fleet.launches(candidate["id"])}
    assert states == {liar.id: "implausible", honest_one.id: "done"}
    assert item.launch_id in fleet.view(liar)["quarantine"]
    assert fleet.view(honest_one)["quarantine"] is None


@ON_SQLITE
def test_a_surprise_that_another_device_finds_too_is_believed(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = started(fleet, first)
    item = first.lease(1).items[0]
    first.report(item, honest(item, 1 / 20))
    assert candidate_of(fleet, job, item)["state"] == "unconfirmed"
    for _ in range(3):
        fleet.service.work()
        second.measure(lambda leased: honest(leased, 1 / 20 if leased.digest == item.digest else 1.0))
    candidate = candidate_of(fleet, job, item)
    assert (candidate["state"], candidate["launches"], candidate["reason"]) == ("measured", 2, None)
    assert candidate["on_frontier"]
    assert [fleet.view(member)["quarantine"] for member in (first, second)] == [None, None]


@pytest.mark.parametrize(("conditions", "caught"), [("other load (4 threads run)", False), (None, True)])
@ON_SQLITE
def test_what_other_load_explains_is_no_lie(fleet: Fleet, conditions: str | None, caught: bool) -> None:
    slow, quick = fleet.device("slow"), fleet.device("quick")
    job = started_by_another(fleet, quick)
    item = slow.lease(1).items[0]
    slow.report(item, {**honest(item, 20.0), "environment": {"conditions": conditions}})
    assert candidate_of(fleet, job, item)["state"] == "unconfirmed"
    fleet.run(quick)
    candidate = candidate_of(fleet, job, item)
    assert (candidate["state"], candidate["latency_ms"]) == ("measured", honest(item)["latency"]["samples_ms"][0])
    assert (fleet.view(slow)["quarantine"] is not None) == caught


@ON_SQLITE
def test_alone_in_its_class_a_device_confirms_itself(fleet: Fleet) -> None:
    device = fleet.device("alone")
    job = started(fleet, device)
    item = device.lease(1).items[0]
    device.report(item, honest(item, 1 / 20))
    assert candidate_of(fleet, job, item)["state"] == "unconfirmed"
    for _ in range(3):
        fleet.service.work()
        device.measure(lambda leased: honest(leased, 1 / 20 if leased.digest == item.digest else 1.0))
    assert candidate_of(fleet, job, item)["state"] == "measured"


def test_an_unconfirmed_result_reaches_no_other_job(fleet: Fleet) -> None:
    device = fleet.device("device")
    job = started(fleet, device)
    item = device.lease(1).items[0]
    device.report(item, honest(item, 1 / 20))
    other = fleet.submit(seed=8)
    target = fleet.user.get(f"/v1/jobs/{other}").json()["targets"][0]["id"]
    with fleet.service.database.write() as session:
        mine = session.query(Candidate).filter(Candidate.digest == item.digest, Candidate.role == "search").one()
        copies = {column.key: getattr(mine, column.key) for column in Candidate.__table__.columns}
        # Another's candidate of the same measurement, which waits for it.
        copies |= {"id": "cnd_other", "job_id": other, "target_id": target, "number": 90, "state": "waiting"}
        copies |= {"latency_ms": None, "memory_bytes": None, "launches": 0, "measured_at": None}
        session.add(Candidate(**copies))
    device.report(device.lease(1).items[0], honest(item))
    assert candidate_of(fleet, other, item)["state"] == "waiting"
    assert candidate_of(fleet, job, item)["state"] == "unconfirmed"


@ON_SQLITE
def test_launches_that_never_agree_end_without_a_result(fleet: Fleet) -> None:
    device = fleet.device("device")
    job = started(fleet, device)
    item = device.lease(1).items[0]
    lies = iter([1 / 8, 1 / 3, 0.9, 2.5, 6.5, 16.0])
    device.report(item, honest(item, 1 / 20))
    for _ in range(result_validation.MAX_CONFIRMATIONS + 2):
        fleet.service.work()
        device.measure(lambda leased: honest(leased, next(lies) if leased.digest == item.digest else 1.0))
    candidate = candidate_of(fleet, job, item)
    assert candidate["state"] == "failed"
    assert "launches do not agree" in candidate["reason"]


def test_a_confirmation_that_cannot_be_made_ends_without_a_result(fleet: Fleet) -> None:
    device = fleet.device("device")
    job = started(fleet, device)
    item = device.lease(1).items[0]
    device.report(item, honest(item, 1 / 20))
    broken = {"outcome": "infeasible", "reason": "out_of_memory", "message": "no", "wall_s": 1.0}
    for _ in range(result_validation.MAX_CONFIRMATIONS + 2):
        fleet.service.work()
        device.measure(lambda leased: broken if leased.digest == item.digest else honest(leased))
    assert candidate_of(fleet, job, item)["state"] == "failed"


def test_three_lies_on_a_baseline_widen_no_honest_interval(fleet: Fleet) -> None:
    honest_one = fleet.device("honest")
    job = started_by_another(fleet, honest_one)
    before = {candidate["id"]: candidate for candidate in fleet.candidates(job) if candidate["state"] == "measured"}
    with fleet.service.database.write() as session:
        lied = session.query(Candidate).filter(Candidate.role == "baseline").order_by(Candidate.number).first()
        assert lied is not None
        for index in range(3):
            session.add(
                Launch(
                    id=f"lau_lie{index}",
                    measurement_id=lied.measurement_id,
                    target_id=lied.target_id,
                    device_key=session.get_one(Measurement, lied.measurement_id).device_key,
                    state="wanted",
                    purpose="refinement",
                    reports=[],
                    created_at=fleet.service.later(),
                )
            )
        digest = lied.digest
    liar = fleet.device("liar")
    fleet.run(liar, lambda leased: honest(leased, 20.0 if leased.digest == digest else 1.0))
    fleet.run(honest_one)
    after = {candidate["id"]: candidate for candidate in fleet.candidates(job)}
    for id_, earlier in before.items():
        assert after[id_]["latency_ms"] == earlier["latency_ms"]
        assert (after[id_]["latency_half_width_ms"] or 0.0) <= 0.1 * earlier["latency_ms"]
    assert fleet.view(liar)["quarantine"] is not None


@ON_SQLITE
def test_half_of_the_memory_waits_too_and_is_found_out(fleet: Fleet) -> None:
    """More than the weights, so possible; the time is true."""
    liar, honest_one = fleet.device("liar"), fleet.device("honest")
    job = started_by_another(fleet, honest_one, heavy)
    item = liar.lease(1).items[0]
    result = heavy(item)
    result["memory"]["peak_bytes"] = result["memory"]["peak_bytes"] // 2
    liar.report(item, result)
    candidate = candidate_of(fleet, job, item)
    assert candidate["state"] == "unconfirmed"
    assert "times less than expected" in candidate["reason"]
    assert not candidate["on_frontier"]
    fleet.run(honest_one, heavy)
    candidate = candidate_of(fleet, job, item)
    assert (candidate["state"], candidate["memory_bytes"]) == ("measured", heavy(item)["memory"]["peak_bytes"])
    assert item.launch_id in fleet.view(liar)["quarantine"]


def test_a_second_launch_that_lies_about_memory_counts_for_nothing(fleet: Fleet) -> None:
    """The first was believed; two honest devices outvote the third."""
    first, second, liar = fleet.device("first"), fleet.device("second"), fleet.device("liar")
    job = started(fleet, first, heavy)
    item = first.lease(1).items[0]
    first.report(item, heavy(item))
    before = candidate_of(fleet, job, item)
    assert before["state"] == "measured"
    with fleet.service.database.write() as session:
        measurement = session.query(Measurement).filter(Measurement.digest == item.digest).one()
        for index in range(2):
            session.add(
                Launch(
                    id=f"lau_more{index}",
                    measurement_id=measurement.id,
                    target_id=before["target_id"],
                    device_key=measurement.device_key,
                    state="wanted",
                    purpose="refinement",
                    reports=[],
                    created_at=fleet.service.later(),
                )
            )

    def light(leased: LeaseItem) -> dict[str, Any]:
        result = heavy(leased)
        result["memory"]["peak_bytes"] = int(0.6 * result["memory"]["peak_bytes"])
        return result

    for device, report in ((second, heavy), (liar, light)):
        (leased,) = device.lease(1).items
        assert leased.digest == item.digest
        device.report(leased, report(leased))
    after = candidate_of(fleet, job, item)
    assert (after["state"], after["memory_bytes"]) == ("measured", before["memory_bytes"])
    assert "implausible" in fleet.view(liar)["quarantine"]
    assert [fleet.view(member)["quarantine"] for member in (first, second)] == [None, None]
