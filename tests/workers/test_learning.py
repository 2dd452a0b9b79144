"""The embedded worker refines laws and moves jobs to them, when it is told of it and when its message was lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_agent import SimulatedAgent
from simulated_pool import Pool, settings_for
from simulated_service import SMALL, Service, request
from simulated_trainings import Trainings
from sqlalchemy import select

from edgefront.core.services.dispatch import sender
from edgefront.core.services.jobs import law
from edgefront.core.services.quality import laws, refits
from edgefront.core.store.database import Database
from edgefront.core.store.tables import WantedRefit
from edgefront.core.wire.jobs import JobView
from edgefront.core.wire.laws import LawRequest
from edgefront.workers import laws as worker_laws
from edgefront.workers.embedded import EmbeddedWorker


@pytest.fixture
def service(sqlite_url: str, open_database: Callable[..., Database]) -> Service:
    return Service(open_database(sqlite_url))


@pytest.fixture
def trainings(service: Service, tmp_path: Path) -> Trainings:
    url = service.database.url.render_as_string(hide_password=False)
    pool = Pool(service.database, settings_for(url, tmp_path, slots=0))
    pool.user = service.user
    return Trainings(pool)


@pytest.fixture
def job(service: Service) -> JobView:
    agent = SimulatedAgent(service.database)
    made = service.submit(request(space={"name": "lts-gpt2", "narrow": SMALL}, proxy="quality_law"))
    service.run(agent)
    return service.get(made.id)


def test_what_was_lost_is_found_and_what_is_asked_for_is_done(
    service: Service, trainings: Trainings, job: JobView
) -> None:
    settings = trainings.pool.settings
    trainings.end_all(trainings.candidates(job.id, 5))
    with service.database.write() as session:
        (refit,) = session.scalars(select(WantedRefit)).all()
        refit.wanted_at -= 2 * refits.LOST_AFTER
    service.database.send = sender(settings)
    with EmbeddedWorker(settings, service.database):
        trainings.pool.until(trainings.versions)
        (row,) = trainings.versions()
        law.move(service.database, service.user, job.id, LawRequest(law=row.name))
        trainings.pool.until(lambda: law.law_view(service.database, service.user, job.id).moving_to is None)
    view = law.law_view(service.database, service.user, job.id)
    assert view.law is not None
    assert view.law.law == laws.reference(row)


def test_what_cannot_be_done_is_not_tried_for_ever(
    service: Service, trainings: Trainings, job: JobView, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings.end_all(trainings.candidates(job.id, 5))

    def broken(*_: object) -> None:
        raise ValueError("no law for you")

    monkeypatch.setattr(refits, "_fit", broken)
    with service.database.read() as session:
        (key,) = session.scalars(select(WantedRefit.comparability_key)).all()
    worker_laws.refit(service.database, key)
    with service.database.read() as session:
        assert session.scalars(select(WantedRefit)).all() == []
    law.move(service.database, service.user, job.id, LawRequest(law="hwgpt-gpt2-openwebtext"))
    monkeypatch.setattr(law, "_predicted", broken)
    worker_laws.move(service.database, job.id)
    assert law.law_view(service.database, service.user, job.id).moving_to is None
