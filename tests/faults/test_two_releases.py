"""Processes of one release on a database that another has migrated: they do nothing, say why, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from databases import ON_BOTH
from running_api import Service, job, problem
from simulated_agent import SimulatedAgent
from sqlalchemy import text

from edgefront.core.common.errors import Unavailable
from edgefront.core.common.states import WorkKind
from edgefront.core.services import work
from edgefront.core.services.settings import Settings
from edgefront.core.store import database as database_module
from edgefront.core.store.database import Database
from edgefront.workers.sweep import sweep_once
from edgefront.workers.work import Worker

REASON = "the database has the schema 9999, and this release needs"


@pytest.fixture
def service(database: Database, start_service: Callable[..., Service]) -> Service:
    return start_service(database)


@contextmanager
def migrated(database: Database) -> Iterator[None]:
    """Migrates the database to a newer release, which renames a table, while processes of this release run."""
    names = ("launch", "launches")
    revision = database_module._scripts().get_current_head()
    for (old, new), version in ((names, "9999"), (names[::-1], revision)):
        with database.engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": version})
        if version == "9999":
            yield


@ON_BOTH
@pytest.mark.parametrize("checked_s", [0.0, 3600.0], ids=["checked before each session", "checked long ago"])
def test_a_migration_under_running_processes(
    service: Service, monkeypatch: pytest.MonkeyPatch, checked_s: float
) -> None:
    database, client = service.database, service.client("user", "bob")
    board = SimulatedAgent(database)
    made = service.submit(client)
    worker = Worker(database, Settings())
    monkeypatch.setattr(database_module, "SCHEMA_CHECK_S", checked_s)
    with migrated(database):
        for queue in (*work.QUEUES, *work.QUEUES, *work.QUEUES, *work.QUEUES):
            worker.work(queue)
        sweep_once(database)
        with pytest.raises(Unavailable, match=REASON):
            board.step()
        answer = problem(client.post("/v1/jobs", json=job(name="during")), 503)
        assert REASON in answer["detail"]
        assert int(client.get("/v1/jobs").headers["retry-after"]) >= 1
        assert REASON in client.get("/v1/ready").json()["checks"]["migrations"]
    service.measure(board)
    view = client.get(f"/v1/jobs/{made['id']}").json()
    assert view["state"] == "finished", view


def test_an_error_of_the_database_uses_up_no_attempt_and_ends_no_job(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, client = service.database, service.client("user", "bob")
    board = SimulatedAgent(database)
    made = service.submit(client)
    worker = Worker(database, Settings())

    def broken(*_: object) -> bool:
        with database.read() as session:
            session.execute(text("SELECT no_such_column FROM job"))
        return False

    with monkeypatch.context() as patched:
        patched.setattr("edgefront.workers.work.take_short_steps", broken)
        for _ in range(2 * work.WORK_ATTEMPTS):
            worker.requested(WorkKind.ADVANCE, made["targets"][0]["id"])
    service.measure(board)
    assert client.get(f"/v1/jobs/{made['id']}").json()["state"] == "finished"
