"""A device whose anchor moves or fails, three times in a row, is quarantined."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from concurrency import at_once
from databases import ON_BOTH
from dishonest import Device, Fleet, Report, crashes, honest, times
from simulated_agent import CLASS

from edgefront.api.docs.examples import example
from edgefront.core.measurement.provider import Provider
from edgefront.core.schemas.agent import LeaseItem
from edgefront.core.services.measuring import anchors
from edgefront.core.services.measuring.result_processing import MAX_MARK
from edgefront.core.services.measuring.stranded import LOST
from edgefront.core.store.tables import Device as Row
from edgefront.core.store.tables import Launch, Lease


class Clock:
    """Half hours that pass, of the rows."""

    def __init__(self, fleet: Fleet, device: Device) -> None:
        self.fleet, self.device = fleet, device
        self.device.lease()  # it is online

    def anchor_is_due(self) -> None:
        with self.fleet.service.database.write() as session:
            row = session.get_one(Row, self.device.id)
            row.enrolled_at -= anchors.EVERY
            if row.reported_at is not None:
                row.reported_at -= anchors.EVERY + timedelta(seconds=1)
            for launch in session.query(Launch).filter(Launch.purpose == "anchor"):
                launch.created_at -= anchors.EVERY + timedelta(seconds=1)
        self.fleet.sweep()


@pytest.fixture
def device(fleet: Fleet) -> Device:
    return fleet.device("board", device_class=CLASS)


@pytest.fixture
def clock(fleet: Fleet, device: Device) -> Clock:
    return Clock(fleet, device)


def test_a_device_measures_its_anchor_every_half_hour(fleet: Fleet, device: Device, clock: Clock) -> None:
    fleet.sweep()
    assert device.lease().items == ()  # it was enrolled just now
    for count in (1, 2):
        clock.anchor_is_due()
        fleet.sweep()
        (item,) = device.lease().items
        assert item.digest == anchors.ARCHITECTURE.digest
        environment = {"clock_mhz": 2400.0, "load_1m": 0.5, "temperature_c": 51}
        receipt = device.report(item, {**honest(item), "environment": environment})
        assert receipt["outcome"] == "accepted"
        shown = fleet.user.get(f"/v1/devices/{device.id}/anchor").json()
        assert len(shown["points"]) == count
        point = shown["points"][-1]
        assert point["latency_ms"] == honest(item)["latency"]["samples_ms"][0]
        assert [point[name] for name in environment] == list(environment.values())
        fleet.sweep()
        assert device.lease().items == ()


@ON_BOTH
def test_a_device_whose_anchor_has_moved_gets_no_more(fleet: Fleet, device: Device, clock: Clock) -> None:
    for factor in (1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0):  # once, and twice in a row, is not enough
        clock.anchor_is_due()
        device.measure(times(factor))
        assert fleet.view(device)["quarantine"] is None
    clock.anchor_is_due()
    device.measure(times(2.0))
    assert "its anchor takes 2.00 times as long as it did, 3 times in a row" in fleet.view(device)["quarantine"]
    fleet.submit()
    assert device.lease().items == ()

    # Its owner says that this is how it is now.
    assert fleet.admin.post("/v1/devices/board/trust").json()["quarantine"] is None
    for _ in range(6):
        clock.anchor_is_due()
        device.measure(times(2.0))
    assert fleet.view(device)["quarantine"] is None


def test_a_device_whose_facts_cannot_be_read_keeps_no_other_from_its_anchor(
    fleet: Fleet, device: Device, clock: Clock
) -> None:
    other = fleet.device("old board", device_class=CLASS)
    Clock(fleet, other)
    with fleet.service.database.write() as session:
        row = session.get_one(Row, other.id)
        row.facts = {"of": "another release"}
        row.enrolled_at -= anchors.EVERY
    clock.anchor_is_due()
    (item,) = device.lease().items
    assert item.digest == anchors.ARCHITECTURE.digest
    assert fleet.user.get(f"/v1/devices/{other.id}/anchor").json()["points"] == []


def test_a_device_whose_anchor_fails_is_quarantined(fleet: Fleet, device: Device, clock: Clock) -> None:
    for _ in range(anchors.MAX_FAILED):
        assert fleet.view(device)["quarantine"] is None
        clock.anchor_is_due()
        device.measure(crashes)
    assert "its anchor failed 3 times: crashed: signal 11" in fleet.view(device)["quarantine"]
    fleet.submit()
    assert device.lease().items == ()
    fleet.admin.post(f"/v1/devices/{device.id}/trust")
    assert device.lease().items


def impossible(item: LeaseItem) -> dict[str, Any]:
    return honest(item, 1e-5)


@ON_BOTH
def test_a_device_whose_anchor_cannot_be_true_is_quarantined(fleet: Fleet, device: Device, clock: Clock) -> None:
    for factor in (1.0, 1.0, 1.0):
        clock.anchor_is_due()
        device.measure(times(factor))
    for _ in range(anchors.MAX_FAILED):
        assert fleet.view(device)["quarantine"] is None
        clock.anchor_is_due()
        device.measure(impossible)
    shown = fleet.view(device)
    assert shown["quarantine"].startswith("its anchor failed 3 times: implausible: ")
    assert "operations are" in shown["quarantine"]
    assert len(fleet.user.get(f"/v1/devices/{device.id}/anchor").json()["points"]) == 3

    # Trusted again, it may fail as often as before.
    fleet.admin.post(f"/v1/devices/{device.id}/trust").raise_for_status()
    clock.anchor_is_due()
    device.measure(impossible)
    assert fleet.view(device)["quarantine"] is None


def test_an_anchor_under_bad_conditions_has_not_moved(fleet: Fleet, device: Device, clock: Clock) -> None:
    for factor, conditions in (*[(1.0, "")] * 3, *[(2.0, "on battery")] * 3, (2.0, ""), (2.0, "")):
        clock.anchor_is_due()
        device.measure(lambda item, f=factor, c=conditions: {**honest(item, f), "environment": {"conditions": c}})
        assert fleet.view(device)["quarantine"] is None


@ON_BOTH
def test_an_agent_that_dies_at_its_anchor_each_time_is_found(fleet: Fleet, device: Device, clock: Clock) -> None:
    for _ in range(anchors.MAX_FAILED):
        assert fleet.view(device)["quarantine"] is None
        clock.anchor_is_due()
        (item,) = device.lease().items
        device.start(item)
        with fleet.service.database.write() as session:
            for lease in session.query(Lease).filter(Lease.ended_at.is_(None)):
                lease.expires_at = lease.created_at
        fleet.sweep()
    assert f"its anchor failed {anchors.MAX_FAILED} times: {LOST}" in fleet.view(device)["quarantine"]


def test_what_an_accelerator_does_not_support_is_no_failure(fleet: Fleet, device: Device, clock: Clock) -> None:
    with_gpu(device, numbers=["float32", "float16"])

    def unsupported(_: LeaseItem) -> dict[str, Any]:
        return {"outcome": "failed", "reason": "unsupported", "message": "no driver", "wall_s": 0.1}

    made = []
    for _ in range(2 * anchors.MAX_FAILED):
        clock.anchor_is_due()
        made.append(device.measure(on("cuda", unsupported)))
    assert made == [2, 2, 2, 2, 1, 1], "two memory methods, two number formats"
    assert fleet.view(device)["quarantine"] is None


def test_a_device_cannot_say_itself_that_it_does_not_support_its_anchor(
    fleet: Fleet, device: Device, clock: Clock
) -> None:
    facts = example("enrol_request")["facts"]
    for protocol in anchors.protocols_for(facts).values():
        facts["extra"][f"unsupported:{protocol.digest[:16]}"] = ""
    facts["extra"]["board"] = "rev 2"
    device.http.post("/v1/leases", json={"wait_s": 0, "facts": facts}).raise_for_status()
    assert fleet.view(device)["facts"]["extra"] == {"board": "rev 2"}
    clock.anchor_is_due()
    assert device.measure() == 1


@ON_BOTH
def test_sweeps_at_one_instant_make_one_anchor(fleet: Fleet, device: Device, clock: Clock) -> None:
    database = fleet.service.database
    for _ in range(3):
        with database.write() as session:
            session.get_one(Row, device.id).enrolled_at -= 2 * anchors.EVERY
            for launch in session.query(Launch).filter(Launch.purpose == "anchor"):
                launch.created_at -= 2 * anchors.EVERY
            now = database.now(session)

        def sweep_parts(now: datetime = now) -> None:
            for _ in range(3):
                with database.write() as session:
                    anchors.request(session, now)

        at_once(*[sweep_parts] * 3)
        assert device.measure() == 1


@ON_BOTH
def test_anchors_by_another_protocol_are_another_history(fleet: Fleet, device: Device, clock: Clock) -> None:
    for _ in range(3):
        clock.anchor_is_due()
        device.measure()
    facts = example("enrol_request")["facts"]
    facts["runtimes"][0]["memory_methods"] = ["resident"]
    device.http.post("/v1/leases", json={"wait_s": 0, "facts": facts}).raise_for_status()

    def resident(item: LeaseItem) -> dict[str, Any]:
        result = honest(item, 2.0)
        assert item.protocol.memory == "resident"
        return {**result, "memory": {**result["memory"], "method": "resident"}}

    clock.anchor_is_due()
    assert device.measure(resident) == 1
    (point,) = fleet.user.get(f"/v1/devices/{device.id}/anchor").json()["points"]

    # Nor are those that a job requested of the same model, on the same device.
    with fleet.service.database.write() as session:
        anchor = session.get_one(Launch, point["launch_id"])
        for index in range(3):
            session.add(
                Launch(
                    measurement_id=anchor.measurement_id,
                    device_key=anchor.device_key,
                    device_id=device.id,
                    state="done",
                    purpose="first",
                    result={**anchor.result, "latency": {"warmup_ms": [], "samples_ms": [0.1]}},
                    created_at=anchor.created_at,
                    finished_at=anchor.finished_at - timedelta(seconds=10 + index),
                )
            )
    for _ in range(4):
        clock.anchor_is_due()
        device.measure(resident)
    assert fleet.view(device)["quarantine"] is None
    assert len(fleet.user.get(f"/v1/devices/{device.id}/anchor").json()["points"]) == 5


def with_gpu(device: Device, numbers: Sequence[str] = ("float32",)) -> None:
    """The device says that it has an NVIDIA GPU, from now on."""
    facts = example("enrol_request")["facts"]
    facts["runtimes"][0] |= {
        "providers": ["cpu", "cuda", "tensorrt"],
        "memory_methods": ["anonymous", "device"],
        "numbers": {"cpu": ["float32"], "cuda": list(numbers)},
    }
    device.http.post("/v1/leases", json={"wait_s": 0, "max_items": 1, "facts": facts}).raise_for_status()


def on(provider: str, report: Report, otherwise: Report = honest) -> Report:
    """What `report` says of launches on this provider, and `otherwise` of the others."""

    def choose(item: LeaseItem) -> dict[str, Any]:
        result = (report if item.protocol.provider == provider else otherwise)(item)
        if result["outcome"] == "done":
            result["memory"]["method"] = item.protocol.memory
        return result

    return choose


@ON_BOTH
def test_an_accelerator_has_an_anchor_of_its_own(fleet: Fleet, device: Device, clock: Clock) -> None:
    with_gpu(device)
    for factor in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0):
        assert fleet.view(device)["quarantine"] is None
        clock.anchor_is_due()
        assert device.measure(on("cuda", times(factor))) == 2
    assert fleet.view(device)["quarantine"].startswith("on cuda its anchor takes 2.00 times as long")
    points = fleet.user.get(f"/v1/devices/{device.id}/anchor").json()["points"]
    assert sorted(point["provider"] for point in points) == ["cpu"] * 6 + ["cuda"] * 6


@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [
        ({"onnxruntime": ["cpu", "xnnpack"]}, {"cpu": ("onnxruntime", "cpu", "float32", "anonymous")}),
        ({"llamacpp": ["cpu"]}, {"cpu": ("llamacpp", "cpu", "float32", "anonymous")}),
        (
            {"openvino": ["cpu", "npu"], "pytorch": ["cpu", "cuda"], "llamacpp": ["cpu", "cuda0"]},
            {
                "cpu": ("pytorch", "cpu", "float32", "anonymous"),
                "cuda": ("pytorch", "cuda", "float32", "allocator"),
                "npu": ("openvino", "npu", "float16", "anonymous"),
            },
        ),
        ({"onnxruntime": ["no such thing!", "tensorrt"]}, {}),
        ({}, {}),
    ],
    ids=["a processor", "llama.cpp alone", "a GPU and an NPU", "names that no protocol has", "nothing"],
)
def test_what_an_anchor_is_measured_with(runtimes: dict[str, list[str]], expected: dict[str, tuple[str, ...]]) -> None:
    facts = example("enrol_request")["facts"]
    facts["runtimes"] = [
        {
            "runtime": runtime,
            "version": "1",
            "providers": providers,
            "memory_methods": ["resident", "anonymous", "allocator"],
            "kv_caches": ["f16"],
            "numbers": {
                provider: ["float16"] if provider == "npu" else ["float16", "float32"] for provider in providers
            },
        }
        for runtime, providers in runtimes.items()
    ]
    protocols = anchors.protocols_for(facts)
    assert {hardware: (p.runtime, p.provider, p.dtype, p.memory) for hardware, p in protocols.items()} == expected
    assert all(Provider(p.provider).hardware == hardware for hardware, p in protocols.items())


def test_what_an_agent_says_of_its_conditions_is_a_short_mark(fleet: Fleet, device: Device, clock: Clock) -> None:
    clock.anchor_is_due()
    device.measure(lambda item: {**honest(item), "environment": {"conditions": "loud " * 1000}})
    (point,) = fleet.user.get(f"/v1/devices/{device.id}/anchor").json()["points"]
    assert point["mark"] == ("loud " * 1000)[:MAX_MARK]
