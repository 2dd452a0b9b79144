"""Jobs that search by prediction, from submission to their end, with a simulated device."""

from __future__ import annotations

from datetime import timedelta

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_work, done
from simulated_service import SMALL, Service
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.common.units import MB
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services import event_log
from edgefront.core.services.jobs.answers import recommendation
from edgefront.core.services.search import snapshots
from edgefront.core.services.search.advance import advance
from edgefront.core.services.search.computing import ComputeStep
from edgefront.core.store.tables import Candidate, Generation, Target

pytestmark = pytest.mark.slow


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


def test_defaults_are_fixed_when_a_job_is_submitted(service: Service, agent: SimulatedAgent) -> None:
    job = service.create(asked())
    assert (job.request.proxy, job.request.algorithm.name) == ("quality_law", "surrogate")
    encoders = service.create(asked(space={"name": "bert"}, algorithm={}))
    assert (encoders.request.proxy, encoders.request.algorithm.name) == ("decoder_parameters", "surrogate")


def test_it_learns_then_predicts_and_audits(service: Service, agent: SimulatedAgent) -> None:
    service.finish(agent, asked())
    with service.database.read() as session:
        candidates = session.scalars(select(Candidate).order_by(Candidate.number)).all()
        operators = [candidate.operator for candidate in candidates]
        assert operators.count("spread") == 5
        assert {"predicted", "audit"} <= set(operators)
        for candidate in candidates:
            predicted = candidate.predicted or {}
            assert predicted["law"] == "own-data-gpt2"
            assert predicted["perplexity_low"] < predicted["perplexity"] < predicted["perplexity_high"]
            assert ("latency_ms" in predicted) == (candidate.operator in ("predicted", "audit"))
        late = [
            candidate
            for candidate in candidates
            if candidate.operator in ("predicted", "audit") and candidate.latency_ms
        ]
        errors = sorted(abs(candidate.latency_ms / candidate.predicted["latency_ms"] - 1) for candidate in late)  # type: ignore[index, operator]
        assert errors[len(errors) // 2] < 0.2


def test_a_generation_that_is_asked_again_proposes_the_same(service: Service, agent: SimulatedAgent) -> None:
    """Whatever other jobs have measured meanwhile."""
    job = service.submit(asked())
    target_id = job.targets[0].id
    for _ in range(40):
        agent.step(8)
        service.inbox.clear()  # the worker was killed each time before it could ask
        with service.database.write() as session:
            taken = advance(session, target_id, service.database.now(session))
        while taken.more:
            with service.database.write() as session:
                taken = advance(session, target_id, service.database.now(session))
        if taken.compute is not None:
            if taken.compute.number == 1:
                break
            service.inbox.append(target_id)
            service.work()
    step = taken.compute
    assert step is not None
    first = step.compute()
    service.create(asked(seed=8))
    with service.database.write() as session:
        stored = session.scalars(
            select(Generation).where(Generation.target_id == target_id, Generation.number == 1)
        ).one()
        again = snapshots.load_device_data(session, stored.device_data or {})
        assert again.stored == step.device_data.stored  # type: ignore[union-attr]
        assert snapshots.restore(session, target_id, 1) == step.snapshot
    second = ComputeStep(
        step.target_id, 1, step.plan, step.seed, step.snapshot, device_data=again, most=step.most
    ).compute()
    assert first == second


def test_the_best_within_limits_is_better_than_the_stock_model(service: Service, agent: SimulatedAgent) -> None:
    """Between two of its depths, where only other shapes fit."""
    free = {"name": "lts-gpt2", "narrow": {**SMALL, "div": [1, 2, 4]}}
    first = service.finish(agent, asked(space=free))
    with service.database.read() as session:
        depths = select(Candidate).where(Candidate.job_id == first.id, Candidate.role == "baseline")
        _, stock, too_deep = session.scalars(depths.order_by(Candidate.number)).all()
    assert too_deep.latency_ms is not None
    assert too_deep.memory_bytes is not None
    latency_ms = 0.98 * too_deep.latency_ms
    limits = {"latency_ms": latency_ms, "memory_mb": too_deep.memory_bytes / MB}
    targets = [{"device_class": CLASS, "limits": limits}]
    job = service.finish(agent, asked(space=free, goal="best_within_limits", targets=targets, seed=9))
    assert job.targets[0].state == "finished"
    with service.database.read() as session:
        measured = Candidate.job_id == job.id, Candidate.role == "search", Candidate.state == "measured"
        found = session.scalars(select(Candidate).where(*measured)).all()
    assert all((candidate.latency_ms or 0.0) <= latency_ms for candidate in found)
    assert max(candidate.proxy for candidate in found) > stock.proxy


def test_the_search_goes_on_where_further_launches_find_the_best_beyond_the_limits(service: Service) -> None:
    """Launches scatter, so the best is launched again; once the search has ended it proves to be slower."""
    ended = False
    slow: set[str] = set()
    free = {"name": "lts-gpt2", "narrow": {**SMALL, "div": [1, 2, 4]}}
    stock = space("lts-gpt2").narrow(free["narrow"]).baselines()  # type: ignore[arg-type]

    def measure(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        found = by_work(architecture, protocol, before)
        assert found.latency is not None
        if ended and before and not slow and architecture not in stock:
            slow.add(architecture.digest)
        factor = 2.0 if architecture.digest in slow else 0.95 + 0.05 * (before % 3)
        return done(found.latency.samples_ms[0] * factor, found.memory.peak_bytes)  # type: ignore[union-attr]

    agent = SimulatedAgent(service.database, measure=measure)
    limit = by_work(stock[1], MeasurementProtocol(), 0).latency.samples_ms[0] * 1.1  # type: ignore[union-attr]
    targets = [{"device_class": CLASS, "limits": {"latency_ms": limit}}]
    budget = {"candidates": 60, "refinement": 3.0}
    job = service.submit(asked(space=free, goal="best_within_limits", targets=targets, budget=budget))
    for _ in range(400):
        agent.step(1)
        service.work()
        job = service.get(job.id)
        ended = ended or job.targets[0].state == "refining"
        if job.state != "running":
            break
    assert job.targets[0].state == "finished", job.targets[0].note
    with service.database.read() as session:
        log = event_log.read(session, job.id, 0, 10_000)
        known = recommendation.read_inputs(session, service.user, job.id)
    states = [event.data["state"] for event in log if event.kind == "target_state"]
    assert states[:2] == ["searching", "refining"]
    assert states[2:4] == ["searching", "refining"]
    assert "so the search went on" in job.targets[0].note
    best = known.recommendation().recommended
    assert best is not None
    assert best.latency_ms is not None
    assert best.latency_ms <= limit


def test_the_last_launches_of_a_time_are_the_answers(service: Service, agent: SimulatedAgent) -> None:
    """Eight minutes have gone into the launches so far, so that two more fit: the search ends, and they refine."""
    targets = [{"device_class": CLASS, "limits": {"latency_ms": 1.4}}]
    budget = {"candidates": 60, "minutes": 10.0}
    job = service.submit(asked(goal="best_within_limits", targets=targets, budget=budget))
    for _ in range(60):
        agent.step(1)
        service.work()
        if service.get(job.id).targets[0].generation == 0:
            break
    with service.database.write() as session:
        target = session.scalars(select(Target)).one()
        target.started_at = service.database.now(session) - timedelta(minutes=8)
    service.run(agent)
    ended = service.get(job.id).targets[0]
    assert "The search ended: the remaining time is for further launches of the answer." in ended.note
    assert ended.generation == 0
    with service.database.read() as session:
        answer = recommendation.read_inputs(session, service.user, job.id).recommendation()
        searched = session.scalars(select(Candidate).where(Candidate.role == "search")).all()
    assert answer.recommended is not None
    assert answer.recommended.launches > 1
    best = max((row for row in searched if row.on_frontier), key=lambda row: row.proxy)
    again = {row.id for row in searched if row.launches > 1}
    assert again <= {best.id}
