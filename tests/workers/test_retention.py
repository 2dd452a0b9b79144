"""Retention: what ended long ago is deleted with its files, what is needed stays, and a dry run deletes nothing."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from simulated_agent import SimulatedAgent
from simulated_pool import Pool, prepare, settings_for
from simulated_service import Service, request
from sqlalchemy import update

from edgefront.core.common.states import TrainingState
from edgefront.core.services.settings import RetentionSettings
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Job, Training
from edgefront.workers import retention
from edgefront.workers.retention import delete_expired, expired


@pytest.fixture
def pool(database: Database, sqlite_url: str, tmp_path: Path) -> Pool:
    settings = settings_for(sqlite_url, tmp_path)
    prepare(settings.data_folder)
    return Pool(database, settings)


def ended(pool: Pool, *, days_ago: float, size: int = 10) -> str:
    """A training that ended some days ago, with a file of `size` bytes."""
    training_id = pool.submit()
    with pool.database.write() as session:
        at = pool.database.now(session) - timedelta(days=days_ago)
        values = {"state": TrainingState.DONE, "finished_at": at}
        session.execute(update(Training).where(Training.id == training_id).values(**values))
    folder = training_folder(pool.settings, training_id)
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(size))
    return training_id


def test_nothing_is_deleted_until_it_is_set(pool: Pool) -> None:
    ended(pool, days_ago=999)
    assert expired(pool.database, pool.settings) == []


def test_old_jobs_and_trainings_go_with_their_files(pool: Pool) -> None:
    service = Service(pool.database)
    old, new = (service.finish(SimulatedAgent(pool.database), request(name=name)) for name in ("old", "new"))
    with pool.database.write() as session:
        at = pool.database.now(session) - timedelta(days=31)
        session.execute(update(Job).where(Job.id == old.id).values(finished_at=at))
    first, second = ended(pool, days_ago=31), ended(pool, days_ago=29)
    pool.settings.retention = RetentionSettings(jobs_days=30, trainings_days=30)
    assert [item.id for item in expired(pool.database, pool.settings)] == [old.id, first]
    assert delete_expired(pool.database, pool.settings) == 2
    assert not training_folder(pool.settings, first).exists()
    assert training_folder(pool.settings, second).exists()
    assert service.get(new.id).state == "finished"
    assert expired(pool.database, pool.settings) == []


def test_the_oldest_go_first_beyond_a_bound_of_bytes(pool: Pool) -> None:
    oldest, older, newest = (ended(pool, days_ago=days, size=100) for days in (3, 2, 1))
    waiting = pool.submit()
    with pool.database.write() as session:  # needs the weights of the oldest
        training = session.get(Training, waiting)
        assert training is not None
        training.request = {**training.request, "start": oldest}
    pool.settings.retention = RetentionSettings(trainings_bytes=250)
    assert [item.id for item in expired(pool.database, pool.settings)] == [older]
    pool.settings.retention = RetentionSettings(trainings_bytes=1)
    assert [item.id for item in expired(pool.database, pool.settings)] == [older, newest]


def test_a_dry_run_lists_and_deletes_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = ended(pool, days_ago=31)
    for name, value in pool.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EDGEFRONT_RETENTION__TRAININGS_DAYS", "30")
    monkeypatch.delenv("EDGEFRONT_RETENTION")
    monkeypatch.setattr(sys, "argv", ["retention", "--dry-run"])
    retention.main()
    assert capsys.readouterr().out.startswith(f"training {old} of ")
    assert training_folder(pool.settings, old).exists()
    monkeypatch.setattr(sys, "argv", ["retention"])
    retention.main()
    assert capsys.readouterr().out == "1 deleted\n"
    assert not training_folder(pool.settings, old).exists()
