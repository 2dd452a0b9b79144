"""The time left of a job's targets: near what it takes, whatever the order of slow models and of turns."""

from __future__ import annotations

from datetime import timedelta

from simulated_agent import CLASS, SimulatedAgent, by_size
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import LaunchReport, ReportRequest
from edgefront.core.services.jobs.progress import remaining_launches
from edgefront.core.services.measuring import launches
from edgefront.core.store.tables import Target

TARGETS = [{"device_class": CLASS, "protocol": {"threads": threads}} for threads in (1, 2)]


def _measured(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
    """Half a second for the process, and 500 passes that take as long as the model is large."""
    result = by_size()(architecture, protocol, before)
    assert result.latency is not None
    measuring_s = result.latency.samples_ms[0] / 2
    return result.model_copy(update={"measuring_s": measuring_s, "wall_s": 0.5 + measuring_s})


def test_the_time_left_of_targets_that_take_turns_is_near_the_truth(service: Service) -> None:
    agent = SimulatedAgent(service.database, _measured)
    job = service.submit(request(targets=TARGETS))
    spent, said = 0.0, list[tuple[float, float]]()
    while items := agent.lease(1).items:
        result = agent.result(items[0])
        report = LaunchReport(launch_id=items[0].id, fence=items[0].fence, result=result)
        with service.database.write() as session:  # the device works all the time: the clock is what it has worked
            spent, now = spent + result.wall_s, service.database.now(session)
            launches.report(session, agent.device_id, ReportRequest(reports=(report,), busy_s=result.wall_s), now)
        service.work()
        with service.database.write() as session:
            for target in session.scalars(select(Target).where(Target.started_at.is_not(None))):
                target.started_at = now - timedelta(seconds=spent)
        left = [target.seconds_left for target in service.get(job.id).targets]
        if None not in left:
            said.append((spent, max(seconds or 0.0 for seconds in left)))
    assert service.get(job.id).state == "finished"
    assert len(said) > 40
    for at, left_s in said:
        assert (spent - at) / 2 <= left_s <= 2 * (spent - at) + 10, (at, left_s, spent)


def test_a_search_that_ends_sooner_is_not_expected_to_take_its_budget(service: Service) -> None:
    SimulatedAgent(service.database)
    limits = {"latency_ms": 12.0}
    asked = request(
        targets=[{"device_class": CLASS, "limits": limits}],
        goal="best_within_limits",
        algorithm={"name": "surrogate"},
        budget={"candidates": 500},
    )
    job = service.submit(asked)
    with service.database.read() as session:
        target = session.scalars(select(Target)).one()
        assert job.targets[0].planned is not None
        assert 10 < (remaining_launches(asked, target, 1) or 0) < job.targets[0].planned / 4
