"""What a job would take, before it is submitted, against what it took."""

from __future__ import annotations

import pytest
from databases import ON_BOTH
from job_rows import candidates, count
from simulated_agent import CLASS, SimulatedAgent, by_work
from simulated_service import SMALL, Service, request
from sqlalchemy import select

from edgefront.core.common.errors import EdgefrontError
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.schemas.predictions import JobEstimate
from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.store.tables import Event, Job


def ask(service: Service, asked: JobRequest) -> JobEstimate:
    return estimate(service.database, service.user, asked, Fits())


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, by_work)


def test_what_is_expected_is_what_it_takes(service: Service, agent: SimulatedAgent) -> None:
    asked = request(budget={"refinement": 0.0})
    found = ask(service, asked)
    assert found.refusals == ()
    assert count(service, Job) == 0
    (target,) = found.targets
    assert (target.baseline_launches, target.candidates.expected, target.seconds_from) == (9, 18, "unknown")
    assert target.minutes is None
    assert target.stock == ()  # nothing was measured that it could be predicted from
    job = service.submit(asked)
    assert service.run(agent) == found.launches.expected == found.launches.at_most
    assert service.get(job.id).targets[0].candidates == found.candidates.expected
    with service.database.read() as session:
        events = session.scalars(select(Event.data)).all()
    assert sum(len(str(data)) for data in events) == pytest.approx(found.event_bytes.expected, rel=0.4)


def test_what_is_known_is_not_launched_again_and_tells_the_pace(service: Service, agent: SimulatedAgent) -> None:
    first = service.finish(agent, request(budget={"refinement": 0.0}))
    again = ask(service, request(budget={"refinement": 0.0}))
    (target,) = again.targets
    baselines = sorted(candidates(service, first.id, "baseline"), key=lambda row: row.decoder_parameters)
    assert target.baseline_launches == 0
    assert target.seconds_from == "predicted"
    assert target.seconds_per_launch == pytest.approx(0.3, abs=0.2)  # 1 s of which .7 s were measured, and short passes
    assert target.minutes == pytest.approx(18 * (target.seconds_per_launch or 0) / 60)
    small, large = target.stock
    assert (small.name, large.name) == ("1 layer", "3 layers")
    assert small.latency_ms < large.latency_ms
    assert small.memory_bytes < large.memory_bytes
    for parts, row in zip(target.stock, (baselines[0], baselines[-1]), strict=True):
        assert parts.latency_low_ms <= row.latency_ms <= parts.latency_high_ms
        assert parts.memory_bytes == pytest.approx(row.memory_bytes, rel=0.05)
    longer = {"protocol": {"sequence_length": 512}, "device_class": CLASS}
    other = ask(service, request(targets=[longer], budget={"refinement": 0.0})).targets[0]
    assert other.seconds_from == "flops"
    assert (other.seconds_per_launch or 0) > (target.seconds_per_launch or 0)
    twice = ask(service, request(targets=[longer, longer | {"name": "b"}], budget={"refinement": 0.0}))
    assert twice.minutes == pytest.approx(2 * (other.minutes or 0))


def test_a_search_by_prediction_is_expected_to_end_by_itself(service: Service, agent: SimulatedAgent) -> None:
    asked = JobRequest.model_validate({"targets": [{"device_class": CLASS}], "budget": {"candidates": 200}})
    found = ask(service, asked)
    assert found.request.proxy == "quality_law"
    (target,) = found.targets
    assert (target.candidates.expected, target.candidates.at_most) == (30, 200)
    assert target.refinements.at_most == 100


def test_everything_that_would_be_refused_is_listed(service: Service, agent: SimulatedAgent) -> None:
    wrong = request(
        targets=[
            {"device_class": CLASS, "protocol": {"threads": 64}},
            {"device_class": "fridge"},
            {"device_class": CLASS, "limits": {"memory_mb": 0.001}},
        ],
        algorithm={"name": "lts", "settings": {"population": "many"}},
        parameters={"min_decoder": 10, "max_decoder": 5},
    )
    found = ask(service, wrong)
    fields = [refusal.field for refusal in found.refusals]
    assert {"targets.0.protocol.threads", "targets.1.device_class"} <= set(fields)
    assert "algorithm.settings.population" in fields
    assert len(fields) == len(set(fields))
    assert found.targets == ()
    with pytest.raises(EdgefrontError) as first:
        service.create(wrong)
    assert first.value.detail == found.refusals[0].detail
    space = ask(service, request(space={"name": "lts-gpt2", "narrow": {**SMALL, "n_layer": [99]}}))
    assert [refusal.field for refusal in space.refusals] == ["space.narrow.n_layer"]


@ON_BOTH
def test_one_wrong_target_leaves_the_estimate_of_the_others(service: Service, agent: SimulatedAgent) -> None:
    found = ask(service, request(targets=[{"device_class": "fridge"}, {"device_class": CLASS}]))
    assert [refusal.field for refusal in found.refusals] == ["targets.0.device_class"]
    assert [target.device for target in found.targets] == [CLASS]
