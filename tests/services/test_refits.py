"""Quality laws that trainings refine: from the first on, numbered, and the same from the same trainings."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from databases import ON_SQLITE
from simulated_agent import SimulatedAgent
from simulated_service import SMALL, Service, request
from simulated_trainings import BASE, Trainings, perplexity_of
from sqlalchemy import delete, func, select, update

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import NotFound
from edgefront.core.quality.shipped import NAMES
from edgefront.core.quality.stored import from_json, summary
from edgefront.core.services.quality import laws, refits
from edgefront.core.services.sweep import sweep
from edgefront.core.services.tasks import REFIT
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.tables import Candidate, Evaluation, LawVersion, Training, WantedRefit

pytestmark = pytest.mark.slow


@pytest.fixture
def candidates(service: Service, trainings: Trainings) -> list[Candidate]:
    agent = SimulatedAgent(service.database)
    job = service.submit(request(space={"name": "lts-gpt2", "narrow": SMALL}))
    service.run(agent)
    return trainings.candidates(job.id, 12)


def wanted(service: Service, trainings: Trainings) -> str:
    """Requests a refit of the trainings again; returns their comparability key."""
    with service.database.write() as session:
        key = session.scalars(select(Evaluation.details)).first()["comparability_key"]  # type: ignore[index]
        session.add(WantedRefit(comparability_key=key, wanted_at=service.database.now(session)))
    return str(key)


@ON_SQLITE
def test_from_the_first_training_on_each_makes_a_version(
    service: Service, trainings: Trainings, candidates: list[Candidate]
) -> None:
    trainings.end(candidates[0])
    trainings.learn(service)
    trainings.end_all(candidates[1:4])
    trainings.end(candidates[0])  # a second training of one architecture is no fifth model
    trainings.learn(service)
    first, second = trainings.versions()
    assert (first.version, second.version) == (1, 2)
    assert (first.models, second.models) == (1, 4)
    assert first.name == second.name
    assert first.name.startswith(f"{BASE}-")
    assert (first.base, first.dataset, first.recipe) == (BASE, "letters", "quick")
    trainings.end(candidates[6], overrides={"segment": 8, "steps": 4, "schedule": {"warmup": 0}})  # another budget
    trainings.learn(service)
    (other,) = [row for row in trainings.versions() if row.name != first.name]
    assert (other.version, other.models) == (1, 1)


@ON_SQLITE
def test_a_refined_law_predicts_what_its_trainings_come_to(
    service: Service, trainings: Trainings, candidates: list[Candidate]
) -> None:
    trainings.end_all(candidates[:7])
    trainings.learn(service)
    (row,) = trainings.versions()
    law = from_json(row.law)
    assert summary(law)["prior"] == BASE
    assert law.relative_to is None, "own trainings tell what perplexities are"
    for words in ("letters", "recipe quick", "3 steps"):
        assert words in f"{law.origin.data} {law.origin.trained}"
    others = [Architecture.model_validate(candidate.architecture) for candidate in candidates[7:]]
    true = np.log([perplexity_of(other) for other in others])
    refined = law.predict(Shapes.of(others))
    assert np.abs(refined.log_perplexity - true).max() < 0.1
    assert (np.abs(refined.log_perplexity - true) <= refined.half_width).all()


def test_the_same_trainings_give_the_same_bytes_once(
    service: Service, trainings: Trainings, candidates: list[Candidate]
) -> None:
    trainings.end_all(candidates[:6])
    trainings.learn(service)
    (row,) = trainings.versions()
    refits.refit(service.database, wanted(service, trainings))
    assert [version.id for version in trainings.versions()] == [row.id]
    with service.database.write() as session:
        session.execute(delete(LawVersion))
        # Rows come in another order: the first training is stored again.
        session.execute(update(Evaluation).where(Evaluation.value == perplexity(candidates[0])).values(id="evl_z"))
    refits.refit(service.database, wanted(service, trainings))
    (again,) = trainings.versions()
    assert again.id != row.id
    assert (again.law, again.rows_digest) == (row.law, row.rows_digest)


def perplexity(candidate: Candidate) -> float:
    return perplexity_of(Architecture.model_validate(candidate.architecture))


def test_two_at_once_store_one_version(service: Service, trainings: Trainings, candidates: list[Candidate]) -> None:
    trainings.end_all(candidates[:5])
    with service.database.read() as session:
        (key,) = session.scalars(select(WantedRefit.comparability_key)).all()
    barrier, failures = threading.Barrier(2), list[Exception]()

    def learn() -> None:
        try:
            barrier.wait()
            refits.refit(service.database, key)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=learn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [version.version for version in trainings.versions()] == [1]
    with service.database.read() as session:
        assert session.scalar(select(func.count()).select_from(WantedRefit)) == 0


@ON_SQLITE
def test_a_training_that_ends_meanwhile_is_in_the_version(
    service: Service, trainings: Trainings, candidates: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings.end_all(candidates[:5])
    fit, seen = refits._fit, list[int]()

    def slow(group: Any, curves: Any, key: str) -> Any:
        seen.append(service.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        if len(seen) == 1:
            trainings.end(candidates[5])
        return fit(group, curves, key)

    monkeypatch.setattr(refits, "_fit", slow)
    trainings.learn(service)
    trainings.learn(service)  # the task of the sixth
    assert [(version.version, version.models) for version in trainings.versions()] == [(1, 6)]
    assert seen == [0, 0]  # no transaction is held while a law is fitted


def test_failed_trainings_and_endless_perplexities_teach_nothing(
    service: Service, trainings: Trainings, candidates: list[Candidate]
) -> None:
    trainings.end_all(candidates[:5])
    trainings.end(candidates[5], ending="invalid")
    values = [float("inf"), 0.0]
    if service.database.engine.dialect.name == "postgresql":  # SQLite stores no NaN
        values.append(float("nan"))
    for place, value in enumerate(values, start=6):
        trainings.end(candidates[place], value)
    trainings.learn(service)
    assert [version.models for version in trainings.versions()] == [5]
    with service.database.write() as session:
        session.execute(update(Training).where(Training.digest == candidates[0].digest).values(state="failed"))
    refits.refit(service.database, wanted(service, trainings))
    assert [version.models for version in trainings.versions()] == [5, 4]


@ON_SQLITE
def test_trainings_that_all_come_out_alike_teach_the_shift(
    service: Service, trainings: Trainings, candidates: list[Candidate]
) -> None:
    for candidate in candidates[:5]:
        trainings.end(candidate, 50.0)
    trainings.learn(service)
    (row,) = trainings.versions()
    predicted = from_json(row.law).predict(Shapes.of([Architecture.model_validate(candidates[0].architecture)]))
    assert predicted.low[0] < 50 < predicted.high[0]
    with service.database.read() as session:
        assert session.scalar(select(func.count()).select_from(WantedRefit)) == 0


@ON_SQLITE
def test_a_lost_task_is_sent_again(service: Service, trainings: Trainings, candidates: list[Candidate]) -> None:
    trainings.end_all(candidates[:5])
    service.tasks.others.clear()
    with service.database.write() as session:
        sweep(session, service.database.now(session))
    assert REFIT not in [task for task, _ in service.tasks.others]
    with service.database.write() as session:
        sweep(session, service.database.now(session) + timedelta(minutes=2))
    trainings.learn(service)
    assert len(trainings.versions()) == 1


@ON_SQLITE
def test_laws_are_listed_with_the_newest_version(
    service: Service, trainings: Trainings, candidates: list[Candidate]
) -> None:
    assert [view.version for view in laws.views(service.database)] == [0] * len(NAMES)
    trainings.end_all(candidates[:5])
    trainings.learn(service)
    trainings.end(candidates[5])
    trainings.learn(service)
    *_, view = laws.views(service.database)
    assert (view.version, view.table_models, view.prior) == (2, 6, BASE)
    assert laws.law_view(service.database, view.name).version == 2
    assert laws.law_view(service.database, f"{view.name}@1").table_models == 5
    for unknown in (f"{view.name}@3", "nothing", "a@b@c", "@1"):
        with pytest.raises(NotFound, match=f"there are {BASE}.*{view.name}@2"):
            laws.law_view(service.database, unknown)
