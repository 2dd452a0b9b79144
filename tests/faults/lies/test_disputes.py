"""Where devices of one class contradict each other, only what further devices measured decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from databases import ON_SQLITE
from dishonest import Device, Fleet, Report, honest, times

from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.services.measuring import quarantine, result_validation
from edgefront.core.store.tables import Candidate, Job, Launch, Measurement, Target
from edgefront.core.store.tables import Device as DeviceRow
from edgefront.core.wire.agent import LeaseItem

FAST = times(1 / 20)
INFEASIBLE = {"outcome": "infeasible", "reason": "out_of_memory", "message": "no", "wall_s": 1.0}
UNSUPPORTED = {"outcome": "failed", "reason": "unsupported", "message": "no such provider", "wall_s": 0.1}


def started(fleet: Fleet, device: Device, report: Report = honest) -> str:
    """A job whose baselines and first generation are measured by the device alone."""
    job = fleet.submit(algorithm={"name": "lts", "settings": {"iterations": 3, "population": 8}})
    for _ in range(20):
        fleet.service.work()
        if sum(candidate["state"] == "measured" for candidate in fleet.candidates(job, role="search")) >= 8:
            break
        device.measure(report)
    fleet.service.work()
    return job


def candidate_of(fleet: Fleet, job: str, item: LeaseItem) -> dict[str, Any]:
    (candidate,) = [candidate for candidate in fleet.candidates(job) if candidate["digest"] == item.digest]
    return candidate


def in_turns(fleet: Fleet, *devices: tuple[Device, Report]) -> None:
    """Each leases once and reports, again and again, until none gets anything."""
    while True:
        fleet.service.work()
        if not sum(device.measure(report) for device, report in devices):
            return


def goes_offline(fleet: Fleet, device: Device) -> None:
    with fleet.service.database.write() as session:
        session.get_one(DeviceRow, device.id).last_seen_at = fleet.service.later() - 2 * ONLINE
    fleet.sweep()


def quarantined(fleet: Fleet, *devices: Device) -> list[str]:
    return [device.name for device in devices if fleet.view(device)["quarantine"] is not None]


@ON_SQLITE
def test_the_first_device_of_a_class_decides_nothing_about_the_second(fleet: Fleet) -> None:
    """All that is known of the class is the liar's: it says nothing for or against either."""
    liar, newcomer = fleet.device("liar"), fleet.device("newcomer")
    job = started(fleet, liar, FAST)
    item = newcomer.lease(1).items[0]
    newcomer.report(item, honest(item))
    assert "times slower than expected" in candidate_of(fleet, job, item)["reason"]
    in_turns(fleet, (liar, FAST), (newcomer, honest))
    assert quarantined(fleet, liar, newcomer) == []
    candidate = candidate_of(fleet, job, item)
    assert candidate["state"] == "failed"
    assert "launches do not agree" in candidate["reason"]
    assert not candidate["on_frontier"]


@ON_SQLITE
def test_a_third_device_settles_what_two_contradict_each_other_about(fleet: Fleet) -> None:
    liar, newcomer = fleet.device("liar"), fleet.device("newcomer")
    job = started(fleet, liar, FAST)
    item = newcomer.lease(1).items[0]
    newcomer.report(item, honest(item))
    third = fleet.device("third")
    third.measure(honest, 1)  # it is online
    liar.measure(lambda leased: FAST(leased) if leased.digest == item.digest else honest(leased))
    candidate = candidate_of(fleet, job, item)
    assert candidate["state"] == "unconfirmed"
    assert "launches do not agree" in candidate["reason"]
    assert quarantined(fleet, liar, newcomer, third) == []
    third.measure()
    candidate = candidate_of(fleet, job, item)
    assert (candidate["state"], candidate["latency_ms"]) == ("measured", honest(item)["latency"]["samples_ms"][0])
    assert quarantined(fleet, liar, newcomer, third) == ["liar"]


@ON_SQLITE
def test_what_a_device_in_quarantine_measured_speaks_for_nobody(fleet: Fleet) -> None:
    """A liar of before fills what is known, and a second one agrees with it."""
    before, liar, newcomer = fleet.device("before"), fleet.device("liar"), fleet.device("newcomer")
    job = started(fleet, before, FAST)
    with fleet.service.database.write() as session:
        session.get_one(DeviceRow, before.id).quarantine = "caught elsewhere"
    item = newcomer.lease(1).items[0]
    newcomer.report(item, honest(item))
    in_turns(fleet, (liar, FAST), (newcomer, honest))
    assert quarantined(fleet, liar, newcomer) == []
    assert candidate_of(fleet, job, item)["state"] == "failed"


def test_devices_of_a_class_may_differ_by_less_than_a_factor_of_two(fleet: Fleet) -> None:
    """Also where each of them repeats its own figures to the percent."""
    first, other = fleet.device("one"), fleet.device("other")
    slower = times(1.6)
    other.lease(1)  # it is online
    job = fleet.submit(budget={"refinement": 1.0})
    in_turns(fleet, (first, honest), (other, slower))
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
    assert {candidate["state"] for candidate in fleet.candidates(job)} == {"measured"}
    assert quarantined(fleet, first, other) == []


# Conditions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
@ON_SQLITE
def test_bad_conditions_excuse_a_device_a_few_times_a_day(fleet: Fleet, more: int) -> None:
    liar, first, second = fleet.device("liar"), fleet.device("first"), fleet.device("second")
    job = started(fleet, first)
    second.measure(honest, 1)
    count = result_validation.MAX_EXCUSED + more
    items = liar.lease(count).items
    assert len(items) == count
    for item in items:
        liar.report(item, {**honest(item, 20.0), "environment": {"conditions": "other load (4 threads run)"}})
    in_turns(fleet, (first, honest), (second, honest))
    for item in items:
        candidate = candidate_of(fleet, job, item)
        assert (candidate["state"], candidate["latency_ms"]) == ("measured", honest(item)["latency"]["samples_ms"][0])
    assert quarantined(fleet, liar, first, second) == (["liar"] if more else [])


def test_what_was_excused_before_the_last_day_does_not_count(fleet: Fleet) -> None:
    liar, first, second = fleet.device("liar"), fleet.device("first"), fleet.device("second")
    started(fleet, first)
    second.measure(honest, 1)
    items = liar.lease(2 * result_validation.MAX_EXCUSED).items
    assert len(items) > result_validation.MAX_EXCUSED
    for of_day in (items[: result_validation.MAX_EXCUSED], items[result_validation.MAX_EXCUSED :]):
        for item in of_day:
            liar.report(item, {**honest(item, 20.0), "environment": {"conditions": "on battery"}})
        for device in (first, second) * 6:
            device.measure(honest, 2)
        with fleet.service.database.write() as session:
            for launch in session.query(Launch).filter(Launch.state == "implausible"):
                assert launch.device_id == liar.id
                assert launch.finished_at is not None
                launch.finished_at -= result_validation.EXCUSED_WITHIN + timedelta(seconds=1)
    assert quarantined(fleet, liar, first, second) == []


# Baselines ---------------------------------------------------------------------------------------------------------


def baselines(fleet: Fleet, job: str) -> list[str]:
    """States."""
    return [candidate["state"] for candidate in fleet.candidates(job, role="baseline")]


def phase(fleet: Fleet, job: str) -> str:
    fleet.service.work()
    state: str = fleet.user.get(f"/v1/jobs/{job}").json()["targets"][0]["state"]
    return state


def measured_alone(fleet: Fleet, device: Device, other: Device, report: Report = honest) -> str:
    """A job whose baselines one of two devices that are online has measured as often as they are wanted."""
    other.lease(1)  # it is online
    job = fleet.submit()
    for _ in range(4):
        fleet.service.work()
        device.measure(report)
    assert set(baselines(fleet, job)) == {"unconfirmed"}
    return job


@ON_SQLITE
def test_baselines_are_confirmed_by_a_second_device(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = measured_alone(fleet, first, second)
    assert phase(fleet, job) == "baselines"
    shown = fleet.candidates(job, role="baseline")[0]
    assert "another of its class is to measure it too" in shown["reason"]
    assert shown["launches"] >= 3
    assert second.measure(honest) == 2
    assert baselines(fleet, job) == ["measured", "measured"]
    in_turns(fleet, (first, honest), (second, honest))
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
    assert quarantined(fleet, first, second) == []


@pytest.mark.parametrize("factor", [20.0, 1 / 20], ids=["slow", "fast"])
@ON_SQLITE
def test_no_single_device_sets_the_headline(fleet: Fleet, factor: float) -> None:
    """A slow baseline makes everything look fast: with a third device the liar is found out, without it nobody is."""
    liar, second, third = fleet.device("liar"), fleet.device("second"), fleet.device("third")
    job = measured_alone(fleet, liar, second, times(factor))
    second.measure(honest)
    assert set(baselines(fleet, job)) == {"unconfirmed"}
    assert phase(fleet, job) == "baselines"
    assert quarantined(fleet, liar, second) == []
    for device in (third, liar, second, third) * 4:
        device.measure(times(factor) if device is liar else honest)
    assert baselines(fleet, job) == ["measured", "measured"]
    for candidate in fleet.candidates(job, role="baseline"):
        (true,) = {
            honest_ms
            for launch in fleet.launches(candidate["id"])
            if launch["device_id"] == second.id
            for honest_ms in launch["result"]["latency"]["samples_ms"]
        }
        assert candidate["latency_ms"] == true
    assert quarantined(fleet, liar, second, third) == ["liar"]


@pytest.mark.parametrize("later", ["a third device", "quarantine"])
def test_what_two_could_not_agree_about_is_asked_again_by_a_later_job(fleet: Fleet, later: str) -> None:
    liar, second = fleet.device("liar"), fleet.device("second")
    job = measured_alone(fleet, liar, second, times(20.0))
    in_turns(fleet, (liar, times(20.0)), (second, honest))
    assert set(baselines(fleet, job)) == {"failed"}
    if later == "quarantine":
        with fleet.service.database.write() as session:
            session.get_one(DeviceRow, liar.id).quarantine = "caught elsewhere"
        witness = second
    else:
        witness = fleet.device("third")
        witness.lease(1)  # it is online
    again = fleet.submit()
    fleet.service.work()
    witness.measure(honest)
    assert baselines(fleet, again) == ["measured", "measured"]
    for candidate in fleet.candidates(again, role="baseline"):
        assert candidate["latency_ms"] in {
            launch["result"]["latency"]["samples_ms"][0]
            for launch in fleet.launches(candidate["id"])
            if launch["device_id"] == second.id and launch["result"]
        }
    assert quarantined(fleet, liar, second) == ["liar"]


def test_baselines_of_one_device_count_once_the_other_is_offline(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = measured_alone(fleet, first, second)
    assert phase(fleet, job) == "baselines"
    goes_offline(fleet, second)
    fleet.run(first)
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
    assert set(baselines(fleet, job)) == {"measured"}


@pytest.mark.parametrize("answer", [INFEASIBLE, UNSUPPORTED], ids=["infeasible", "unsupported"])
@ON_SQLITE
def test_baselines_of_one_device_count_where_the_other_cannot_measure_them(
    fleet: Fleet, answer: dict[str, Any]
) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = measured_alone(fleet, first, second)
    assert second.measure(lambda _: answer) == 2
    goes_offline(fleet, second)
    fleet.run(first)
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
    assert set(baselines(fleet, job)) == {"measured"}
    assert quarantined(fleet, first, second) == []


def time_passes(fleet: Fleet) -> None:
    with fleet.service.database.write() as session:
        for launch in session.query(Launch).filter(Launch.state == "wanted"):
            launch.created_at -= quarantine.WAITED_FOR
    fleet.sweep()


@pytest.mark.parametrize("idle", [1, 3, 12])
def test_a_device_that_stays_online_and_measures_nothing_holds_no_job(fleet: Fleet, idle: int) -> None:
    """However many there are: a few waits of ten minutes."""
    first, *others = fleet.device("first"), *(fleet.device(f"idle {index}") for index in range(idle))
    for other in others:
        other.lease(1)  # it is online, and so it stays
    job = fleet.submit()
    for _ in range(2 * result_validation.MAX_WAITED_FOR + 1):
        fleet.run(first)
        time_passes(fleet)
    fleet.run(first)
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
    assert set(baselines(fleet, job)) == {"measured"}
    assert quarantined(fleet, first, *others) == []


@ON_SQLITE
def test_launches_of_paused_jobs_use_up_no_confirmation(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = measured_alone(fleet, first, second)
    for _ in range(result_validation.MAX_CONFIRMATIONS + 1):
        for action in ("pause", "resume"):
            fleet.user.post(f"/v1/jobs/{job}/{action}").raise_for_status()
        fleet.service.work()
        first.measure(honest)
        assert set(baselines(fleet, job)) == {"unconfirmed"}
    assert second.measure(honest) >= 2
    assert baselines(fleet, job) == ["measured", "measured"]


def test_what_is_believed_is_not_taken_back_for_another_jobs_baselines(fleet: Fleet) -> None:
    first, second = fleet.device("first"), fleet.device("second")
    job = fleet.submit()
    fleet.run(first)
    assert baselines(fleet, job) == ["measured", "measured"]
    second.lease(1)  # it is online from here on
    with fleet.service.database.write() as session:
        candidate = session.query(Candidate).filter(Candidate.role == "baseline").first()
        assert candidate is not None
        session.get_one(Target, candidate.target_id).state = "baselines"
        session.get_one(Job, candidate.job_id).state = "running"
        measurement = session.get_one(Measurement, candidate.measurement_id)
        session.add(
            Launch(
                id="lau_more",
                measurement_id=measurement.id,
                target_id=candidate.target_id,
                device_key=measurement.device_key,
                state="wanted",
                purpose="refinement",
                reports=[],
                created_at=fleet.service.later(),
            )
        )
    assert first.measure(honest, 1) == 1
    assert set(baselines(fleet, job)) == {"measured"}


# Votes of devices in quarantine --------------------------------------------------------------------------------------


def test_devices_in_quarantine_have_no_vote_where_others_have(fleet: Fleet) -> None:
    """Two that agreed on a lie and were caught elsewhere outvote no third; alone they are not believed."""
    liars, third = [fleet.device("one"), fleet.device("two")], fleet.device("third")
    liars[1].lease(1)  # it is online
    job = fleet.submit()
    held = [liar.lease(8).items for liar in liars]
    with fleet.service.database.write() as session:
        for liar in liars:
            session.get_one(DeviceRow, liar.id).quarantine = "caught elsewhere"
    for liar, items in zip(liars, held, strict=True):
        for item in items:
            liar.report(item, FAST(item))
    reported = [
        candidate for candidate in fleet.candidates(job, role="baseline") if candidate["latency_ms"] is not None
    ]
    assert reported
    assert {candidate["state"] for candidate in reported} == {"unconfirmed"}
    fleet.run(third)
    for candidate in fleet.candidates(job, role="baseline"):
        true = {
            item["result"]["latency"]["samples_ms"][0]
            for item in fleet.launches(candidate["id"])
            if item["result"] and item["device_id"] == third.id
        }
        assert (candidate["state"], {candidate["latency_ms"]}) == ("measured", true)
    with fleet.service.database.read() as session:
        for measurement in session.query(Measurement):
            launches = session.query(Launch).filter(
                Launch.measurement_id == measurement.id, Launch.device_id.is_not(None)
            )
            done = [launch for launch in launches if launch.state == "done"]
            assert measurement.launches == len(done), "it is what its done launches say"
            of_liars = [launch for launch in launches if launch.device_id != third.id]
            assert {launch.reason for launch in of_liars} <= {result_validation.OF_QUARANTINED}


@ON_SQLITE
def test_a_device_that_was_replaced_is_not_waited_for(fleet: Fleet) -> None:
    """It was seen less than a minute ago, but not since its successor enrolled."""
    fleet.device("former").lease(1)
    job = fleet.submit()
    fleet.run(fleet.device("successor"))
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"


@ON_SQLITE
def test_a_device_alone_in_its_class_measures_baselines_alone(fleet: Fleet) -> None:
    device, elsewhere = fleet.device("device"), fleet.device("elsewhere", device_class="another class")
    elsewhere.lease(1)
    job = fleet.submit()
    fleet.run(device)
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "finished"
