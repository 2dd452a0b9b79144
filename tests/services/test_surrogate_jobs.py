"""Jobs that search by prediction, from submission to their end, with a simulated device."""

from __future__ import annotations

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_work
from simulated_service import SMALL, Service
from sqlalchemy import select

from edgefront.core.services.search import device_data, snapshots
from edgefront.core.services.search.advance import advance
from edgefront.core.services.search.computing import ComputeStep
from edgefront.core.store.tables import Candidate, Generation
from edgefront.core.units import MIB
from edgefront.core.wire.jobs import JobRequest, JobView


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, measure=by_work)


def asked(**changes: object) -> JobRequest:
    value = {
        "space": {"name": "lts-gpt2", "narrow": SMALL},
        "targets": [{"device_class": CLASS}],
        "algorithm": {"settings": {"initial": 5, "batch": 3, "population": 200, "steps": 3}},
        "budget": {"candidates": 14, "refinement": 0.0},
        "seed": 7,
    }
    return JobRequest.model_validate(value | changes)


def finished(service: Service, agent: SimulatedAgent, request: JobRequest) -> JobView:
    job = service.submit(request)
    service.run(agent)
    return service.get(job.id)


def test_defaults_are_fixed_when_a_job_is_submitted(service: Service, agent: SimulatedAgent) -> None:
    job = service.create(asked())
    assert (job.request.proxy, job.request.algorithm.name) == ("quality_law", "surrogate")
    encoders = service.create(asked(space={"name": "bert"}, algorithm={}))
    assert (encoders.request.proxy, encoders.request.algorithm.name) == ("decoder_parameters", "surrogate")
    by_gradients = service.create(asked(proxy="grad_norm", algorithm={}))
    assert by_gradients.request.algorithm.name == "lts"


def test_it_learns_then_predicts_and_audits(service: Service, agent: SimulatedAgent) -> None:
    job = finished(service, agent, asked())
    assert job.targets[0].state == "finished", job.targets[0].note
    with service.database.read() as session:
        candidates = session.scalars(select(Candidate).order_by(Candidate.number)).all()
        operators = [one.operator for one in candidates]
        assert operators.count("spread") == 5
        assert {"predicted", "audit"} <= set(operators)
        for one in candidates:
            told = one.predicted or {}
            assert told["law"] == "lts-gpt2-wikitext103"
            assert told["perplexity_low"] < told["perplexity"] < told["perplexity_high"]
            assert ("latency_ms" in told) == (one.operator in ("predicted", "audit"))
        late = [one for one in candidates if one.operator in ("predicted", "audit") and one.latency_ms]
        errors = sorted(abs(one.latency_ms / one.predicted["latency_ms"] - 1) for one in late)  # type: ignore[index, operator]
        assert errors[len(errors) // 2] < 0.2


def test_a_generation_that_is_asked_again_proposes_the_same(service: Service, agent: SimulatedAgent) -> None:
    """Whatever other jobs have measured meanwhile."""
    job = service.submit(asked())
    target_id = job.targets[0].id
    for _ in range(40):
        agent.step(8)
        service.inbox.clear()  # the worker was killed each time before it could ask
        with service.database.write() as session:
            step = advance(session, target_id, service.database.now(session))
        while step is True:
            with service.database.write() as session:
                step = advance(session, target_id, service.database.now(session))
        if isinstance(step, ComputeStep):
            if step.number == 1:
                break
            service.inbox.append(target_id)
            with service.database.write() as session:
                session.query(Generation).update({"claimed_until": None})
            service.work()
    assert isinstance(step, ComputeStep)
    first = step.compute()
    service.create(asked(seed=8))
    with service.database.write() as session:
        session.query(Generation).update({"claimed_until": None})
        stored = session.scalars(
            select(Generation).where(Generation.target_id == target_id, Generation.number == 1)
        ).one()
        again = device_data.load(session, stored.device_data or {})
        assert again.stored == step.device_data.stored  # type: ignore[union-attr]
        assert snapshots.restore(session, target_id, 1) == step.snapshot
    second = ComputeStep(
        step.target_id, 1, step.plan, step.seed, step.proxy_data, step.snapshot, device_data=again, most=step.most
    ).compute()
    assert [one.architecture.digest for one in first.proposed] == [one.architecture.digest for one in second.proposed]  # type: ignore[union-attr]


def test_a_second_job_learns_from_the_first(service: Service, agent: SimulatedAgent) -> None:
    finished(service, agent, asked())
    second = finished(service, agent, asked(seed=8))
    with service.database.read() as session:
        operators = session.scalars(
            select(Candidate.operator).where(Candidate.job_id == second.id, Candidate.role == "search")
        ).all()
    assert "spread" not in operators


def test_the_best_within_limits_is_better_than_the_stock_model(service: Service, agent: SimulatedAgent) -> None:
    """Between two of its depths, where only other shapes fit."""
    free = {"name": "lts-gpt2", "narrow": {**SMALL, "div": [1, 2, 4]}}
    first = finished(service, agent, asked(space=free))
    with service.database.read() as session:
        depths = select(Candidate).where(Candidate.job_id == first.id, Candidate.role == "baseline")
        _, stock, too_deep = session.scalars(depths.order_by(Candidate.number)).all()
    assert too_deep.latency_ms is not None
    assert too_deep.memory_bytes is not None
    latency_ms = 0.98 * too_deep.latency_ms
    limits = {"latency_ms": latency_ms, "memory_mb": too_deep.memory_bytes / MIB}
    targets = [{"device_class": CLASS, "limits": limits}]
    job = finished(service, agent, asked(space=free, goal="best_within_limits", targets=targets, seed=9))
    assert job.targets[0].state == "finished"
    with service.database.read() as session:
        measured = Candidate.job_id == job.id, Candidate.role == "search", Candidate.state == "measured"
        found = session.scalars(select(Candidate).where(*measured)).all()
    assert all((one.latency_ms or 0.0) <= latency_ms for one in found)
    assert max(one.proxy for one in found) > stock.proxy
