"""Formats of llama.cpp's cache: compared in one job, and leased only to agents that know them."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_size, llama_cpp_facts
from simulated_service import Service, request

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.prediction import comparing
from edgefront.core.services.prediction.fits import Fits

CACHES = ("f32", "f16", "q8_0", "q4_0")


def asked(*protocols: dict[str, Any]) -> JobRequest:
    targets = [
        {"name": f"target {number}", "device_class": CLASS, "protocol": {"runtime": "llamacpp", **protocol}}
        for number, protocol in enumerate(protocols)
    ]
    space = {"name": "llama", "narrow": {"n_layer": [1, 2]}}
    return request(space=space, targets=targets, baseline_layers=[1], budget={"candidates": 3})


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


def test_an_agent_in_between_may_lack_a_format() -> None:
    known = llama_cpp_facts("f32", "f16").model_dump(mode="json")
    protocols = {held: MeasurementProtocol(runtime="llamacpp", kv_cache=held) for held in CACHES}  # type: ignore[arg-type]
    assert {held for held, protocol in protocols.items() if can_run(known, protocol)} == {"f32", "f16"}
