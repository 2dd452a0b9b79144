"""The proxy of a job: the ranking of its candidates, and the notes about it."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from databases import ON_BOTH
from job_rows import candidates, evaluation
from simulated_agent import SimulatedAgent, by_size
from simulated_service import Service, request

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.validation import checked
from edgefront.core.schemas.jobs import Algorithm, JobRequest, ProxyName, ProxyTrust
from edgefront.core.search.registry import ALGORITHMS
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.training.proxies.registry import proxies

TWO = {"name": "lts", "settings": {"iterations": 2, "population": 4}}


def asking(proxy: str, **changes: Any) -> JobRequest:
    return request(proxy=proxy, algorithm=TWO, baseline_layers=[1, 2], budget={"refinement": 0}, **changes)


def test_requests_name_every_proxy_without_torch_and_every_algorithm() -> None:
    immediate = {proxy.name for proxy in proxies().values() if not proxy.needs_torch}
    assert set(get_args(ProxyName)) == immediate | {"auto", "published_score"}
    assert set(get_args(Algorithm)) == {"auto", *ALGORITHMS}


def test_candidates_are_ranked_by_the_proxy_of_their_job(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    counted = service.finish(agent, asking("total_parameters"))
    found = candidates(service, counted.id)
    assert found
    assert all(row.proxy == row.total_parameters for row in found)
    reference = counted.targets[0].reference
    assert reference is not None
    assert reference["proxy"] == 0.0
    assert reference["proxy_scale"] == max(row.proxy for row in candidates(service, counted.id, "baseline"))
    assert counted.targets[0].frontier_size > 0
    predicted = service.finish(agent, asking("quality_law"))
    assert all(-2 < row.proxy < 0 for row in candidates(service, predicted.id)), "ln of a ratio to gpt2-small, turned"
    assert predicted.targets[0].frontier_size > 0


@pytest.mark.parametrize("proxy", [name for name, proxy in proxies().items() if proxy.needs_torch])
def test_a_proxy_that_needs_torch_is_refused_by_name(proxy: str) -> None:
    with pytest.raises(InvalidInput, match="`edgefront proxy score` computes the others") as caught:
        checked(JobRequest, {"targets": [{}], "proxy": proxy})
    assert (caught.value.field, caught.value.value) == ("proxy", proxy)
    assert caught.value.detail.startswith("proxy: a search ranks by ")
    assert f"not by '{proxy}'" in caught.value.detail
    assert caught.value.allowed == ", ".join(get_args(ProxyName))
    assert caught.value.allowed in caught.value.detail


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"proxy_settings": {"rows": 4}}, "proxy_settings.rows"),
        ({"proxy_settings": {"law": ""}}, "proxy_settings.law"),
        ({"proxy": 3}, "proxy"),
    ],
)
def test_wrong_fields_are_refused_by_the_request(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked(JobRequest, {"targets": [{}], **changes})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"proxy_settings": {"law": "none"}}, "proxy_settings.law"),
        ({"space": {"name": "srupp"}}, "proxy"),
    ],
)
def test_a_law_that_does_not_exist_is_refused_when_the_job_is_submitted(
    service: Service, changes: dict[str, Any], field: str
) -> None:
    SimulatedAgent(service.database, by_size())
    with pytest.raises(InvalidInput) as caught:
        service.create(asking("quality_law", **changes))
    assert caught.value.field == field
    assert field in caught.value.detail


@ON_BOTH
def test_a_frontier_says_how_the_proxy_ranked_what_was_trained(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = service.finish(agent, asking("decoder_parameters"))
    target = job.targets[0].id
    assert "200 fully trained models" in job.proxy_trust.sentence

    def trust() -> ProxyTrust:
        with service.database.read() as session:
            return frontier_view(session, service.user, job.id, target).proxy_trust

    assert trust() == job.proxy_trust
    models = candidates(service, job.id)
    assert len(models) >= 4
    with service.database.write() as session:
        now = service.database.now(session)
        for index, row in enumerate(sorted(models, key=lambda row: row.proxy)):
            scores = [("perplexity", 90.0 - index, "quick"), ("accuracy", 0.5, "quick")]
            if index < 3:  # a smaller group, and a metric of no known direction
                scores += [("perplexity", 10.0 + index, "other"), ("whatever", 1.0, "quick")]
            for metric, value, recipe in scores:
                how = {"dataset": "stdlib", "split": "valid", "metric": metric, "details": {"recipe": recipe}}
                session.add(evaluation(row.digest, value, now, **how))
    live = trust().live
    assert live is not None
    assert (live.dataset, live.metric, live.models) == ("stdlib", "perplexity", len(models))
    assert live.spearman == pytest.approx(1.0)
    assert trust().sentence.startswith(f"Decoder parameters rank the {len(models)} models of this job")
