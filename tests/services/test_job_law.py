"""A job searches by one law; its answers read the newest of what its owner's trainings taught, and nobody else's."""

from __future__ import annotations

import math
from typing import Any

import pytest
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent, by_work, principal
from simulated_pool import prepare
from simulated_service import SMALL, Service
from simulated_trainings import BASE, Trainings
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.quality.covariance import Posterior
from edgefront.core.schemas.jobs import JobRequest, JobView
from edgefront.core.schemas.service import JobLawView
from edgefront.core.services.jobs import job_views
from edgefront.core.services.jobs.answers import law, recommendation
from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.quality import laws
from edgefront.core.store.tables import Candidate, Job, OwnerLaw, Target
from edgefront.core.training.proxies.score import score_by

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
    found = service.finish(agent, asked())
    assert found.request.proxy == "quality_law"
    return found


def rows(service: Service, job_id: str) -> list[Candidate]:
    with service.database.read() as session:
        return list(session.scalars(select(Candidate).where(Candidate.job_id == job_id).order_by(Candidate.number)))


def view(service: Service, job_id: str) -> JobLawView:
    return law.job_law_view(service.database, service.user, job_id)


def short(service: Service, job_id: str) -> str:
    """The answer in lists of jobs."""
    with service.database.read() as session:
        job, targets = (
            session.get_one(Job, job_id),
            list(session.scalars(select(Target).where(Target.job_id == job_id))),
        )
        return job_views.answers_of(session, [job], targets)[targets[0].id]


def test_answers_read_what_trainings_of_its_models_taught(
    service: Service, trainings: Trainings, agent: SimulatedAgent, job: JobView
) -> None:
    before = rows(service, job.id)
    first = view(service, job.id)
    assert first.law is not None
    assert first.law == first.answers
    assert (first.law.law, first.law.updated_at, first.agreement) == (BASE, None, None)

    trainings.end_all([each for each in trainings.candidates(job.id, 20) if each.role == "search"][:5])
    trainings.learn()
    (taught,) = trainings.laws()
    shown = view(service, job.id)
    assert shown.law == first.law, "the search was by it"
    assert shown.answers is not None
    assert (shown.answers.law, shown.answers.models, shown.answers.relative_to) == (taught.name, 5, None)
    answered = recommendation.answer(service.database, service.user, job.id)
    assert "recipe quick" in answered.perplexity_of
    assert answered.recommended is not None
    assert answered.recommended.predicted is not None
    assert (answered.recommended.predicted.law, answered.recommended.predicted.relative_to) == (taught.name, None)
    assert [row.predicted for row in rows(service, job.id)] == [row.predicted for row in before]
    assert short(service, job.id) == answered.short

    # A job whose models taught nothing keeps its law, until it names the other.
    other = service.finish(agent, asked(seed=8, space={"name": "lts-gpt2", "narrow": SMALL | {"d_model": [256]}}))
    unchanged = view(service, other.id)
    assert unchanged.answers == unchanged.law == first.law


def test_short_trainings_change_no_answer(service: Service, trainings: Trainings, job: JobView) -> None:
    models = [each for each in trainings.candidates(job.id, 20) if each.role == "search"]
    trainings.end(models[0], 25.64, read=10**9)
    trainings.learn()
    before = recommendation.answer(service.database, service.user, job.id)
    for model, perplexity in zip(models[1:4], (7.8, 7.1, 7.4), strict=True):
        trainings.end(model, perplexity, read=40, budget={"steps": 2})
    trainings.learn()
    (law_row,) = trainings.laws()
    after = recommendation.answer(service.database, service.user, job.id)
    assert [each["trained"] for each in law_row.left_out] == [25.64]
    assert "1,000,000,000 steps" in law_row.summary["trained"], "the label says what taught it"
    for name in ("recommended", "baseline", "sentence", "perplexity_of", "note"):
        assert getattr(after, name) == getattr(before, name)
    assert before.recommended is not None
    assert before.recommended.predicted is not None
    assert "not on letters" not in before.note, "the law is of this very data set"
    options = after.train.split(maxsplit=2)
    assert options[1] != models[0].id, "it is trained"
    assert options[2].startswith("--data letters --recipe quick --set title= --set steps=3 ")
    shown = {each.candidate_id: each for each in after.trained}
    assert {each.candidate_id for each in before.trained} <= set(shown)
    assert all(each.ranks == (each.candidate_id == models[0].id) for each in shown.values())


def test_a_training_on_other_data_hides_no_trained_perplexity(
    service: Service, trainings: Trainings, job: JobView
) -> None:
    best = recommendation.answer(service.database, service.user, job.id).recommended
    assert best is not None
    (chosen,) = [each for each in trainings.candidates(job.id, 99) if each.id == best.id]
    others = [each for each in trainings.candidates(job.id, 20) if each.id != best.id][:2]
    trainings.end(chosen, 25.0)
    prepare(trainings.pool.settings.data_folder, "words")
    for model in others:
        trainings.end(model, 5.0, dataset="words")
    found = recommendation.answer(service.database, service.user, job.id)
    (score,) = [each for each in found.trained if each.candidate_id == found.recommended.id]  # type: ignore[union-attr]
    assert (score.perplexity, score.dataset, score.ranks) == (pytest.approx(27.5), "letters", False)


def test_a_perplexity_outside_its_interval_widens_all(service: Service, trainings: Trainings, job: JobView) -> None:
    models = trainings.candidates(job.id, 6)
    trainings.end_all(models[:5])
    trainings.learn()
    before = recommendation.answer(service.database, service.user, job.id)
    trainings.end(models[5], 9.0)  # not learnt from yet
    after = recommendation.answer(service.database, service.user, job.id)
    assert "outside its predicted interval" not in before.note
    assert "outside its predicted interval" in after.note
    for view in (after.recommended, *(other.candidate for other in after.runners_up)):
        assert view is not None
        assert view.predicted is not None
        assert view.predicted.perplexity_low < view.predicted.perplexity / 2  # type: ignore[operator]


def test_a_ratio_is_never_compared_with_a_perplexity(service: Service, trainings: Trainings, job: JobView) -> None:
    """One training: the law without it gives ratios alone, and so did the law of the search."""
    first, second = trainings.candidates(job.id, 2)
    trainings.end(first, 249.39)
    assert view(service, job.id).agreement is None
    trainings.learn()
    assert view(service, job.id).agreement is None
    trainings.end(second, 250.0)
    trainings.learn()
    found = view(service, job.id).agreement
    assert found is not None
    assert all(100 < row.predicted < 600 for row in found.rows)
    assert found.models == 2


def test_agreement_says_how_many_intervals_held(service: Service, trainings: Trainings, job: JobView) -> None:
    trainings.end_all(trainings.candidates(job.id, 5))
    trainings.learn()
    trainings.end(trainings.candidates(job.id, 6)[5])  # not learnt from yet
    found = view(service, job.id).agreement
    assert found is not None
    assert (found.models, found.alike, found.split) == (5, True, "valid")
    assert all(row.learnt_from for row in found.rows)
    assert found.held == sum(row.low <= row.trained <= row.high for row in found.rows) >= 4
    assert [row.trained for row in found.rows] == sorted(row.trained for row in found.rows)


def test_a_law_of_other_data_is_compared_by_what_was_predicted(
    service: Service, trainings: Trainings, agent: SimulatedAgent
) -> None:
    made = service.finish(agent, asked(proxy_settings={"law": "hwgpt-gpt2-openwebtext"}))
    trainings.end_all(trainings.candidates(made.id, 3))
    trainings.learn()
    found = view(service, made.id)
    assert found.answers == found.law
    assert found.agreement is not None
    assert (found.agreement.models, found.agreement.alike) == (3, False)
    assert not any(row.learnt_from for row in found.agreement.rows)


@ON_BOTH
def test_the_law_of_a_job_with_a_hundred_trainings_fits_and_parses_nothing(
    service: Service, trainings: Trainings, job: JobView, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = trainings.candidates(job.id, 12)
    trainings.end_all(candidates)
    trainings.learn()
    with service.database.write() as session:
        row = session.scalars(select(OwnerLaw)).one()
        row.left_out = [{**row.left_out[0], "training_id": f"trn_{place}"} for place in range(88)] + row.left_out
    view(service, job.id)  # parses the law, once in a process
    counted = list[str]()

    def count(name: str, *_: object) -> None:
        counted.append(name)
        raise AssertionError(name)

    for name in ("of", "after", "predict", "ratio", "expected"):
        monkeypatch.setattr(Posterior, name, lambda *given, name=name: count(name, *given))
    monkeypatch.setattr(laws, "from_json", lambda *given: count("from_json", *given))
    found = view(service, job.id)
    assert found.agreement is not None
    assert found.agreement.models == len(candidates)
    assert counted == []


def test_a_job_searches_by_the_law_that_it_began_with(
    service: Service, trainings: Trainings, agent: SimulatedAgent, job: JobView
) -> None:
    trainings.end_all(trainings.candidates(job.id, 5))
    trainings.learn()
    (taught,) = trainings.laws()
    second = service.submit(asked(proxy_settings={"law": taught.name}, seed=8))
    assert second.request.proxy_settings.law == taught.name
    trainings.end(trainings.candidates(job.id, 6)[5], 1_000.0)  # far off: the law that replaces it predicts otherwise
    trainings.learn()
    service.run(agent)
    assert service.get(second.id).state == "finished"
    found = rows(service, second.id)
    assert {candidate.predicted["law"] for candidate in found} == {taught.name}  # type: ignore[index]
    assert all(candidate.proxy == pytest.approx(-math.log(candidate.predicted["perplexity"])) for candidate in found)  # type: ignore[index]
    began = laws.from_json(taught.document)
    shapes = [Architecture.model_validate(candidate.architecture) for candidate in found]
    assert [candidate.proxy for candidate in found] == pytest.approx([score_by(began, shape) for shape in shapes])
    shown = view(service, second.id)
    assert (shown.law.models, shown.answers.models) == (5, 6)  # type: ignore[union-attr]
    answered = recommendation.answer(service.database, service.user, second.id).recommended
    assert answered is not None
    assert answered.predicted is not None
    stored = next(candidate for candidate in found if candidate.id == answered.id)
    assert answered.predicted.perplexity != pytest.approx(stored.predicted["perplexity"])  # type: ignore[index]


def test_a_job_names_no_law_of_another_owner(service: Service, trainings: Trainings, job: JobView) -> None:
    trainings.end_all(trainings.candidates(job.id, 2))
    trainings.learn()
    (taught,) = trainings.laws()
    by_name = asked(proxy_settings={"law": taught.name})
    assert estimate(service.database, service.user, by_name, Fits()).refusals == ()
    eve = principal(service.database, owner="eve")
    (refusal,) = estimate(service.database, eve, by_name, Fits()).refusals
    assert refusal.field == "proxy_settings.law"
    assert taught.name not in refusal.allowed
    wrong = asked(proxy_settings={"law": f"{taught.name}@9"})
    with pytest.raises(
        InvalidInput, match=rf"proxy_settings\.law: no scaling law '{taught.name}@9' exists; .*{taught.name}"
    ):
        service.create(wrong)
    with pytest.raises(InvalidInput, match="has transformer-xl models"):
        service.create(asked(space={"name": "lts-transformer-xl"}, proxy_settings={"law": taught.name}))
    with pytest.raises(NotFound):
        law.job_law_view(service.database, eve, job.id)


def test_trainings_of_another_owner_change_no_answer(
    service: Service, trainings: Trainings, agent: SimulatedAgent, job: JobView
) -> None:
    """Two owners with the same search: the models have the same digests."""
    eve = principal(service.database, owner="eve")
    mine, service.user = service.user, eve
    theirs = service.finish(agent, asked())
    assert {row.digest for row in rows(service, theirs.id)} & {row.digest for row in rows(service, job.id)}

    def answered() -> Any:
        return (
            recommendation.answer(service.database, eve, theirs.id),
            law.job_law_view(service.database, eve, theirs.id),
            service.get(theirs.id),
            short(service, theirs.id),
        )

    before = answered()
    trainings.pool.user = mine
    trainings.end_all(trainings.candidates(job.id, 4))
    trainings.learn()
    assert answered() == before
    assert len(recommendation.answer(service.database, mine, job.id).trained) > 0
