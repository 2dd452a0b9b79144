"""Pausing, resuming, cancelling and deleting jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from job_rows import candidates, count
from simulated_agent import SimulatedAgent, by_size
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.common.errors import Conflict, NotFound
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.services.measuring import leases
from edgefront.core.store.tables import Candidate, Event, Generation, Job, Launch, Measurement, Target
from edgefront.workers.sweep import sweep_once


def test_a_paused_job_requests_nothing_and_resumes(service: Service, agent: SimulatedAgent) -> None:
    job = service.submit()
    lease = agent.lease(2)
    paused = service.act("pause", job.id)
    assert paused.state == "paused"
    assert "Paused." in paused.targets[0].note
    assert service.act("pause", job.id) == paused
    assert agent.step() == 0
    # What was handed out before and is measured all the same still counts.
    agent.report(lease)
    service.work()
    assert service.get(job.id).targets[0].launches_done == 2
    assert agent.step() == 0

    resumed = service.act("resume", job.id)
    assert resumed.state == "running"
    assert service.act("resume", job.id).last_event == resumed.last_event
    finished = service.finish(agent, request(name="undisturbed"))
    assert service.get(job.id).state == "finished"
    ours, plain = ([row.digest for row in candidates(service, id_)] for id_ in (job.id, finished.id))
    assert ours == plain, "pausing changes no proposal"
    for action in ("pause", "resume", "cancel"):
        with pytest.raises(Conflict, match="finished"):
            service.act(action, job.id)


def test_pausing_spends_no_refinements(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size(noise=0.3))
    job = service.submit()
    for _ in range(100):
        agent.step(8)
        service.work()
        if service.get(job.id).targets[0].state == "refining":
            break
    for _ in range(5):
        service.act("pause", job.id)
        service.act("resume", job.id)
        service.work()
    with service.database.read() as session:
        target = session.scalars(select(Target)).one()
        asked = session.scalars(select(Launch.state).where(Launch.purpose == "refinement")).all()
        assert target.refinements == sum(state != "cancelled" for state in asked) <= 9
    service.run(agent)
    assert service.get(job.id).state == "finished"


def test_a_launch_that_another_job_waits_for_stays(service: Service, agent: SimulatedAgent) -> None:
    one, two = service.submit(), service.submit(request(name="twin"))
    service.act("pause", one.id)
    assert count(service, Launch, state="wanted") == BASELINE_LAUNCHES * 3
    service.act("cancel", two.id)
    assert count(service, Launch, state="wanted") == 0
    service.act("resume", one.id)
    service.work()
    assert count(service, Launch, state="wanted") == BASELINE_LAUNCHES * 3
    service.run(agent)
    assert service.get(one.id).state == "finished"


def test_time_does_not_run_while_paused(service: Service, agent: SimulatedAgent) -> None:
    job = service.submit(request(budget={"minutes": 60.0}))
    agent.step(2)
    with service.database.read() as session:
        started = session.scalars(select(Target)).one().started_at
        assert started is not None
    service.act("pause", job.id)
    with service.database.write() as session:
        paused = session.scalars(select(Event).where(Event.kind == "job_state").order_by(Event.number.desc())).first()
        assert paused is not None
        paused.created_at -= timedelta(hours=3)
        session.scalars(select(Target)).one().started_at = started - timedelta(hours=3, minutes=10)
    service.act("resume", job.id)
    service.run(agent)
    job = service.get(job.id)
    assert job.state == "finished"
    assert "minutes" not in job.targets[0].note
    assert job.targets[0].candidates == 19, "one baseline: ten minutes for two launches leave no time for three"


def test_a_cancelled_job_keeps_its_results(service: Service, agent: SimulatedAgent) -> None:
    job = service.submit()
    for _ in range(3):
        agent.step(4)
        service.work()
    lease = agent.lease(2)
    cancelled = service.act("cancel", job.id)
    assert cancelled.state == "cancelled"
    assert cancelled.finished_at is not None
    (target,) = cancelled.targets
    assert (target.state, target.candidates, target.settled) == ("cancelled", 13, 3)
    assert service.act("cancel", job.id) == cancelled
    assert count(service, Launch, state="wanted") == 0
    measured = count(service, Measurement, state="measured")
    with service.database.write() as session:
        now = service.database.now(session)
        heard = leases.heartbeat(session, agent.device_id, str(lease.lease_id), now, 60.0)
    assert set(heard.cancelled) == {item.id for item in lease.items}
    receipts = agent.report(lease).receipts
    assert {receipt.outcome for receipt in receipts} == {"cancelled"}
    assert count(service, Measurement, state="measured") == measured + 2
    assert count(service, Candidate, state="waiting") == 0
    assert count(service, Candidate, state="cancelled") > 0
    service.work()
    assert service.get(job.id) == cancelled
    with pytest.raises(Conflict, match="cancelled"):
        service.act("resume", job.id)


def test_deleting_leaves_knowledge_alone(service: Service, agent: SimulatedAgent) -> None:
    done = service.finish(agent, request())
    sweep_once(service.database)
    assert (service.inbox, service.get(done.id)) == ([], done), "a quiet service is left alone"
    known = count(service, Measurement, state="measured")
    service.act("delete", done.id)
    assert count(service, Job) == count(service, Target) == count(service, Candidate) == count(service, Event) == 0
    assert count(service, Generation) == 0
    assert count(service, Measurement, state="measured") == known
    assert count(service, Launch, state="done") > 0
    for call in (service.get, lambda id_: service.act("delete", id_)):
        with pytest.raises(NotFound):
            call(done.id)
    # The next job of the same kind has nothing left to measure.
    assert service.submit().state == "finished"
    assert service.submit(request(seed=8)).state == "running", "another seed has other weights"


def test_deleting_in_the_middle(service: Service, agent: SimulatedAgent) -> None:
    job, other = service.submit(), service.submit(request(name="other", seed=99))
    agent.step(2)
    lease = agent.lease(BASELINE_LAUNCHES * 3 - 1)  # the rest of the first job's, and one of the other's
    service.act("delete", job.id)
    held = count(service, Launch, state="leased", target_id=other.targets[0].id)
    assert held == 1
    assert count(service, Launch, state="wanted") == BASELINE_LAUNCHES * 3 - held
    receipts = agent.report(lease).receipts
    outcomes = [receipt.outcome for receipt in receipts]
    outcomes.remove("accepted")  # of the other job
    assert set(outcomes) <= {"unknown", "cancelled"}
    service.run(agent)
    assert service.get(other.id).state == "finished"
    service.finish(agent, request())
