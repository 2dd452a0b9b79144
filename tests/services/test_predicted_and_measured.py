"""Predicted against measured of real jobs on a simulated device."""

from __future__ import annotations

import pytest
from databases import ON_SQLITE
from simulated_agent import CLASS, SimulatedAgent, by_work, done
from simulated_service import SMALL, Service

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs import agreement
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.wire.jobs import JobRequest
from edgefront.core.wire.predictions import JobAgreementView

pytestmark = pytest.mark.slow


def by_whim(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
    """Half of the models run at half the speed, which nothing in their shape explains."""
    steady = by_work(architecture, protocol, before)
    assert steady.latency is not None
    assert steady.memory is not None
    return done(steady.latency.samples_ms[0] * (1 + int(architecture.digest[0], 16) % 2), steady.memory.peak_bytes)


def asked(service: Service, agent: SimulatedAgent, **changes: object) -> JobAgreementView:
    value = {
        "space": {"name": "lts-gpt2", "narrow": SMALL},
        "targets": [{"device_class": CLASS}],
        "algorithm": {"settings": {"initial": 5, "batch": 4, "population": 200, "steps": 3}},
        "budget": {"candidates": 25, "refinement": 0.0},
        "seed": 7,
    }
    job = service.submit(JobRequest.model_validate(value | changes))
    service.run(agent)
    with service.database.read() as session:
        known = agreement.read(session, service.user, job.id)
    return known.agreement()


@ON_SQLITE
def test_a_steady_device(service: Service) -> None:
    view = asked(service, SimulatedAgent(service.database, measure=by_work))
    assert view.latency is not None
    assert view.memory is not None
    assert view.latency.measured == view.memory.measured > 0
    assert view.latency.held == sum(span.held for span in view.latency.spans)
    assert len(view.latency.missed) == view.latency.measured - view.latency.held
    assert not view.hard_to_predict
    assert view.sentence.startswith(f"Within the 95 % interval that was predicted before are {view.latency.held} of")


@ON_SQLITE
def test_a_device_that_jumps_says_so_and_where(service: Service) -> None:
    view = asked(service, SimulatedAgent(service.database, measure=by_whim))
    assert view.hard_to_predict
    assert view.latency is not None
    assert view.latency.error > 0.05
    assert view.sentence.startswith("This device is hard to predict. ")
    assert view.latency.measured >= 10
    assert len(view.latency.spans) == 3
    assert "Mean error by predicted latency: " in view.sentence


@ON_SQLITE
def test_a_search_that_predicts_nothing_has_nothing_to_agree_with(service: Service) -> None:
    view = asked(service, SimulatedAgent(service.database, measure=by_work), algorithm={"name": "random"})
    assert (view.latency, view.memory, view.sentence, view.hard_to_predict) == (None, None, "", False)
