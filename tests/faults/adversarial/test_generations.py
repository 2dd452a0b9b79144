"""A generation is reported by several times and an energy: each is held against what is possible, and the others."""

from __future__ import annotations

from typing import Any

import pytest
from dishonest import Device, Fleet, result
from simulated_agent import CLASS

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.passes import generation_passes
from edgefront.core.schemas.agent import LeaseItem

PROTOCOL = {"mode": "generate", "sequence_length": 32, "new_tokens": 8}
FURTHER = 7


def submit(fleet: Fleet, latency: str = "total", **changes: Any) -> str:
    return fleet.submit(targets=[{"device_class": CLASS, "protocol": {**PROTOCOL, "latency": latency}}], **changes)


def times(item: LeaseItem) -> tuple[float, float]:
    """What an honest device takes to the first token, and for each further one (ms)."""
    prompt, token = generation_passes(Architecture.parse(item.architecture), item.protocol)
    return prompt.flops / 5e6, token.flops / 2e6


def generated(item: LeaseItem, first: float, token: float, total: float | None = None, **more: Any) -> dict[str, Any]:
    total = first + FURTHER * token if total is None else total
    made = {"first_token_ms": [first] * 5, "token_ms": [token] * 5, "total_ms": [total] * 5, **more}
    latency = {"first_token": first, "token": token, "total": total}[item.protocol.latency]
    weights = generation_passes(Architecture.parse(item.architecture), item.protocol)[0].weight_bytes
    return result(latency, int(weights * 1.2), generation=made)


def honest(item: LeaseItem) -> dict[str, Any]:
    return generated(item, *times(item), energy_token_mj=2.0)


def false_first_token(item: LeaseItem) -> dict[str, Any]:
    """The total, and so the latency, is true."""
    first, token = times(item)
    return generated(item, first / 5, token, first + FURTHER * token)


def false_token(item: LeaseItem) -> dict[str, Any]:
    first, token = times(item)
    return generated(item, first, token / 5, first + FURTHER * token)


def prompt_in_no_time(item: LeaseItem) -> dict[str, Any]:
    """The times add up: what the prompt did not take, the further tokens did."""
    first, token = times(item)
    return generated(item, first * 1e-3, token + first * (1 - 1e-3) / FURTHER)


def tokens_in_no_time(item: LeaseItem) -> dict[str, Any]:
    first, token = times(item)
    return generated(item, first + FURTHER * token * (1 - 1e-4), token * 1e-4)


def another_latency(item: LeaseItem) -> dict[str, Any]:
    result = honest(item)
    result["latency"]["samples_ms"] = [sample_ms / 3 for sample_ms in result["latency"]["samples_ms"]]
    return result


def longer_than_its_lease(item: LeaseItem) -> dict[str, Any]:
    """Though the latency, where it is the first token, is short."""
    first, _ = times(item)
    return generated(item, first, 20_000.0)


def energy(millijoules: float) -> Any:
    return lambda item: generated(item, *times(item), energy_token_mj=millijoules)


LIES = {
    "first token": (false_first_token, "but the reported time of the generation is"),
    "further token": (false_token, "but the reported time of the generation is"),
    "prompt": (prompt_in_no_time, "ms (time to the first token) for"),
    "tokens": (tokens_in_no_time, "ms (time for each further token) for"),
    "latency": (another_latency, "the latency must equal"),
    "lease": (longer_than_its_lease, "was leased for"),
    "much energy": (energy(1e9), "device draws at most"),
    "no energy": (energy(1e-12), "takes at least"),
}


def launch_of(fleet: Fleet, job: str, item: LeaseItem) -> tuple[dict[str, Any], dict[str, Any]]:
    """The candidate of a leased launch, and the launch."""
    digest = Architecture.parse(item.architecture).digest
    (candidate,) = [listed for listed in fleet.candidates(job) if listed["digest"] == digest]
    launches = {launch["id"]: launch for launch in fleet.launches(candidate["id"])}
    return candidate, launches[item.launch_id]


@pytest.mark.parametrize("latency", ["total", "first_token"])
@pytest.mark.parametrize(("lie", "why"), LIES.values(), ids=LIES)
def test_no_time_of_a_generation_can_be_made_up(fleet: Fleet, lie: Any, why: str, latency: str) -> None:
    liar = fleet.device("liar")
    job = submit(fleet, latency)
    item = liar.lease(1).items[0]
    assert liar.report(item, lie(item))["outcome"] == "accepted"
    candidate, launch = launch_of(fleet, job, item)
    assert (candidate["state"], candidate["first_token_ms"], candidate["on_frontier"]) == ("waiting", None, False)
    assert launch["state"] == "implausible"
    assert launch["reason"].startswith("implausible: ")
    assert why in launch["reason"]


@pytest.mark.parametrize("latency", ["total", "first_token", "token"])
def test_what_an_honest_device_generates_is_believed(fleet: Fleet, latency: str) -> None:
    """Also where its agent rounds to a microsecond."""
    device = fleet.device("device")
    job = submit(fleet, latency)
    exact, rounded = device.lease(2).items
    device.report(exact, honest(exact))
    first, token = times(rounded)
    total = round(first + FURTHER * token, 3)
    device.report(rounded, generated(rounded, round(first, 3), round(token, 3), total))
    for item in (exact, rounded):
        candidate, launch = launch_of(fleet, job, item)
        assert (candidate["state"], launch["state"]) == ("measured", "done"), launch["reason"]
        assert candidate["first_token_ms"] == pytest.approx(times(item)[0], abs=1e-3)
    assert fleet.view(device)["quarantine"] is None


def test_as_many_times_as_samples(fleet: Fleet) -> None:
    device: Device = fleet.device("device")
    submit(fleet)
    item = device.lease(1).items[0]
    result = honest(item)
    result["latency"]["samples_ms"] = result["latency"]["samples_ms"][:3]
    assert device.send(item, result).json()["field"] == "reports.0.result"
    lacking = honest(item)
    del lacking["generation"]
    assert device.send(item, lacking).json()["field"] == "reports.0.result.generation"
