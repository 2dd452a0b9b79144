"""A job keeps its quality law until its owner moves it: then it is predicted again, and nothing is measured."""

from __future__ import annotations

import math
from typing import Any

import pytest
from databases import ON_SQLITE
from simulated_agent import CLASS, SimulatedAgent, by_work, principal
from simulated_service import SMALL, Service
from simulated_trainings import BASE, Trainings
from sqlalchemy import func, select

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.pareto.baseline import reference
from edgefront.core.pareto.dominance import Dominance
from edgefront.core.services import event_log
from edgefront.core.services.jobs import law, recommendation
from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.quality import laws
from edgefront.core.services.search import advance as advancing
from edgefront.core.services.search.computing import Computed, ComputeStep
from edgefront.core.services.sweep import sweep
from edgefront.core.services.tasks import MOVE_LAW
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.tables import Candidate, Job, Launch, Target
from edgefront.core.wire.jobs import EventView, JobRequest, JobView
from edgefront.core.wire.laws import JobLawView, LawRequest

pytestmark = pytest.mark.slow


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, by_work)


def asked(**changes: Any) -> JobRequest:
    value = {
        "space": {"name": "lts-gpt2", "narrow": SMALL},
        "targets": [{"device_class": CLASS}],
        "algorithm": {"name": "lts", "settings": {"iterations": 2, "population": 10}},
        "budget": {"refinement": 0.0},
        "seed": 7,
    }
    return JobRequest.model_validate(value | changes)


@pytest.fixture
def job(service: Service, agent: SimulatedAgent) -> JobView:
    """A finished job by the law that comes along."""
    made = service.submit(asked())
    service.run(agent)
    found = service.get(made.id)
    assert (found.state, found.request.proxy) == ("finished", "quality_law")
    return found


@pytest.fixture
def refined(service: Service, trainings: Trainings, job: JobView) -> str:
    """NAME@1 of a law that five trainings have refined."""
    trainings.end_all(trainings.candidates(job.id, 5))
    trainings.learn(service)
    (row,) = trainings.versions()
    return laws.reference(row)


def rows(service: Service, job_id: str) -> list[Candidate]:
    with service.database.read() as session:
        return list(session.scalars(select(Candidate).where(Candidate.job_id == job_id).order_by(Candidate.number)))


def launches(service: Service) -> int:
    with service.database.read() as session:
        return session.scalar(select(func.count()).select_from(Launch)) or 0


def events(service: Service, job_id: str) -> list[EventView]:
    with service.database.read() as session:
        return event_log.read(session, job_id, 0, 10_000)


def move(service: Service, job_id: str, name: str, version: int | None = None) -> JobLawView:
    return law.move(service.database, service.user, job_id, LawRequest(law=name, version=version))


def work(service: Service) -> None:
    """Does the moves that wait."""
    for task, arguments in list(service.tasks.others):
        if task == MOVE_LAW:
            law.carry_out(service.database, arguments["job_id"])
    service.tasks.others[:] = [other for other in service.tasks.others if other[0] != MOVE_LAW]


@ON_SQLITE
def test_a_job_keeps_its_law_until_it_is_moved(service: Service, job: JobView, refined: str) -> None:
    before, measured, logged = rows(service, job.id), launches(service), events(service, job.id)
    shown = law.law_view(service.database, service.user, job.id)
    assert shown.law is not None
    assert (shown.law.law, shown.moving_to) == (BASE, None)
    assert [version.law for version in shown.newer] == [refined]
    assert {candidate.predicted["law"] for candidate in before} == {BASE}  # type: ignore[index]

    name, _, version = refined.partition("@")
    assert move(service, job.id, name, int(version)).moving_to == refined
    assert {row.predicted["law"] for row in rows(service, job.id)} == {BASE}  # type: ignore[index]
    work(service)

    after = rows(service, job.id)
    with service.database.read() as session:
        found = laws.named(session, refined)
        target = session.scalars(select(Target)).one()
    for candidate, former in zip(after, before, strict=True):
        predicted = found.predict(Shapes.of([Architecture.model_validate(candidate.architecture)]))
        assert candidate.proxy == pytest.approx(-float(predicted.log_perplexity[0]))
        assert candidate.predicted is not None
        assert candidate.predicted["law"] == refined
        assert candidate.predicted["perplexity"] == pytest.approx(math.exp(-candidate.proxy))
        assert candidate.latency_ms == former.latency_ms
    inside = [candidate for candidate in after if candidate.role == "search" and candidate.state == "measured"]
    points = [(candidate.proxy, candidate.latency_ms, candidate.memory_bytes) for candidate in inside]
    kept = Dominance(job.request.epsilon, logarithmic=True).frontier(points, [candidate.digest for candidate in inside])
    assert {candidate.id for candidate in after if candidate.on_frontier} == {
        candidate.id for candidate, keep in zip(inside, kept, strict=True) if keep
    }
    assert target.frontier_size == int(kept.sum())
    depths = [
        (candidate.proxy, candidate.latency_ms, candidate.memory_bytes)
        for candidate in after
        if candidate.role == "baseline"
    ]
    assert target.reference == pytest.approx(reference(depths))
    assert target.hypervolume > 0
    assert launches(service) == measured

    now = events(service, job.id)
    assert [event.number for event in now] == list(range(1, len(now) + 1))
    news = now[len(logged) :]
    assert [event.kind for event in news] in (["law", "frontier"], ["law"])
    assert news[0].data == {"law": refined, "former": BASE, "candidates": len(after)}
    assert service.get(job.id).state == "finished"
    with service.database.read() as session:
        known = recommendation.read(session, service.user, job.id)
    assert "recipe quick" in known.recommendation().perplexity_of


@ON_SQLITE
def test_a_law_of_other_data_is_accepted_with_a_warning(service: Service, job: JobView) -> None:
    assert law.law_view(service.database, service.user, job.id).note == ""
    other = "hwgpt-gpt2-openwebtext"
    warned = move(service, job.id, other).note
    assert warned.startswith(f"The law {other} predicts the perplexity of models trained on OpenWebText")
    assert f"{BASE} that of models trained on your own data" in warned
    work(service)
    assert law.law_view(service.database, service.user, job.id).note == warned
    assert move(service, job.id, other).note == warned, "the law that it has"
    move(service, job.id, BASE)
    work(service)
    assert "cannot be compared" in law.law_view(service.database, service.user, job.id).note


@ON_SQLITE
def test_moving_to_the_own_law_changes_nothing(service: Service, job: JobView, refined: str) -> None:
    count = len(events(service, job.id))
    assert move(service, job.id, BASE).moving_to is None
    assert [task for task, _ in service.tasks.others if task == MOVE_LAW] == []
    move(service, job.id, refined)
    assert move(service, job.id, BASE).moving_to is None  # taken back before a worker came to it
    work(service)
    assert len(events(service, job.id)) == count
    for _ in range(2):
        move(service, job.id, refined)
        work(service)
    assert [event.kind for event in events(service, job.id)].count("law") == 1
    move(service, job.id, BASE)
    work(service)
    assert {row.predicted["law"] for row in rows(service, job.id)} == {BASE}  # type: ignore[index]


@ON_SQLITE
def test_what_cannot_be_moved_to_is_refused(service: Service, job: JobView, refined: str) -> None:
    for name, version in (("nothing", None), (refined.partition("@")[0], 2), (BASE, 1)):
        with pytest.raises(InvalidInput, match=f"there are {BASE}.*{refined}") as error:
            move(service, job.id, name, version)
        assert error.value.field == "law"
    with pytest.raises(InvalidInput, match="is about transformer-xl models, and the space lts-gpt2 has gpt2 models"):
        move(service, job.id, "lts-transformer-xl-wikitext103")
    encoders = service.create(asked(space={"name": "bert"}, algorithm={"name": "random"}))
    with pytest.raises(InvalidInput, match="no quality law is about the space bert"):
        move(service, encoders.id, BASE)
    assert law.law_view(service.database, service.user, encoders.id).law is None


@ON_SQLITE
def test_only_the_owner_moves_a_job(service: Service, job: JobView, refined: str) -> None:
    eve = principal(service.database, owner="eve")
    for call in (
        lambda: law.law_view(service.database, eve, job.id),
        lambda: law.move(service.database, eve, job.id, LawRequest(law=refined)),
    ):
        with pytest.raises(NotFound):
            call()
    boss = principal(service.database, owner="boss", role="admin")
    assert law.move(service.database, boss, job.id, LawRequest(law=refined)).moving_to == refined


def test_agreement_says_how_many_intervals_held(
    service: Service, trainings: Trainings, job: JobView, refined: str
) -> None:
    before = law.law_view(service.database, service.user, job.id).agreement
    assert before is not None
    assert (before.models, before.alike) == (5, False)
    assert not any(row.learnt_from for row in before.rows)
    assert before.held < 5
    trainings.end(trainings.candidates(job.id, 6)[5])
    move(service, job.id, refined)
    work(service)
    after = law.law_view(service.database, service.user, job.id).agreement
    assert after is not None
    assert (after.models, after.alike, after.split) == (6, True, "valid")
    assert [row.learnt_from for row in sorted(after.rows, key=lambda one: one.number)] == [True] * 5 + [False]
    assert after.held == sum(row.low <= row.trained <= row.high for row in after.rows) >= 5
    assert [row.trained for row in after.rows] == sorted(row.trained for row in after.rows)


@ON_SQLITE
def test_a_job_begins_with_the_version_that_it_names(
    service: Service, trainings: Trainings, agent: SimulatedAgent, job: JobView, refined: str
) -> None:
    name = refined.partition("@")[0]
    second = service.submit(asked(proxy_settings={"law": name}, seed=8))
    assert second.request.proxy_settings == {"law": refined}
    trainings.end(trainings.candidates(job.id, 6)[5])
    trainings.learn(service)
    service.run(agent)
    assert service.get(second.id).state == "finished"
    found = rows(service, second.id)
    assert {candidate.predicted["law"] for candidate in found} == {refined}  # type: ignore[index]
    assert all(candidate.proxy == pytest.approx(-math.log(candidate.predicted["perplexity"])) for candidate in found)  # type: ignore[index]
    assert [version.version for version in law.law_view(service.database, service.user, second.id).newer] == [2]
    estimated = estimate(service.database, service.user, asked(proxy_settings={"law": name}), Fits())
    assert estimated.refusals == ()
    wrong = asked(proxy_settings={"law": f"{name}@9"})
    (refusal,) = estimate(service.database, service.user, wrong, Fits()).refusals
    assert refusal.field == "proxy_settings.law"
    with pytest.raises(InvalidInput, match=rf"proxy_settings\.law: there is no '{name}@9'; there are .*{name}@2"):
        service.create(wrong)
    with pytest.raises(InvalidInput, match="has transformer-xl models"):
        service.create(asked(space={"name": "lts-transformer-xl"}, proxy_settings={"law": refined}))


@ON_SQLITE
def test_proposals_by_the_former_law_are_thrown_away(
    service: Service, agent: SimulatedAgent, job: JobView, refined: str
) -> None:
    """A running job: what a worker computed before the move is not stored after it, and the search goes on by the new
    law.
    """
    running = service.submit(asked(seed=9))
    (target,) = running.targets
    step: Any = None
    while not (isinstance(step, ComputeStep) and step.number == 0):
        agent.step()
        service.inbox.clear()
        with service.database.write() as session:
            step = advancing.advance(session, target.id, service.database.now(session))
    computed = step.compute()
    assert isinstance(computed, Computed)
    move(service, running.id, refined)
    work(service)
    with service.database.write() as session:
        assert advancing.store(session, step, computed, service.database.now(session))
    assert {row.role for row in rows(service, running.id)} == {"baseline"}
    service.inbox.append(target.id)
    service.run(agent)
    assert service.get(running.id).state == "finished"
    assert {row.predicted["law"] for row in rows(service, running.id)} == {refined}  # type: ignore[index]


@ON_SQLITE
def test_candidates_that_come_meanwhile_are_predicted_too(
    service: Service, agent: SimulatedAgent, job: JobView, refined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = service.submit(asked(seed=9))
    predicted, held = law._predicted, list[int]()

    def slow(*arguments: Any) -> Any:
        held.append(service.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        if len(held) == 1:
            service.run(agent)
        return predicted(*arguments)

    monkeypatch.setattr(law, "_predicted", slow)
    move(service, running.id, refined)
    work(service)
    found = rows(service, running.id)
    assert any(candidate.role == "search" for candidate in found)
    assert {candidate.predicted["law"] for candidate in found} == {refined}  # type: ignore[index]
    assert held == [0, 0]  # no transaction is held while candidates are predicted


@ON_SQLITE
def test_a_move_whose_task_was_lost_is_sent_again(service: Service, job: JobView, refined: str) -> None:
    move(service, job.id, refined)
    service.tasks.others.clear()
    with service.database.write() as session:
        sweep(session, service.database.now(session))
    work(service)
    assert {row.predicted["law"] for row in rows(service, job.id)} == {refined}  # type: ignore[index]


@ON_SQLITE
def test_a_move_that_fails_leaves_the_job_as_it_is(service: Service, job: JobView, refined: str) -> None:
    move(service, job.id, refined)
    law.give_up(service.database, job.id, "no reason")
    assert law.law_view(service.database, service.user, job.id).moving_to is None
    last = events(service, job.id)[-1]
    assert (last.kind, last.data) == ("law", {"law": refined, "error": "no reason"})
    with service.database.read() as session:
        assert session.get_one(Job, job.id).wanted_law is None


@ON_SQLITE
def test_a_job_by_parameters_keeps_its_frontier(
    service: Service, trainings: Trainings, agent: SimulatedAgent, job: JobView, refined: str
) -> None:
    """The law only says what perplexity to expect."""
    made = service.submit(asked(proxy="decoder_parameters", seed=8))
    service.run(agent)
    before = rows(service, made.id)
    move(service, made.id, refined)
    work(service)
    after = rows(service, made.id)
    assert [(candidate.proxy, candidate.on_frontier) for candidate in after] == [
        (candidate.proxy, candidate.on_frontier) for candidate in before
    ]
    assert {candidate.predicted["law"] for candidate in after} == {refined}  # type: ignore[index]


def test_a_move_keeps_the_training_budget_of_the_job(service: Service, agent: SimulatedAgent) -> None:
    space = {"name": "llama", "narrow": {"n_layer": [2], "d_model": [128, 192]}}
    by_tokens = {"space": space, "algorithm": {"name": "random"}, "budget": {"candidates": 4, "refinement": 0.0}}
    made = service.submit(asked(**by_tokens, proxy_settings={"law": "llama-dolma-cooled"}, train_tokens=10**10))
    service.run(agent)
    law.move(service.database, service.user, made.id, LawRequest(law="own-data-llama"))
    law.carry_out(service.database, made.id)
    with service.database.read() as session:
        stored = [row.predicted for row in session.scalars(select(Candidate).where(Candidate.job_id == made.id))]
    assert {(fields["law"], fields["train_tokens"], fields["label"]) for fields in stored if fields} == {
        ("own-data-llama", 1e10, "ratio, own data, 10B tokens")
    }


def test_a_law_of_one_budget_does_not_take_a_job_that_asks_for_another(
    service: Service, agent: SimulatedAgent, job: JobView
) -> None:
    with service.database.write() as session:
        row = session.get_one(Job, job.id)
        row.request = {**row.request, "train_tokens": 10**9}
    with pytest.raises(InvalidInput, match="knows one budget alone") as refused:
        law.move(service.database, service.user, job.id, LawRequest(law="lts-gpt2-wikitext103"))
    assert refused.value.field == "train_tokens"
    with service.database.write() as session:
        session.get_one(Job, job.id).wanted_law = "lts-gpt2-wikitext103"
    law.carry_out(service.database, job.id)  # as of a probe's refit
    with service.database.read() as session:
        assert session.get_one(Job, job.id).wanted_law is None
