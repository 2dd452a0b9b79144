"""Limits that no model of a space can meet are refused as far as that is known, and say what would be right."""

from __future__ import annotations

import re
from functools import partial

import pytest
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent, by_size
from simulated_service import SMALL, Service, request

from edgefront.core.architectures.catalogue import space, spaces
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.units import MB
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import AddedTargetRequest, JobRequest, Limits
from edgefront.core.search.proposals import smallest
from edgefront.core.services.jobs.lifecycle import extend_job
from edgefront.core.services.jobs.resolve import resolve
from edgefront.core.services.prediction.estimates import check_limits, estimate
from edgefront.core.services.prediction.fits import Fits


def limited(**limits: float) -> JobRequest:
    return request(targets=[{"device_class": CLASS, "limits": limits}])


def check(service: Service, wanted: JobRequest) -> None:
    check_limits(service.database, service.user, wanted, Fits())


def test_a_latency_in_seconds_is_refused_by_what_the_device_takes(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    check(service, limited(latency_ms=0.003))  # nothing is known yet: the job finds out
    service.submit(request(budget={"refinement": 0.0}))
    service.run(agent)
    with pytest.raises(InvalidInput) as raised:
        check(service, limited(latency_ms=0.003))
    assert raised.value.field == "targets.0.limits.latency_ms"
    assert "the quickest is predicted to take" in raised.value.detail
    assert raised.value.detail.endswith("if it was meant in seconds, it is 3 ms")
    allowed = re.fullmatch(r"at least ([\d.]+) ms", raised.value.allowed)
    assert allowed is not None
    check(service, limited(latency_ms=float(allowed[1])))
    with pytest.raises(InvalidInput):
        check(service, limited(latency_ms=0.97 * float(allowed[1])))
    with pytest.raises(InvalidInput) as raised:
        check(service, limited(latency_ms=1e-9))
    assert "seconds" not in raised.value.detail
    for fine in (1.5, 3.0, 1e6):
        check(service, limited(latency_ms=fine))
    (refusal,) = estimate(service.database, service.user, limited(latency_ms=0.003), Fits()).refusals
    assert (refusal.field, refusal.value) == ("targets.0.limits.latency_ms", 0.003)
    check(service, limited(memory_mb=500))
    unknown = request(targets=[{"device_class": "elsewhere", "limits": {"latency_ms": 0.003}}])
    check(service, unknown)  # its submission says what is wrong


@ON_BOTH
def test_a_memory_in_bytes_is_refused_by_what_the_device_has(service: Service) -> None:
    SimulatedAgent(service.database, by_size())
    with pytest.raises(InvalidInput) as raised:
        check(service, limited(memory_mb=300e6))
    assert raised.value.field == "targets.0.limits.memory_mb"
    assert raised.value.detail.endswith(
        f"memory_mb 300000000 is no limit: {CLASS!r} has 8590 MB of memory; if it was meant in bytes, it is 300 MB"
    )
    assert raised.value.allowed == "MB, at most about 8590"
    (refusal,) = estimate(service.database, service.user, limited(memory_mb=300e6), Fits()).refusals
    assert (refusal.field, refusal.value) == ("targets.0.limits.memory_mb", 300e6)
    with pytest.raises(InvalidInput) as raised:
        check(service, limited(memory_mb=1e14))
    assert "bytes" not in raised.value.detail
    check(service, limited(memory_mb=16000))  # above what it has, and harmless


def test_a_target_is_not_added_with_a_latency_out_of_its_reach(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = service.finish(agent, request(budget={"refinement": 0.0}))
    asked = AddedTargetRequest(device=agent.name, limits=Limits(latency_ms=0.003))
    validate_limits = partial(check_limits, service.database, service.user, fits=Fits())
    extend_job(service.database, service.user, job.id, asked, validate_limits)  # nothing was measured on it yet
    service.run(agent)
    again = asked.model_copy(update={"protocol": MeasurementProtocol(precision=0.5), "device": None})
    again = again.model_copy(update={"device_class": CLASS})
    with pytest.raises(InvalidInput) as raised:
        extend_job(service.database, service.user, job.id, again, validate_limits)
    assert raised.value.field == "limits.latency_ms"
    assert raised.value.detail.startswith("limits.latency_ms 0.003 is below every model of lts-gpt2")


def test_a_memory_below_the_smallest_model_names_the_smallest(service: Service) -> None:
    with pytest.raises(InvalidInput) as raised:
        resolve(service.database, service.user, limited(memory_mb=5)).checked()
    assert raised.value.field == "targets.0.limits.memory_mb"
    least = costs(smallest(space("lts-gpt2").narrow(SMALL), weights)).weight_bytes / MB
    assert f"the smallest {least:.1f} MB" in raised.value.detail
    assert raised.value.extra["allowed"] == f"more than {least:.1f} MB, or another space"


def weights(architectures: object) -> list[int]:
    return [costs(architecture).weight_bytes for architecture in architectures]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(spaces()))
def test_nothing_in_a_space_is_smaller_than_its_smallest(name: str) -> None:
    import numpy as np

    whole: SearchSpace = spaces()[name]
    least = smallest(whole, weights)
    assert whole.contains(least)
    rng = np.random.default_rng(1)
    drawn = [whole.architecture(whole.sample(rng)) for _ in range(30)]
    assert weights([least])[0] <= min(weights(drawn))
