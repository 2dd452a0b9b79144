"""The minutes of a search on a slow device: they reach an answer, and nothing is begun that they do not suffice for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_generation, by_work, facts
from simulated_service import SMALL, Service, request
from sqlalchemy import select

from edgefront.core.schemas.agent import LaunchReport, ReportRequest
from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.services.measuring import launches
from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.store.tables import Candidate, Launch, Target


def on_slow_device(
    service: Service, asked: JobRequest, seconds: Callable[[int], float], agent: SimulatedAgent | None = None
) -> tuple[JobView, list[float]]:
    """Runs a job on a device whose clock adds the launches' times, by their FLOPs. Returns each launch's start."""
    agent, spent, began = agent or SimulatedAgent(service.database, by_work), 0.0, list[float]()
    job = service.submit(asked)
    while service.get(job.id).state == "running" and (items := agent.lease(1).items):
        with service.database.read() as session:
            of_launch = select(Launch.measurement_id).where(Launch.id == items[0].id).scalar_subquery()
            flops = session.scalars(select(Candidate.flops).where(Candidate.measurement_id == of_launch)).first()
        took = seconds(flops or 0)
        began.append(spent)
        spent += took
        result = agent.result(items[0]).model_copy(update={"wall_s": took, "measuring_s": took / 2})
        report = LaunchReport(launch_id=items[0].id, fence=items[0].fence, result=result)
        with service.database.write() as session:
            now = service.database.now(session)
            launch = session.get_one(Launch, items[0].id)
            launch.created_at, launch.started_at = (now - timedelta(seconds=took + each) for each in (2, 1))
            launches.report(session, agent.device_id, ReportRequest(reports=(report,), busy_s=took), now)
        with service.database.write() as session:
            for target in session.scalars(select(Target).where(Target.started_at.is_not(None))):
                target.started_at = now - timedelta(seconds=spent)
        service.work()
    return service.get(job.id), began


def asked(minutes: float, **changes: Any) -> JobRequest:
    targets = [{"device_class": CLASS, "limits": {"latency_ms": 50.0}}]
    space = {"name": "lts-gpt2", "narrow": {**SMALL, "n_layer": {"max": 16}}}
    given = {"goal": "best_within_limits", "algorithm": {}, "space": space, "targets": targets}
    return request(**(given | {"budget": {"candidates": 6, "minutes": minutes}} | changes))


@pytest.mark.parametrize("each", [20.0, 45.0, 80.0])
def test_four_minutes_on_a_slow_device_reach_an_answer(service: Service, each: float) -> None:
    job, _ = on_slow_device(service, asked(4.0), lambda _: each)
    with service.database.read() as session:
        rows = session.scalars(select(Candidate)).all()
    searched = [row for row in rows if row.role == "search"]
    assert any(row.state == "measured" for row in searched), job.targets[0].note
    assert [row.role for row in sorted(rows, key=lambda row: row.number)].index("search") <= 3
    if each < 60:
        assert max(row.launches for row in searched) > 1, "the answer is launched again"
    assert job.targets[0].settled == sum(row.state != "cancelled" for row in rows)
    assert job.state == "finished"


def test_a_frontier_begins_with_one_launch_of_one_baseline(service: Service) -> None:
    on_slow_device(service, asked(4.0, goal="frontier", targets=[{"device_class": CLASS}]), lambda _: 40.0)
    with service.database.read() as session:
        rows = session.scalars(select(Candidate).order_by(Candidate.number)).all()
    assert [row.role for row in rows][:2] == ["baseline", "search"]
    assert any(row.role == "search" and row.state == "measured" for row in rows)


def test_what_is_too_heavy_for_the_rest_of_the_time_is_not_begun(service: Service) -> None:
    """A launch takes as long as the model is heavy: all that began end within the minutes, and the answer's follow."""
    job, began = on_slow_device(service, asked(4.0), lambda flops: flops / 4e7)
    assert "was spent" not in job.targets[0].note
    assert job.targets[0].settled == job.targets[0].candidates
    assert began[-1] < 240


def test_the_estimate_is_within_the_minutes_and_counts_the_baselines_of_the_plan(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_work)
    job = service.finish(agent, request(budget={"refinement": 0.0}))
    wanted = asked(4.0)
    found = estimate(service.database, service.user, wanted, Fits())
    planned = service.submit(wanted).targets[0].planned
    assert found.candidates.at_most == planned == 11
    longer = [{"device_class": CLASS, "protocol": {"sequence_length": 512}, "limits": {"latency_ms": 50.0}}]
    small = estimate(service.database, service.user, asked(4.0, targets=longer), Fits()).targets[0]
    large = {"name": "lts-gpt2", "narrow": {"n_layer": {"max": 3}, "d_model": [1024]}}
    heavy = estimate(service.database, service.user, asked(4.0, targets=longer, space=large), Fits()).targets[0]
    assert job.targets[0].state == "finished"
    assert heavy.launches.at_most * (heavy.seconds_per_launch or 0) <= 240 + 2 * (heavy.seconds_per_launch or 0)
    assert small.seconds_per_launch is not None
    assert heavy.seconds_per_launch is not None
    assert heavy.seconds_per_launch > 2 * small.seconds_per_launch, "a large model takes longer to build"


@pytest.mark.parametrize("minutes", [3.0, 6.0])
def test_published_models_too_heavy_for_the_minutes_are_not_begun_and_the_answer_is_launched_again(
    service: Service, minutes: float
) -> None:
    board = facts(memory_bytes=64 << 30, numbers=("float32", "int8"))
    agent = SimulatedAgent(service.database, measure=by_generation, device_facts=board)
    generation = {"mode": "generate", "sequence_length": 16, "new_tokens": 4}
    variants = {"runtimes": ["onnxruntime"], "formats": ["int8", "f32"]}
    limits = {"token_ms": 1e6}
    place = {"device_class": CLASS, "protocol": generation, "limits": limits, "variants": variants}
    wanted = JobRequest.model_validate(
        {
            "goal": "best_within_limits",
            "space": {"published": {"score": "obsscaling_base:HellaSwag"}},
            "targets": [place],
            "budget": {"minutes": minutes},
        }
    )
    job, began = on_slow_device(service, wanted, lambda flops: 5.0 + flops / 1e9, agent)
    with service.database.read() as session:
        rows = session.scalars(select(Candidate)).all()
    assert began[-1] < 60 * minutes
    assert not [row.state for row in rows if row.state == "cancelled"]
    best = service.chosen(job).recommended
    assert best is not None
    assert max(row.launches for row in rows if row.id == best.candidate.id) > 1
    assert sum(target.settled for target in job.targets) == len(rows)
