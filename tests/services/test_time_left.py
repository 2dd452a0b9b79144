"""The time left of a job's targets: near what it takes, whatever the order of slow models and of turns."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from simulated_agent import CLASS, SimulatedAgent, by_generation, by_size, facts
from simulated_service import GENERATE, Service, request
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.agent import LaunchReport, ReportRequest
from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.services.jobs.job_views import job_views
from edgefront.core.services.jobs.progress import remaining_launches
from edgefront.core.services.measuring import launches
from edgefront.core.store.tables import Job, Launch, Target

TARGETS = [{"device_class": CLASS, "protocol": {"threads": threads}} for threads in (1, 2)]
VARIANTS = {"runtimes": ["onnxruntime", "pytorch"], "formats": ["int8", "f32"]}


def _measured(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
    """Half a second for the process, and 500 passes that take as long as the model is large."""
    result = by_size()(architecture, protocol, before)
    assert result.latency is not None
    measuring_s = result.latency.samples_ms[0] / 2
    return result.model_copy(update={"measuring_s": measuring_s, "wall_s": 0.5 + measuring_s})


def _generated(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
    """Half a second for the process, and seven generations."""
    result = by_generation(architecture, protocol, before)
    assert result.latency is not None
    measuring_s = result.latency.samples_ms[0] * 7 / 1e3
    return result.model_copy(update={"measuring_s": measuring_s, "wall_s": 0.5 + measuring_s})


def _followed(service: Service, agent: SimulatedAgent, job: JobView) -> tuple[float, list[tuple[float, float, float]]]:
    """Seconds that the job took, and at each start of a launch: seconds so far, time left, and that 0.1 s later."""
    spent, said = 0.0, list[tuple[float, float, float]]()
    while items := agent.lease(1).items:
        with service.database.write() as session:  # the device works all the time: the clock is what it has worked
            now = service.database.now(session)
            session.get_one(Launch, items[0].id).started_at = now
            for target in session.scalars(select(Target).where(Target.started_at.is_not(None))):
                target.started_at = now - timedelta(seconds=spent)
        with service.database.read() as session:
            row = session.get_one(Job, job.id)
            views = [job_views(session, [row], now + timedelta(seconds=seconds))[0] for seconds in (0, 0.1)]
        left = [[target.seconds_left for target in view.targets] for view in views]
        if None not in left[0]:
            soon, later = (max(seconds or 0.0 for seconds in each) for each in left)
            said.append((spent, soon, later))
        result = agent.result(items[0])
        report = LaunchReport(launch_id=items[0].id, fence=items[0].fence, result=result)
        spent += result.wall_s
        with service.database.write() as session:
            request_ = ReportRequest(reports=(report,), busy_s=result.wall_s)
            launches.report(session, agent.device_id, request_, service.database.now(session))
        service.work()
    assert service.get(job.id).state == "finished"
    return spent, said


def test_the_time_left_of_targets_that_take_turns_is_near_the_truth(service: Service) -> None:
    agent = SimulatedAgent(service.database, _measured)
    spent, said = _followed(service, agent, service.submit(request(targets=TARGETS)))
    assert len(said) > 40
    for at, left_s, _ in said:
        assert (spent - at) / 2 <= left_s <= 2 * (spent - at) + 10, (at, left_s, spent)


def test_the_time_left_of_a_search_among_published_models_falls(service: Service) -> None:
    own = facts(memory_bytes=64 << 30, numbers=("float32", "int8"))
    agent = SimulatedAgent(service.database, _generated, device_facts=own)
    limits = {"token_ms": 40.0, "memory_mb": 1500.0}
    place = {"device_class": CLASS, "protocol": GENERATE, "limits": limits, "variants": VARIANTS}
    space = {"published": {"score": "obsscaling_base:HellaSwag"}}
    asked = {"goal": "best_within_limits", "space": space, "targets": [place]}
    spent, said = _followed(service, agent, service.submit(JobRequest.model_validate(asked)))
    assert len(said) > 6
    for (at, left_s, later_s), (_, next_s, _) in pairwise(said):
        assert later_s < left_s, "it falls while a launch runs"
        assert next_s <= 2 * left_s + 5, (at, left_s, next_s)
        assert (spent - at) / 3 - 5 <= left_s <= 3 * (spent - at) + 20, (at, left_s, spent)


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
