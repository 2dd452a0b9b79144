"""A job's choice of proxy: scores before measurements, once for all, and what becomes of those that fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from databases import ON_BOTH
from job_rows import candidates, count, evaluation
from simulated_agent import SimulatedAgent, by_size
from simulated_pool import prepare
from simulated_service import Service, request
from sqlalchemy import delete, func, select, update

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.schemas.jobs import Algorithm, JobRequest, JobView, ProxyName, ProxyTrust
from edgefront.core.search.registry import ALGORITHMS
from edgefront.core.services import work
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.quality import scoring
from edgefront.core.services.settings import DatabaseSettings, ScoringSettings, Settings
from edgefront.core.store.tables import Generation, ProxyScore, ProxyWait, WorkItem
from edgefront.core.training.proxies.registry import ProxySettings, proxies
from edgefront.core.training.proxies.score import score
from edgefront.workers.scoring.child import answer
from edgefront.workers.scoring.scoring import Child
from edgefront.workers.sweep import sweep_once
from edgefront.workers.work import Worker

TINY = {"rows": 2, "length": 4}
TWO = {"name": "lts", "settings": {"iterations": 2, "population": 4}}


def asking(proxy: str, **changes: Any) -> JobRequest:
    return request(proxy=proxy, algorithm=TWO, baseline_layers=[1, 2], budget={"refinement": 0}, **changes)


def by_hand(service: Service, value: Callable[[str], tuple[float | None, str | None]] | None = None) -> int:
    """Computes all scores that wait, in this process; returns how many."""
    made = 0
    while True:
        with service.database.write() as session:
            held = work.claim(session, work.SCORES, "by hand", 1, service.database.now(session))
            task = None if held is None else scoring.task_of(session, held.subject)
        if held is None:
            return made
        with service.database.write() as session:
            now = service.database.now(session)
            if task is not None:
                digest = Architecture.parse(task.architecture).digest
                found = (float(int(digest[:8], 16) + 1), None) if value is None else value(digest)
                scoring.store_score(session, task.id, *found, now)
                made += 1
            work.finish(session, held, now)


def finish(service: Service, agent: SimulatedAgent, job: JobView) -> JobView:
    for _ in range(20):
        service.work()
        if not by_hand(service) + service.run(agent):
            break
    return service.get(job.id)


def test_requests_name_every_proxy_and_every_algorithm() -> None:
    assert list(get_args(ProxyName)) == list(proxies())
    assert set(get_args(Algorithm)) == {"auto", *ALGORITHMS}


def test_scores_come_before_any_measurement(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = service.submit(asking("snip", proxy_settings=TINY, proxy_seed=3))
    assert service.scores_asked == 2
    assert job.targets[0].candidates == 0
    assert "Scoring 2 models by snip" in job.targets[0].note
    assert not agent.lease().items
    assert by_hand(service) == 2
    service.work()
    assert service.get(job.id).targets[0].candidates == 2

    job = finish(service, agent, job)
    (target,) = job.targets
    assert (job.state, target.state, target.candidates) == ("finished", "finished", target.planned)
    found = candidates(service, job.id)
    assert {row.state for row in found} == {"measured"}
    assert all(row.proxy == int(row.digest[:8], 16) + 1 for row in found)
    assert target.reference is not None
    assert target.reference["proxy"] == 0.0
    assert target.reference["proxy_scale"] == max(row.proxy for row in candidates(service, job.id, "baseline"))
    assert target.summary.startswith(("At equal snip", "No frontier point lies within the baseline's range of snip"))
    with service.database.read() as session:
        scored = session.scalars(select(ProxyScore)).all()
        assert {(row.seed, row.settings["rows"], row.state) for row in scored} == {(3, 2, "done")}
        assert session.scalar(select(func.count()).select_from(ProxyWait)) == 0
        assert session.scalar(select(func.count()).select_from(Generation)) == target.generation + 1


def test_scores_are_kept_for_every_job_that_asks_alike(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    first = finish(service, agent, service.submit(asking("snip", proxy_settings=TINY)))
    known = count(service, ProxyScore)
    again = finish(service, agent, service.submit(asking("snip", proxy_settings={**TINY, "steps": 9})))
    assert count(service, ProxyScore) == known, "steps do not concern snip"
    assert [row.digest for row in candidates(service, again.id)] == [
        row.digest for row in candidates(service, first.id)
    ]
    service.submit(asking("snip", proxy_settings=TINY, proxy_seed=1))
    assert count(service, ProxyScore) == known + 2


def test_proxies_without_torch_are_scored_at_once_and_their_sign_is_flipped_if_lower_is_better(
    service: Service,
) -> None:
    agent = SimulatedAgent(service.database, by_size())
    counted = finish(service, agent, service.submit(asking("total_parameters")))
    assert service.scores_asked == 0
    assert all(row.proxy == row.total_parameters for row in candidates(service, counted.id))
    predicted = finish(service, agent, service.submit(asking("quality_law")))
    assert service.scores_asked == 0
    assert all(-2 < row.proxy < 0 for row in candidates(service, predicted.id)), "ln of a ratio to gpt2-small, turned"
    assert predicted.targets[0].frontier_size > 0
    turned = finish(service, agent, service.submit(asking("grasp", proxy_settings=TINY)))
    assert all(row.proxy == -int(row.digest[:8], 16) - 1 for row in candidates(service, turned.id))
    (target,) = turned.targets
    assert turned.state == "finished"
    assert target.reference is not None
    assert target.reference["proxy"] < min(row.proxy for row in candidates(service, turned.id, "baseline"))
    assert target.frontier_size > 0


@ON_BOTH
def test_a_candidate_without_a_score_is_infeasible_with_the_reason(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = service.submit(asking("snip", proxy_settings=TINY))
    by_hand(service)
    service.run(agent)
    odd = iter(range(100))

    def value(_: str) -> tuple[float | None, str | None]:
        return [(float("nan"), None), (None, "memory ran out"), (2.0, None), (float("inf"), None)][next(odd) % 4]

    by_hand(service, value)
    service.run(agent)
    states = {row.reason or "": row.state for row in candidates(service, job.id)}
    assert states == {
        "snip is not a finite number (nan)": "infeasible",
        "snip is not a finite number (inf)": "infeasible",
        "memory ran out": "infeasible",
        "": "measured",
    }
    job = finish(service, agent, job)
    assert job.state == "finished"
    shown = [row for row in candidates(service, job.id) if row.on_frontier]
    assert shown
    assert all(row.state == "measured" for row in shown)


def test_scores_are_of_the_data_that_the_name_meant_when_the_job_was_made(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = SimulatedAgent(service.database, by_size())
    monkeypatch.setenv("EDGEFRONT_TRAINING__DATA", str(tmp_path))
    asked = asking("snip", proxy_settings={**TINY, "data": "text"})

    def scored() -> dict[str, int]:
        with service.database.read() as session:
            return dict(Counter(row.settings["data"] for row in session.scalars(select(ProxyScore))))

    former = prepare(tmp_path, "text")
    first = service.submit(asked)
    assert scored() == {former.name: 2}
    shutil.rmtree(former)
    later = prepare(tmp_path, "text", "other tokens")
    second = service.submit(asked)
    assert scored() == {former.name: 2, later.name: 2}
    finish(service, agent, first)
    finish(service, agent, second)
    known = scored()
    assert set(known) == {former.name, later.name}
    assert known[former.name] == known[later.name] > 2


def test_a_job_whose_baselines_have_no_score_fails_and_they_are_tried_again_for_a_later_one(
    service: Service,
) -> None:
    agent = SimulatedAgent(service.database, by_size())
    first = service.submit(asking("snip", proxy_settings=TINY))
    by_hand(service, lambda _: (None, "memory ran out while snip was computed"))
    service.work()
    first = service.get(first.id)
    assert first.state == "failed"
    assert "None of the 2 baselines could be measured" in (first.reason or "")
    assert "memory ran out while snip was computed" in (first.reason or "")
    again = finish(service, agent, service.submit(asking("snip", proxy_settings=TINY)))
    assert again.state == "finished"


def test_the_first_score_stands(service: Service) -> None:
    """What a lost worker found is true all the same."""
    SimulatedAgent(service.database, by_size())
    service.submit(asking("snip", proxy_settings=TINY))
    with service.database.write() as session:
        now = service.database.now(session)
        held = work.claim(session, work.SCORES, "lost", 1, now)
        assert held is not None
        for value in (5.0, 6.0):
            scoring.store_score(session, held.subject, value, None, now)
        assert session.get_one(ProxyScore, held.subject).value == 5.0


def test_paused_and_cancelled_jobs_have_nothing_scored(service: Service) -> None:
    SimulatedAgent(service.database, by_size())
    job = service.submit(asking("snip", proxy_settings=TINY))
    service.act("pause", job.id)
    assert by_hand(service) == 0
    service.act("resume", job.id)
    assert by_hand(service) == 2
    service.work()
    assert service.get(job.id).targets[0].candidates == 2
    other = service.submit(asking("snip", proxy_settings=TINY, proxy_seed=9))
    service.act("cancel", other.id)
    assert by_hand(service) == 0
    service.act("delete", other.id)
    assert count(service, ProxyWait) == 0


def test_the_sweep_finds_scores_whose_message_was_lost(service: Service) -> None:
    SimulatedAgent(service.database, by_size())
    job = service.submit(asking("snip", proxy_settings=TINY))
    service.tasks.others.clear()
    sweep_once(service.database)
    assert service.scores_asked == 1
    with service.database.write() as session:
        session.execute(delete(WorkItem))
    sweep_once(service.database)
    assert count(service, WorkItem) == 2, "they are requested again"
    # A worker that settled scores, and died before it told anybody.
    with service.database.write() as session:
        session.execute(update(ProxyScore).values(state="done", value=3.0))
        session.flush()
    service.inbox.clear()
    sweep_once(service.database)
    service.work()
    assert service.get(job.id).targets[0].candidates == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"proxy_settings": {"rows": 0}}, "proxy_settings.rows"),
        ({"proxy_settings": {"batch": 3}}, "proxy_settings.batch"),
        ({"proxy": "partial_training"}, "proxy_settings.data"),
        ({"proxy": "quality_law", "proxy_settings": {"law": "none"}}, "proxy_settings.law"),
        ({"proxy": "quality_law", "space": {"name": "srupp"}}, "proxy"),
        ({"proxy": "partial_training", "proxy_settings": {"data": "x", "recipe": "y"}}, "proxy_settings.recipe"),
    ],
)
def test_wrong_settings_are_refused_when_the_job_is_submitted(
    service: Service, changes: dict[str, Any], field: str
) -> None:
    SimulatedAgent(service.database, by_size())
    with pytest.raises(InvalidInput) as caught:
        service.create(asking(**{"proxy": "snip", **changes}))
    assert caught.value.field == field
    assert field in caught.value.detail


@ON_BOTH
def test_a_frontier_says_how_the_proxy_ranked_what_was_trained(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = finish(service, agent, service.submit(asking("decoder_parameters")))
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


# The worker's side -------------------------------------------------------------------------------------------------


@pytest.fixture
def working(service: Service, tmp_path: Path) -> Iterator[tuple[Service, Worker]]:
    settings = Settings(
        home=tmp_path,
        database=DatabaseSettings(url=service.database.url.render_as_string(hide_password=False)),
        scoring=ScoringSettings(timeout_s=60),
    )
    made = Worker(service.database, settings)
    yield service, made
    made.stop()


def test_a_child_that_is_killed_costs_an_attempt(
    working: tuple[Service, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, worker = working
    SimulatedAgent(service.database, by_size())
    service.submit(asking("snip", proxy_settings=TINY))
    monkeypatch.setattr(Child, "ask", lambda self, _: os.kill(self._process.pid, signal.SIGKILL))
    worker.work(work.SCORES)
    with service.database.read() as session:
        reasons = {row.reason for row in session.scalars(select(ProxyScore))}
    assert reasons == {
        "3 attempts; the last: the process that computed snip was killed, probably because memory ran out"
    }


@pytest.mark.parametrize("exists", [True, False], ids=["data folder here", "no data folder here"])
@pytest.mark.parametrize("name", ["../elsewhere", "./other", "/etc/passwd", "a/b", "a\\b", ".hidden"])
def test_a_path_on_the_server_is_no_name_of_data(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, exists: bool
) -> None:
    SimulatedAgent(service.database, by_size())
    monkeypatch.setenv("EDGEFRONT_TRAINING__DATA", str(tmp_path / "data"))
    if exists:
        prepare(tmp_path / "data", "other")
    with pytest.raises(InvalidInput, match="is a path") as caught:
        service.create(asking("snip", proxy_settings={**TINY, "data": name}))
    assert caught.value.field == "proxy_settings.data"


@pytest.mark.parametrize("name", ["nothing", "python"])
def test_data_that_is_not_in_the_services_folder_is_reported(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    SimulatedAgent(service.database, by_size())
    monkeypatch.setenv("EDGEFRONT_TRAINING__DATA", str(tmp_path / "data"))
    asked = asking("snip", proxy_settings={**TINY, "data": name})
    job = service.submit(asked)  # the data may be where the workers are, but is not
    assert service.get(job.id).state == "failed"
    assert f"proxy_settings.data: no data set {name!r}" in (service.get(job.id).reason or "")
    prepare(tmp_path / "data", "other")
    with pytest.raises(InvalidInput) as caught:
        service.create(asked)
    assert caught.value.field == "proxy_settings.data"


@pytest.mark.slow
def test_a_child_answers_whatever_it_is_asked() -> None:
    model = {
        "d_model": 8,
        "embedding": {"vocab_size": 11},
        "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 16}],
    }
    asked = {"architecture": model, "proxy": "snip", "seed": 1, "settings": TINY, "device": "cpu", "data": None}
    expected = score(Architecture.parse(model), "snip", 1, ProxySettings(**TINY))
    assert answer(asked) == {"value": expected}
    assert "no proxy 'x'" in answer({**asked, "proxy": "x"})["reason"]
    assert "longer than the model's" in answer({**asked, "settings": {"length": 4096}})["reason"]
    assert "d_model" in answer({**asked, "architecture": {**model, "d_model": 0}})["reason"]
    assert json.dumps(answer({**asked, "settings": {"rows": "many"}}))
