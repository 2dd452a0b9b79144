"""The answers in a list of jobs are those of the recommendations, and cost no more for many jobs than for one."""

from __future__ import annotations

import pytest
from databases import statements
from job_rows import evaluation
from simulated_agent import CLASS, SimulatedAgent
from simulated_service import Service, request
from sqlalchemy import delete

from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.services.jobs import job_views
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.store.tables import Evaluation


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    job_views._kept.clear()


def asked(seed: int = 7, **limits: float) -> JobRequest:
    return JobRequest.model_validate(
        request().model_dump()
        | {"seed": seed, "targets": [{"device_class": CLASS, "limits": limits}], "proxy": "quality_law"}
    )


def listed(service: Service) -> list[JobView]:
    with service.database.read() as session:
        return list(jobs.list_jobs(session, service.user, service.database.now(session)).items)


def agree(service: Service) -> list[str]:
    """The answers of the first targets in the list, which are those of the recommendations."""
    found = listed(service)
    assert [job.targets[0].answer for job in found] == [service.recommended(job).short for job in found]
    return [job.targets[0].answer for job in found]


def score(service: Service, job: JobView, digests: list[str]) -> None:
    with service.database.write() as session:
        session.add_all(evaluation(digest, 3.0 + place, job.created_at) for place, digest in enumerate(digests))


def test_an_answer_is_that_of_the_recommendation_and_follows_what_it_is_made_of(
    service: Service, agent: SimulatedAgent
) -> None:
    job = service.finish(agent, asked())
    service.finish(agent, asked(8, latency_ms=1e-4))
    first = agree(service)
    assert first[0] == "not within 0.0001 ms: all that was measured"
    assert " ms" in first[1]
    view = service.recommended(job)
    models = [view.recommended, *(runner_up.candidate for runner_up in view.runners_up)]
    score(service, job, [model.digest for model in reversed(models) if model is not None])
    trained = agree(service)
    assert trained != first, "the best that was trained is another"
    with service.database.write() as session:
        session.execute(delete(Evaluation))
    assert agree(service) == first


def test_a_running_search_has_no_answer_yet(service: Service, agent: SimulatedAgent) -> None:
    job = service.submit(asked())
    agent.step(4)
    service.work()
    assert service.get(job.id).targets[0].settled > 0
    assert service.get(job.id).targets[0].answer == ""
    service.act("cancel", job.id)
    assert service.get(job.id).targets[0].answer == service.recommended(job).short != ""


def test_many_answers_need_no_more_statements_than_one(service: Service, agent: SimulatedAgent) -> None:
    service.finish(agent, asked(1))
    job_views._kept.clear()
    with statements(service.database) as of_one:
        listed(service)
    for seed in (2, 3, 4):
        service.finish(agent, asked(seed))
    job_views._kept.clear()
    with statements(service.database) as of_four:
        listed(service)
    assert len(of_four) == len(of_one)
    with statements(service.database) as again:
        listed(service)
    assert len(again) == len(of_four) - 2, "what is known is not read again: baselines and frontiers"


def test_no_more_are_kept_than_a_number(
    service: Service, agent: SimulatedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_views, "MAX_KEPT", 1)
    for seed in (1, 2):
        service.finish(agent, asked(seed))
    agree(service)
    assert len(job_views._kept) == 1
