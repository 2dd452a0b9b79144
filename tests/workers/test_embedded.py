"""The worker within the process: solo, on the memory transport, with its own sweeps, and scores in a process beside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from concurrency import until
from databases import ON_BOTH
from simulated_agent import SimulatedAgent, principal
from simulated_service import any_limits, request
from sqlalchemy import select

from edgefront.core.services.dispatch import queue_name, sender
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.settings import DatabaseSettings, LeaseSettings, Settings
from edgefront.core.services.tasks import ADVANCE
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate
from edgefront.workers.app import EmbeddedWorker


def settings_for(url: str, home: Path, sweep_s: float = 0.2) -> Settings:
    return Settings(home=home, database=DatabaseSettings(url=url), leases=LeaseSettings(sweep_s=sweep_s))


def run_to_its_end(database: Database, agent: SimulatedAgent, job_id: str, user: object) -> None:
    def finished() -> bool:
        agent.step()
        with database.read() as session:
            return jobs.get_job(session, user, job_id, database.now(session)).state == "finished"  # type: ignore[arg-type]

    until(finished)


@ON_BOTH
def test_messages_reach_the_worker_of_this_process(
    database_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    settings = settings_for(database_url, tmp_path, sweep_s=600)
    database = open_database(database_url, send=sender(settings))
    agent, user = SimulatedAgent(database), principal(database)
    others = set(threading.enumerate())
    with EmbeddedWorker(settings, database):
        job = jobs.submit_job(database, user, request(), any_limits)
        run_to_its_end(database, agent, job.id, user)
    with database.read() as session:
        assert len(session.scalars(select(Candidate)).all()) == 21
    left = set(threading.enumerate()) - others
    assert not [thread for thread in left if thread.name.startswith("edgefront-")]


def test_unfinished_work_is_found_on_start_and_by_sweeps(
    sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    """Nothing is ever sent: the rescan on start asks for the baselines, the sweeps after it do the rest."""
    settings = settings_for(sqlite_url, tmp_path, sweep_s=0.1)
    silent = open_database(sqlite_url)
    agent, user = SimulatedAgent(silent), principal(silent)
    job = jobs.submit_job(silent, user, request(), any_limits)
    # The worker's database sends: a sweep's finding has to reach the worker that made it.
    with EmbeddedWorker(settings, open_database(sqlite_url, send=sender(settings))):
        run_to_its_end(silent, agent, job.id, user)


def test_two_services_in_one_process_do_not_take_each_others_tasks(tmp_path: Path) -> None:
    first = settings_for(f"sqlite:///{tmp_path / 'one.db'}", tmp_path)
    second = settings_for(f"sqlite:///{tmp_path / 'two.db'}", tmp_path)
    assert queue_name(first) != queue_name(second)
    assert queue_name(first) == queue_name(settings_for(f"sqlite:///{tmp_path / 'one.db'}", tmp_path / "other"))


def test_a_worker_that_stops_finishes_what_it_does(
    sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    """Stopping right after a task was sent leaves whole steps behind, and the next start goes on."""
    settings = settings_for(sqlite_url, tmp_path)
    database = open_database(sqlite_url, send=sender(settings))
    agent, user = SimulatedAgent(database), principal(database)
    worker = EmbeddedWorker(settings, database)
    worker.start()
    job = jobs.submit_job(database, user, request(), any_limits)
    assert database.send is not None
    database.send(ADVANCE, {"target_id": job.targets[0].id})
    worker.stop()
    worker.stop()
    with EmbeddedWorker(settings, database):
        run_to_its_end(database, agent, job.id, user)
