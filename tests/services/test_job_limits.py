"""What bounds a job: memory, limits, parameters, and the budgets of candidates, launches and minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from job_rows import candidates, launches
from simulated_agent import CLASS, SimulatedAgent, done, facts
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.services.jobs.progress import launches_in_time
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.services.search.stalled import stalled
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.store.tables import Job, Launch, Target


def test_weights_beyond_the_memory_are_infeasible_without_a_launch(service: Service) -> None:
    agent = SimulatedAgent(service.database, device_facts=facts(memory_bytes=23 << 20))
    job = service.finish(agent, request())
    settled = candidates(service, job.id) + candidates(service, job.id, "baseline")
    heavy = [row for row in settled if row.weight_bytes > 23 << 20]
    assert heavy
    assert len(heavy) < len(settled)
    assert all(row.state == "infeasible" and "24 MB" in str(row.reason) for row in heavy)
    assert not any(row.measurement_id for row in heavy)
    assert service.get(job.id).targets[0].settled == len(settled)


def test_a_later_launch_moves_a_candidate_in_or_out(service: Service) -> None:
    """The second launch of a baseline is slower than the limit allows the median to be."""

    def slower(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        return done(10.0 if before == 0 else 19.0, 30 << 20)

    agent = SimulatedAgent(service.database, slower)
    asked = request(
        targets=[{"device_class": CLASS, "limits": {"latency_ms": 14.0}}], baseline_layers=[1], budget={"candidates": 1}
    )
    job = service.submit(asked)
    service.work()
    agent.step(1)
    (baseline,) = candidates(service, job.id, "baseline")
    assert (baseline.state, baseline.latency_ms, baseline.launches) == ("measured", 10.0, 1)
    agent.step(1)
    (baseline,) = candidates(service, job.id, "baseline")
    assert (baseline.state, baseline.latency_ms, baseline.launches) == ("out_of_bounds", 14.5, 2)


def test_what_is_proposed_keeps_to_all_limits_and_to_the_budget(service: Service) -> None:
    """Those on parameters, and on memory as far as weights alone are beyond it."""
    asked = request(
        parameters={"min_decoder": 400_000, "max_decoder": 900_000, "max_total": 6_000_000},
        targets=[{"device_class": CLASS, "limits": {"memory_mb": 18}}],
        budget={"candidates": 13},
    )
    agent = SimulatedAgent(service.database)
    assert service.submit(asked).targets[0].planned == 16
    job = service.finish(agent, asked)
    rows = candidates(service, job.id)
    assert [row.generation for row in rows] == [0] * 10 + [1] * 3
    assert all(400_000 <= row.decoder_parameters <= 900_000 for row in rows)
    assert all(row.total_parameters <= 6_000_000 and row.weight_bytes <= 18 * 10**6 for row in rows)
    assert job.targets[0].candidates == 16


def test_the_minutes_of_targets_on_one_device_begin_with_the_first_launch_there(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    targets = [{"device_class": CLASS, "protocol": {"threads": threads}} for threads in (1, 2)]
    service.submit(request(budget={"minutes": 5.0}, targets=targets))
    with service.database.read() as session:
        begin = service.database.now(session)
    agent.step(1)
    service.work()
    with service.database.write() as session:
        first, second = session.scalars(select(Target).order_by(Target.position)).all()
        assert second.started_at is None
        assert first.started_at is not None
        assert begin - first.started_at > timedelta(seconds=0.5), "the launch itself took a second, by its report"
        first.started_at -= timedelta(minutes=5)
    with service.database.write() as session:
        assert set(stalled(session, service.database.now(session))) == {first.id, second.id}


def test_the_launches_in_time_are_those_at_the_pace_of_the_last_ones_if_that_is_slower(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    service.submit(request(budget={"minutes": 10.0}))
    while launches(service, "done") < 10:
        agent.step(1)
        service.work()
    with service.database.write() as session:
        now = service.database.now(session)
        target = session.scalars(select(Target)).one()
        asked = JOB_REQUEST.read(session.get_one(Job, target.job_id).request)
        target.started_at, target.launches_done = now - timedelta(seconds=100), 20
        finished = select(Launch).where(Launch.finished_at.is_not(None)).order_by(Launch.finished_at.desc())
        for number, launch in enumerate(session.scalars(finished)):
            launch.finished_at = now - timedelta(seconds=4 * number)
        session.flush()
        assert launches_in_time(session, asked, target, now) == 500 / 5, "of them all"
        for number, launch in enumerate(session.scalars(finished)):
            launch.finished_at = now - timedelta(seconds=10 * number)
        session.flush()
        assert launches_in_time(session, asked, target, now) == 500 / 10, "of the last"


@pytest.mark.parametrize(("minutes", "words"), [(5.0, "of 5 minutes was"), (1.0, "of 1 minute was")])
def test_the_budget_of_minutes_ends_a_target(service: Service, minutes: float, words: str) -> None:
    agent = SimulatedAgent(service.database)
    job = service.submit(request(budget={"minutes": minutes}))
    agent.step(BASELINE_LAUNCHES * 3)
    service.work()
    with service.database.write() as session:
        target = session.scalars(select(Target)).one()
        assert target.started_at is not None
        now = service.database.now(session)
        assert stalled(session, now) == []
        target.started_at = target.started_at.replace(year=target.started_at.year - 1)
    with service.database.write() as session:
        assert stalled(session, service.database.now(session)) == [target.id]
    agent.step()  # a report finds it out as well
    service.work()
    job = service.get(job.id)
    assert job.state == "finished"
    assert words in job.targets[0].note
    assert not any(row.state == "waiting" for row in candidates(service, job.id))
    assert launches(service, "wanted") == 0
