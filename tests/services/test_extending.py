"""A device that is added to a job: it measures few of the job's candidates, and those that matter there."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent, by_work
from simulated_service import Service, any_limits, request
from sqlalchemy import select

from edgefront.core.common.errors import Conflict, InvalidInput, NotFound
from edgefront.core.schemas.jobs import AddedTargetRequest, JobRequest, JobView
from edgefront.core.services.jobs.answers import recommendation
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.jobs.lifecycle import extend_job
from edgefront.core.services.jobs.resolved import SearchPlan
from edgefront.core.store.tables import Candidate, Target

pytestmark = pytest.mark.slow

TABLET = "simulated tablet"


@pytest.fixture
def board(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, by_work)


@pytest.fixture
def tablet(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, by_work, device_class=TABLET)


def extend(service: Service, job_id: str, **asked: Any) -> JobView:
    value = {"device_class": TABLET} | asked
    return extend_job(service.database, service.user, job_id, AddedTargetRequest.model_validate(value), any_limits)


def asked(**changes: Any) -> JobRequest:
    algorithm = {"name": "lts", "settings": {"iterations": 4, "population": 16}}
    return request(budget={"refinement": 0.0}, algorithm=algorithm, **changes)


def candidates(service: Service, target_id: str, **having: Any) -> list[Candidate]:
    with service.database.read() as session:
        return list(session.scalars(select(Candidate).filter_by(target_id=target_id, **having)).all())


@ON_BOTH
def test_it_measures_few_and_comes_to_the_same_frontier(
    service: Service, board: SimulatedAgent, tablet: SimulatedAgent
) -> None:
    """The tablet is as fast as the board, so the job's own frontier says what it should find."""
    job = service.finish(board, asked())
    running = extend(service, job.id)
    assert running.state == "running"
    assert running.targets[1].device == TABLET
    assert running.targets[1].protocol == job.targets[0].protocol
    service.run(tablet)
    done = service.get(job.id)
    assert done.state == "finished", done
    first, added = done.targets
    assert "predicted" in added.note
    assert added.state == "finished"
    known = {candidate.digest for candidate in candidates(service, first.id)}
    chosen = candidates(service, added.id, role="search")
    assert {candidate.digest for candidate in chosen} < known
    assert len(chosen) < 0.6 * (first.candidates - 3)
    operators = [candidate.operator for candidate in chosen]
    assert operators.count("spread") == 10
    assert "predicted" in operators
    assert added.hypervolume > 0.97 * first.hypervolume
    spread, predicted = operators.count("spread"), operators.count("predicted")
    note = (
        f"Added to the job later: {len(chosen)} of the job's {first.candidates - 3} candidates were measured for this "
        f"target ({spread} spread out to fit predictions, {predicted} predicted to matter); the others were only "
        "predicted."
    )
    with service.database.read() as session:
        for target, expected in ((first, ""), (added, note)):
            assert frontier_view(session, service.user, job.id, target.id).note == expected
            read = recommendation.read_inputs(session, service.user, job.id, target.id)
            assert read.recommendation().note == expected


def test_a_running_job_is_extended_when_its_own_targets_have_ended(
    service: Service, board: SimulatedAgent, tablet: SimulatedAgent
) -> None:
    job = service.submit(asked())
    extend(service, job.id)
    service.run(tablet)
    (_, added) = service.get(job.id).targets
    assert (added.state, added.candidates) == ("searching", 3)  # its baselines
    service.run(board)
    service.inbox.append(added.id)  # as the sweep does
    service.run(tablet)
    done = service.get(job.id)
    assert done.state == "finished"
    assert done.targets[1].candidates > 3 + 10


def test_what_is_refused_names_the_field(service: Service, board: SimulatedAgent, tablet: SimulatedAgent) -> None:
    job = service.submit(asked())
    for wrong, error, field in (
        ({"device_class": CLASS}, InvalidInput, "device_class"),
        ({"device_class": "fridge"}, NotFound, "device_class"),
        ({"protocol": {"threads": 64}}, InvalidInput, "protocol.threads"),
        ({"limits": {"memory_mb": 0.01}}, InvalidInput, "limits.memory_mb"),
        ({"name": job.targets[0].name}, InvalidInput, "name"),
    ):
        with pytest.raises(error) as raised:
            extend(service, job.id, **wrong)
        assert raised.value.field == field
    other = extend(service, job.id, device_class=CLASS, protocol={"sequence_length": 64})
    assert len(other.targets) == 2
    with pytest.raises(InvalidInput, match="already measures by this protocol"):
        extend(service, job.id, device_class=CLASS, protocol={"sequence_length": 64, "precision": 0.5})
    service.act("cancel", job.id)
    with pytest.raises(Conflict, match="is cancelled and cannot be extended"):
        extend(service, job.id)
    with pytest.raises(InvalidInput, match=r"targets\.0\.added"):
        service.create(asked(targets=[{"device_class": CLASS, "added": True}]))


@ON_BOTH
def test_no_transaction_is_open_while_it_is_planned(
    service: Service, board: SimulatedAgent, tablet: SimulatedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = service.submit(asked())
    permitted, held = SearchPlan.permitted, []

    def watched(plan: SearchPlan) -> bool:
        held.append(service.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        return permitted(plan)

    monkeypatch.setattr(SearchPlan, "permitted", watched)
    extend(service, job.id)
    assert held == [0]
    with service.database.read() as session:
        assert len(session.scalars(select(Target.id)).all()) == 2
