"""What is stored of a job and cannot be read ends that job, and no other."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from simulated_agent import SimulatedAgent
from simulated_service import Service, request
from sqlalchemy import update

from edgefront.core.common.errors import InvalidInput
from edgefront.core.services.jobs import lifecycle
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.store.tables import Job, Target
from edgefront.workers.sweep import sweep_once


@pytest.mark.parametrize("wrong", [-0.01, 0.5, float("nan"), float("inf"), "0.1", True, None])
def test_an_epsilon_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="epsilon"):
        request(epsilon=wrong)


def test_a_field_that_cannot_be_read_is_named_by_its_path() -> None:
    stored = request().model_dump(mode="json")
    stored["targets"][0]["protocol"]["threads"] = 0
    with pytest.raises(InvalidInput) as caught:
        JOB_REQUEST.read(stored)
    assert caught.value.field == "request.targets.0.protocol.threads"
    assert caught.value.detail.startswith("request.targets.0.protocol.threads: must be ")


# What cannot be read -----------------------------------------------------------------------------------------------


def spoil_request(service: Service, job_id: str, **changes: Any) -> None:
    with service.database.write() as session:
        job = session.get_one(Job, job_id)
        job.request = {**job.request, **changes}


def spoil_target(service: Service, job_id: str, **values: Any) -> None:
    with service.database.write() as session:
        session.execute(update(Target).where(Target.job_id == job_id).values(**values))


WRONG_PROTOCOL = {**request().targets[0].protocol.model_dump(mode="json"), "runtime": "abacus"}


def test_a_request_that_cannot_be_read_ends_its_job_and_no_other(service: Service, agent: SimulatedAgent) -> None:
    good, bad, gone = service.submit(), service.submit(request(name="bad", seed=8)), service.submit(request(seed=9))
    spoil_request(service, bad.id, budget={"minuts": 3})
    spoil_request(service, gone.id, space={"name": "gone", "narrow": {}})
    assert service.get(gone.id).targets[0].planned is None
    shown = service.get(bad.id)
    assert (shown.state, shown.targets[0].planned, shown.targets[0].device) == ("running", None, "simulated board")
    agent.step(2)  # leases and settling go on meanwhile
    service.inbox.clear()
    sweep_once(service.database)
    service.run(agent)
    ended = service.get(bad.id)
    assert ended.state == "failed"
    assert ended.reason == ended.targets[0].note
    assert ended.targets[0].note.startswith("The search cannot continue: request.budget.minuts: there is no such field")
    assert (service.get(good.id).state, service.get(gone.id).state) == ("finished", "failed")
    assert "no search space 'gone'" in str(service.get(gone.id).reason)
    with service.database.read() as session:
        page = lifecycle.list_jobs(session, service.user, service.database.now(session))
        assert {job.id for job in page.items} == {good.id, bad.id, gone.id}
        assert frontier_view(session, service.user, bad.id).proxy_trust.sentence == ""


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"limits": {"latency": 3}}, "limits.latency"),
        ({"protocol": WRONG_PROTOCOL}, "protocol.runtime"),
    ],
)
@pytest.mark.usefixtures("agent")
def test_a_target_that_cannot_be_read_ends_though_it_waits_for_devices(
    service: Service, values: dict[str, Any], field: str
) -> None:
    job = service.submit()
    spoil_target(service, job.id, **values)
    assert service.get(job.id).state == "running"
    sweep_once(service.database)
    service.work()
    assert service.get(job.id).state == "failed"
    assert f"{field}: " in str(service.get(job.id).reason)


def test_reports_for_limits_that_cannot_be_read_do_not_stop_the_others(service: Service, agent: SimulatedAgent) -> None:
    good, bad = service.submit(), service.submit(request(name="bad"))  # which share their baselines
    spoil_target(service, bad.id, limits={"latency": 3})
    service.run(agent)
    assert (service.get(good.id).state, service.get(bad.id).state) == ("finished", "failed")
    assert "limits.latency: " in str(service.get(bad.id).reason)


@pytest.mark.usefixtures("agent")
def test_a_paused_job_that_cannot_be_read_is_shown_cancelled_and_deleted(service: Service) -> None:
    job = service.submit()
    service.act("pause", job.id)
    spoil_request(service, job.id, seed="seven")
    spoil_target(service, job.id, limits={"latency": 3}, protocol=WRONG_PROTOCOL)
    assert service.get(job.id).state == "paused"
    service.act("cancel", job.id)
    assert service.get(job.id).state == "cancelled"
    service.act("delete", job.id)
