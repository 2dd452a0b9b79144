"""What one device alone says is measured by a second one before a search ends with it, and no vote counts twice."""

from __future__ import annotations

import random
from typing import Any

import pytest
from databases import ON_SQLITE
from dishonest import Device, Fleet, Report, honest, times

from edgefront.core.services.measuring import result_validation
from edgefront.core.store.tables import Device as DeviceRow
from edgefront.core.store.tables import Launch, Measurement
from edgefront.core.wire.agent import LeaseItem

SEARCH = {"name": "lts", "settings": {"iterations": 4, "population": 10}}
CRASHED = {"outcome": "failed", "reason": "crashed", "message": "signal 11", "wall_s": 1.0}
OUT_OF_MEMORY = {"outcome": "infeasible", "reason": "out_of_memory", "message": "no", "wall_s": 1.0}


class Truth:
    """An honest report that keeps the true latencies, by digest."""

    def __init__(self) -> None:
        self.latency_ms: dict[str, float] = {}

    def __call__(self, item: LeaseItem) -> dict[str, Any]:
        return self.times(item, 1.0)

    def times(self, item: LeaseItem, factor: float) -> dict[str, Any]:
        self.latency_ms[item.digest] = honest(item)["latency"]["samples_ms"][0]
        return honest(item, factor)

    def lies(self, frontier: list[dict[str, Any]]) -> list[str]:
        return [
            candidate["digest"]
            for candidate in frontier
            if candidate["latency_ms"] < 0.7 * self.latency_ms[candidate["digest"]]
        ]


def online(fleet: Fleet, *names: str) -> list[Device]:
    devices = [fleet.device(name) for name in names]
    for device in devices:
        device.lease(1)
    return devices


def quarantined(fleet: Fleet, *devices: Device) -> list[str]:
    return [device.name for device in devices if fleet.view(device)["quarantine"] is not None]


def measured_baselines(fleet: Fleet, job: str, *devices: Device) -> set[str]:
    """Their digests."""
    for _ in range(6):
        for device in devices:
            fleet.service.work()
            if fleet.candidates(job, role="search"):
                return {candidate["digest"] for candidate in fleet.candidates(job, role="baseline")}
            device.measure(honest, 3)
    raise AssertionError("no generation was proposed")


def in_turns(fleet: Fleet, *devices: tuple[Device, Report]) -> None:
    for _ in range(60):
        fleet.service.work()
        if not sum(device.measure(report, 4) for device, report in devices):
            return
    raise AssertionError("there is always more to measure")


def finished_frontier(fleet: Fleet, job: str, user: Any = None) -> list[dict[str, Any]]:
    assert (user or fleet.user).get(f"/v1/jobs/{job}").json()["state"] == "finished"
    members = [candidate for candidate in fleet.candidates(job, user) if candidate["on_frontier"]]
    assert members
    return members


@pytest.mark.parametrize("refinement", [0.0, 0.5])
@pytest.mark.parametrize("factor", [1.9, 2.9])
@ON_SQLITE
def test_lies_that_nothing_contradicts_are_found_before_the_search_ends(
    fleet: Fleet, factor: float, refinement: float
) -> None:
    """Too near to the truth to be doubted. A frontier selects them: its points are measured by two devices."""
    liar, first, second = online(fleet, "liar", "first", "second")
    job, truth = fleet.submit(algorithm=SEARCH, budget={"refinement": refinement}), Truth()
    baselines = measured_baselines(fleet, job, first, second, liar)
    in_turns(
        fleet,
        (liar, lambda item: truth.times(item, 1.0 if item.digest in baselines else 1 / factor)),
        (first, truth),
        (second, truth),
    )
    assert truth.lies(finished_frontier(fleet, job)) == []
    assert quarantined(fleet, first, second) == []
    if factor > 2:
        assert quarantined(fleet, liar) == ["liar"]


@ON_SQLITE
def test_devices_that_scatter_are_not_held_to_have_lied(fleet: Fleet) -> None:
    """By a tenth from launch to launch, and one that is a third slower than the others."""
    chance = random.Random(3)
    devices = online(fleet, "first", "second", "slow")
    job = fleet.submit(algorithm=SEARCH)

    def noisy(factor: float) -> Report:
        return lambda item: honest(item, factor * chance.lognormvariate(0.0, 0.1))

    in_turns(fleet, *((device, noisy(1.33 if device is devices[2] else 1.0)) for device in devices))
    finished_frontier(fleet, job)
    assert {candidate["state"] for candidate in fleet.candidates(job)} == {"measured"}
    assert quarantined(fleet, *devices) == []


@ON_SQLITE
def test_a_device_alone_ends_its_search_alone(fleet: Fleet) -> None:
    (device,) = online(fleet, "device")
    job = fleet.submit(algorithm=SEARCH, budget={"refinement": 0})
    fleet.run(device)
    finished_frontier(fleet, job)


@ON_SQLITE
def test_what_a_device_in_quarantine_measured_alone_is_measured_again(fleet: Fleet) -> None:
    liar, other = online(fleet, "liar", "other")
    job, truth = fleet.submit(budget={"refinement": 0}), Truth()
    measured_baselines(fleet, job, other, liar)
    for item in liar.lease(8).items:
        liar.report(item, truth.times(item, 1 / 2.5))
    with fleet.service.database.write() as session:
        session.get_one(DeviceRow, liar.id).quarantine = "caught elsewhere"
    in_turns(fleet, (other, truth))
    assert truth.lies(finished_frontier(fleet, job)) == []
    carol = fleet.service.client("user", "carol")
    theirs = str(fleet.service.submit(carol, budget={"refinement": 0})["id"])
    in_turns(fleet, (other, truth))
    assert truth.lies(finished_frontier(fleet, theirs, carol)) == []


# Votes ---------------------------------------------------------------------------------------------------------------


def ask_for_more(fleet: Fleet, digest: str, count: int) -> None:
    with fleet.service.database.write() as session:
        measurement = session.query(Measurement).filter(Measurement.digest == digest).one()
        target_id = session.query(Launch).filter(Launch.measurement_id == measurement.id).first().target_id  # type: ignore[union-attr]
        for _ in range(count):
            session.add(
                Launch(
                    measurement_id=measurement.id,
                    target_id=target_id,
                    device_key=measurement.device_key,
                    state="wanted",
                    purpose="refinement",
                    reports=[],
                    created_at=fleet.service.later(),
                )
            )


def test_two_that_lie_together_do_not_outvote_four_one_by_one(fleet: Fleet) -> None:
    first, other, *sound = online(fleet, "one", "other", "a", "b", "c", "d")
    job = fleet.submit()
    fleet.service.work()
    fast = times(1 / 20)
    for _ in range(4):
        first.measure(fast, 2)
        other.measure(fast, 2)
        fleet.service.work()
    baseline = fleet.candidates(job, role="baseline")[0]
    assert (baseline["state"], baseline["launches"] > 1) == ("measured", True), "nobody else was asked"
    for device in sound:
        ask_for_more(fleet, baseline["digest"], 1)
        device.measure(honest, 4)
        fleet.service.work()
        assert quarantined(fleet, *sound) == []
    in_turns(fleet, *((device, honest) for device in sound))
    assert quarantined(fleet, *sound) == []
    shown = next(listed for listed in fleet.candidates(job, role="baseline") if listed["digest"] == baseline["digest"])
    assert shown["state"] == "measured"
    assert shown["latency_ms"] == pytest.approx(20 * baseline["latency_ms"])


@pytest.mark.parametrize("true", [1, 2])
@ON_SQLITE
def test_a_true_launch_hides_no_lies(fleet: Fleet, true: int) -> None:
    """A device votes for what at least half of its launches say, and its others are set aside."""
    liar, second, third = online(fleet, "liar", "second", "third")
    job = fleet.submit()
    fleet.service.work()
    made: dict[str, int] = {}

    def some_true(item: LeaseItem) -> dict[str, Any]:
        made[item.digest] = made.get(item.digest, 0) + 1
        return honest(item, 1.0 if made[item.digest] <= true else 1 / 20)

    liar.measure(some_true)
    assert set(made.values()) == {3}
    in_turns(fleet, (second, honest), (third, honest))
    for candidate in fleet.candidates(job, role="baseline"):
        launches = fleet.launches(candidate["id"])
        (honest_ms,) = {
            launch["result"]["latency"]["samples_ms"][0] for launch in launches if launch["device_id"] == second.id
        }
        assert (candidate["state"], candidate["latency_ms"]) == ("measured", honest_ms)
        aside = [launch for launch in launches if launch["state"] == "implausible"]
        assert len([launch for launch in aside if launch["device_id"] == liar.id]) >= 3 - true
    assert quarantined(fleet, liar, second, third) == (["liar"] if true == 1 else [])


@ON_SQLITE
def test_load_does_not_explain_any_factor(fleet: Fleet) -> None:
    """The first device of a class lies, and the second says truthfully that it runs on battery."""
    liar, laptop = online(fleet, "liar", "laptop")
    job, truth = fleet.submit(), Truth()
    for _ in range(12):
        fleet.service.work()
        if fleet.candidates(job, role="search"):
            break
        liar.measure(times(1 / 20))
    in_turns(
        fleet,
        (liar, times(1 / 20)),
        (laptop, lambda item: {**truth(item), "environment": {"conditions": "on battery"}}),
    )
    assert quarantined(fleet, laptop) == []
    by_laptop = [candidate for candidate in fleet.candidates(job) if candidate["digest"] in truth.latency_ms]
    assert by_laptop
    assert not [candidate for candidate in by_laptop if candidate["state"] == "measured" and candidate["on_frontier"]]


# Bad ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [OUT_OF_MEMORY, CRASHED], ids=["infeasible", "crashed"])
@ON_SQLITE
def test_one_device_does_not_end_the_jobs_of_all(fleet: Fleet, lie: dict[str, Any]) -> None:
    """Of a baseline nothing is known yet: a second device has to say so too."""
    broken, *sound = online(fleet, "broken", "first", "second")
    job = fleet.submit()
    for _ in range(4):
        fleet.service.work()
        broken.measure(lambda _: lie)
    in_turns(fleet, (broken, lambda _: lie), *((device, honest) for device in sound))
    finished_frontier(fleet, job)
    assert {candidate["state"] for candidate in fleet.candidates(job)} == {"measured"}
    assert quarantined(fleet, *sound) == []


@ON_SQLITE
def test_what_two_devices_cannot_run_is_not_asked_of_a_third(fleet: Fleet) -> None:
    *both, third = online(fleet, "one", "other", "third")
    job = fleet.submit()
    for _ in range(8):
        fleet.service.work()
        for device in both:
            device.measure(lambda _: OUT_OF_MEMORY)
    view = fleet.user.get(f"/v1/jobs/{job}").json()
    assert view["state"] == "failed"
    assert "None of the" in view["targets"][0]["note"]
    assert third.lease(8).items == ()


@pytest.mark.parametrize("quarantine", [True, False])
@ON_SQLITE
def test_what_failed_on_one_device_is_asked_again_by_a_later_job(fleet: Fleet, quarantine: bool) -> None:
    (broken,) = online(fleet, "broken")
    job = fleet.submit()
    for _ in range(4):
        fleet.service.work()
        broken.measure(lambda _: OUT_OF_MEMORY)
    assert fleet.user.get(f"/v1/jobs/{job}").json()["state"] == "failed"
    if quarantine:
        with fleet.service.database.write() as session:
            session.get_one(DeviceRow, broken.id).quarantine = "caught elsewhere"
    (sound,) = online(fleet, "sound")
    again = fleet.submit()
    fleet.run(sound)
    finished_frontier(fleet, again)


def test_a_baseline_of_one_device_is_confirmed_for_a_later_job(fleet: Fleet) -> None:
    (liar,) = online(fleet, "liar")
    job = fleet.submit()
    fleet.run(liar, times(20.0))
    finished_frontier(fleet, job)
    first, second = online(fleet, "first", "second")
    again = fleet.submit()
    fleet.service.work()
    assert {candidate["state"] for candidate in fleet.candidates(again, role="baseline")} == {"waiting"}
    with fleet.service.database.read() as session:
        assert {
            measurement.reason for measurement in session.query(Measurement) if measurement.state == "unconfirmed"
        } == {result_validation.BASELINE_OF_ONE}
    in_turns(fleet, (first, honest), (second, honest))
    truth = {item["digest"]: item for item in fleet.candidates(again, role="baseline")}
    for candidate in truth.values():
        (true_ms,) = {
            launch["result"]["latency"]["samples_ms"][0]
            for launch in fleet.launches(candidate["id"])
            if launch["device_id"] == second.id
        }
        assert candidate["latency_ms"] == true_ms
    assert quarantined(fleet, liar, first, second) == ["liar"]


def test_launches_that_confirm_are_shared_out(fleet: Fleet) -> None:
    alone, *others = online(fleet, "alone", "first", "second")
    job = fleet.submit(algorithm=SEARCH, budget={"refinement": 0})
    baselines = measured_baselines(fleet, job, alone, *others)
    for _ in range(40):
        fleet.service.work()
        if not alone.measure(honest):
            break
    with fleet.service.database.read() as session:
        confirm = session.query(Launch).filter(Launch.purpose == "confirm", Launch.state == "wanted").all()
        keys = [launch.device_key for launch in confirm]
    assert len(keys) > 1
    assert {keys.count(f"device:{device.id}") for device in others} <= {len(keys) // 2, len(keys) - len(keys) // 2}
    assert len(baselines) > 0
