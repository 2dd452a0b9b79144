"""A real worker process on a real Redis, killed in the middle and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from random import Random

import pytest
from celery_worker import celery_worker
from concurrency import until
from simulated_agent import SimulatedAgent, principal
from simulated_service import any_limits, request
from sqlalchemy import select

import servers
from edgefront.core.schemas.jobs import JobView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.dispatch import sender
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.services.settings import BrokerSettings, DatabaseSettings, Settings
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate


def worker(url: str, broker: str, home: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    environment = {
        "EDGEFRONT_DATABASE__URL": url,
        "EDGEFRONT_BROKER__URL": broker,
        "EDGEFRONT_HOME": str(home),
        "EDGEFRONT_LEASES__SWEEP_S": "0.5",
    }
    return celery_worker(os.environ | environment, home)


class Client:
    """A user and a device at one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.agent = SimulatedAgent(database)
        self.user: Principal = principal(database)

    def create(self, name: str = "search") -> JobView:
        asked = request(name=name, algorithm={"name": "lts", "settings": {"iterations": 5, "population": 8}})
        return jobs.submit_job(self.database, self.user, asked, any_limits)

    def get(self, job_id: str) -> JobView:
        with self.database.read() as session:
            return jobs.get_job(session, self.user, job_id, self.database.now(session))

    def measure_until(self, condition: Callable[[], bool]) -> None:
        def step() -> bool:
            self.agent.step()
            return condition()

        until(step)

    def proposed(self, job_id: str) -> list[tuple[int, str]]:
        with self.database.read() as session:
            rows = session.scalars(select(Candidate).where(Candidate.job_id == job_id).order_by(Candidate.number))
            return [(row.generation, row.digest) for row in rows]


@pytest.fixture
def redis_settings(postgres_url: str, redis_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database=DatabaseSettings(url=postgres_url), broker=BrokerSettings(url=redis_url))


def test_a_worker_killed_in_the_middle(
    redis_settings: Settings, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    url, broker = redis_settings.database_url, redis_settings.broker.url
    client = Client(open_database(url, send=sender(redis_settings)))
    with worker(url, broker, tmp_path) as process:
        job = client.create()
        client.measure_until(lambda: client.get(job.id).targets[0].generation >= 1)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    for _ in range(10):
        client.agent.step()  # measures what is left to measure; its messages wait or are lost
    assert client.get(job.id).state == "running"
    with worker(url, broker, tmp_path):
        client.measure_until(lambda: client.get(job.id).state == "finished")
        undisturbed = client.create("undisturbed")
        client.measure_until(lambda: client.get(undisturbed.id).state == "finished")
    assert client.proposed(job.id) == client.proposed(undisturbed.id)
    assert len(client.proposed(job.id)) == 3 + 8 + 4 * 6


@pytest.mark.parametrize("deaths", [3, pytest.param(30, marks=pytest.mark.long)])
def test_a_worker_survives_a_broker_that_dies_at_any_instant(
    deaths: int, postgres_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    random = Random(5)
    with closing(servers.OwnRedis()) as broker:
        broker.start()
        settings = Settings(
            home=tmp_path, database=DatabaseSettings(url=postgres_url), broker=BrokerSettings(url=broker.url)
        )
        client = Client(open_database(postgres_url, send=sender(settings)))
        with worker(postgres_url, broker.url, tmp_path) as process:
            job = client.create()
            client.measure_until(lambda: client.get(job.id).targets[0].generation >= 0)
            for _ in range(deaths):
                time.sleep(random.random())
                broker.kill()
                time.sleep(random.choice((0.0, 0.3)))
                broker.start()
                client.agent.step()
                assert process.poll() is None, "the worker ended with its broker"
            client.measure_until(lambda: client.get(job.id).state == "finished")
            assert process.poll() is None


def test_an_unavailable_broker_loses_nothing(
    postgres_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    port = servers.free_port()
    settings = Settings(
        home=tmp_path,
        database=DatabaseSettings(url=postgres_url),
        broker=BrokerSettings(url=f"redis://127.0.0.1:{port}/0"),
    )
    client = Client(open_database(postgres_url, send=sender(settings)))
    job = client.create()  # the commit stands, the message is lost
    assert client.get(job.id).state == "running"
    with servers.own_redis(port), worker(postgres_url, settings.broker.url, tmp_path):
        client.measure_until(lambda: client.get(job.id).targets[0].generation >= 0)
        with_redis = client.get(job.id).targets[0].generation
    with worker(postgres_url, settings.broker.url, tmp_path):
        for _ in range(5):
            client.agent.step()
        with servers.own_redis(port):
            client.measure_until(lambda: client.get(job.id).state == "finished")
    assert client.get(job.id).targets[0].generation == 4 > with_redis
