"""What the tasks do when something is away or goes wrong, and how messages are sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from concurrency import at_once
from databases import ON_BOTH
from simulated_agent import SimulatedAgent, by_size
from simulated_service import Service, advance_target, request
from sqlalchemy import select
from sqlalchemy.orm import Session

import servers
from edgefront.core.common.errors import Unavailable
from edgefront.core.services.dispatch import sender
from edgefront.core.services.settings import BrokerSettings, Settings
from edgefront.core.services.tasks import SWEEP
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Event
from edgefront.workers import sweep as worker_sweep
from edgefront.workers.sweep import PARTS, sweep_once
from edgefront.workers.work import LOCK_ATTEMPTS


@pytest.fixture
def service(database: Database) -> Service:
    return Service(database)


class Flaky(Database):
    """A database of which the next `away` writes fail."""

    away = 0

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self.away:
            self.away -= 1
            raise Unavailable("the database is away")
        with super().write() as session:
            yield session


def test_a_database_that_is_unavailable_for_a_moment(sqlite_url: str) -> None:
    database = Flaky(sqlite_url)
    try:
        service = Service(database)
        SimulatedAgent(database)
        job = service.create()
        (target_id,) = service.inbox
        database.away = LOCK_ATTEMPTS
        advance_target(database, target_id)
        assert service.get(job.id).targets[0].candidates == 0  # left to the sweep
        database.away = LOCK_ATTEMPTS - 1
        advance_target(database, target_id)
        assert service.get(job.id).targets[0].candidates == 3
        database.away = 1
        sweep_once(database)
    finally:
        database.dispose()


@ON_BOTH
def test_workers_that_meet_come_to_one_result(service: Service) -> None:
    """Several workers and devices at once, on targets that share their measurements."""
    agents = [SimulatedAgent(service.database, by_size(0.01)) for _ in range(2)]
    jobs = [service.create(request(name=f"job {number}")) for number in range(3)]
    targets = [job.targets[0].id for job in jobs]

    def work() -> None:
        for target_id in targets:
            advance_target(service.database, target_id)

    for _ in range(60):
        at_once(*[work] * 2, *(partial(agent.step, 3) for agent in agents))
        if all(service.get(job.id).state == "finished" for job in jobs):
            break
    assert [service.get(job.id).state for job in jobs] == ["finished"] * 3
    with service.database.read() as session:
        for job in jobs:
            rows = session.scalars(select(Candidate).where(Candidate.job_id == job.id).order_by(Candidate.number)).all()
            assert [row.number for row in rows] == list(range(21))
            numbers = list(session.scalars(select(Event.number).where(Event.job_id == job.id).order_by(Event.number)))
            assert numbers == list(range(1, len(numbers) + 1))


def test_sending_to_an_unavailable_broker_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    send = sender(Settings(home=tmp_path, broker=BrokerSettings(url=f"redis://127.0.0.1:{servers.free_port()}/0")))
    with caplog.at_level(logging.DEBUG, "edgefront.core.services.dispatch"):
        send(SWEEP, {})
        send(SWEEP, {})  # not even tried: a broker that is away must not slow every request
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "the sweep sends it again" in warnings[0].message


def test_a_part_of_the_sweep_that_fails_stops_no_other(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    SimulatedAgent(service.database)
    job = service.create()
    service.inbox.clear()
    monkeypatch.setattr(worker_sweep, "PARTS", (broken, *PARTS, broken))
    sweep_once(service.database)
    service.work()
    assert service.get(job.id).targets[0].candidates == 3
    assert caplog.text.count("a part of the sweep failed: broken") == 2
