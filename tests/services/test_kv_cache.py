"""Formats of llama.cpp's cache: compared in one job, and leased only to agents that know them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from databases import ON_SQLITE
from simulated_agent import CLASS, SimulatedAgent, by_size, facts, llama_cpp_facts
from simulated_service import Service, request

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.jobs.frontier import frontier_view
from edgefront.core.services.prediction import comparing
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.wire.agent import LeaseItem
from edgefront.core.wire.jobs import JobRequest

CACHES = ("f32", "f16", "q8_0", "q4_0")


def asked(*protocols: dict[str, Any]) -> JobRequest:
    targets = [
        {"name": f"target {number}", "device_class": CLASS, "protocol": {"runtime": "llamacpp", **protocol}}
        for number, protocol in enumerate(protocols)
    ]
    space = {"name": "llama", "narrow": {"n_layer": [1, 2]}}
    return request(space=space, targets=targets, baseline_layers=[1], budget={"candidates": 3})


@ON_SQLITE
def test_targets_of_one_job_compare_formats(service: Service) -> None:
    """Each has its own protocol, frontier and figures; what costs less memory is seen to."""
    taken = dict(zip(CACHES, (1.0, 0.8, 0.7, 0.6), strict=True))

    def measure(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> Any:
        result = by_size()(architecture, protocol, before)
        assert result.memory is not None
        peak = int(result.memory.peak_bytes * (1 + taken[str(protocol.kv_cache)]))
        return result.model_copy(update={"memory": result.memory.model_copy(update={"peak_bytes": peak})})

    agent = SimulatedAgent(service.database, measure, device_facts=llama_cpp_facts(*CACHES))
    job = service.finish(agent, asked(*({"kv_cache": held} for held in CACHES)))
    assert [target.protocol.kv_cache for target in job.targets] == list(CACHES)
    assert len({target.protocol.digest for target in job.targets}) == 4
    for target in job.targets:
        with service.database.read() as session:
            points = frontier_view(session, service.user, job.id, target.id).points
        assert {point.target_id for point in points} == {target.id}
    found = comparing.compare(service.database, service.user, [target.id for target in job.targets], [], Fits())
    assert "kv cache" in found.note
    ratios = [target.memory_ratio for target in found.targets]
    assert ratios == pytest.approx([(1 + taken[held]) / 2 for held in CACHES], rel=0.01)


@ON_SQLITE
def test_an_agent_of_an_earlier_release_gets_only_the_cache_that_it_has(service: Service) -> None:
    SimulatedAgent(service.database, device_facts=llama_cpp_facts())
    for wrong in ({}, {"weights": "q8_0"}, {"kv_cache": "q8_0"}, {"dtype": "float16", "kv_cache": "f32"}):
        with pytest.raises(InvalidInput, match="its agent is of an earlier release: update the agent") as caught:
            service.create(asked(wrong))
        assert caught.value.field == "targets.0.protocol.kv_cache"
    for held in ({"kv_cache": "f32"}, {"dtype": "float16"}, {"weights": "q8_0", "kv_cache": "f32"}):
        assert service.submit(asked(held)).state == "running"


@ON_SQLITE
@pytest.mark.parametrize(
    ("fields", "sent"),
    [({}, "f16"), ({"kv_cache": "q8_0"}, "q8_0"), ({"kv_cache": "f32"}, None), ({"dtype": "float16"}, None)],
)
def test_what_every_agent_has_is_leased_as_it_always_was(
    service: Service, fields: dict[str, Any], sent: str | None
) -> None:
    """A protocol without the field means the same to agents of every release, which refuse fields unknown to them."""
    agent = SimulatedAgent(service.database, device_facts=llama_cpp_facts(*CACHES))
    job = service.submit(asked(fields))
    (item,) = json.loads(agent.lease(1).as_json())["items"]
    assert item["protocol"].get("kv_cache") == sent
    assert LeaseItem.model_validate(item).protocol.digest == job.targets[0].protocol.digest


def test_an_agent_in_between_may_lack_a_format() -> None:
    known = llama_cpp_facts("f32", "f16").model_dump(mode="json")
    protocols = {held: MeasurementProtocol(runtime="llamacpp", kv_cache=held) for held in CACHES}  # type: ignore[arg-type]
    assert {held for held, protocol in protocols.items() if can_run(known, protocol)} == {"f32", "f16"}


def test_agents_without_llama_cpp_say_nothing_new() -> None:
    assert not any("kv_caches" in runtime for runtime in facts().model_dump(mode="json")["runtimes"])
