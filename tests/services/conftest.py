from __future__ import annotations

from pathlib import Path

import pytest
from leasing import Leasing, SentTasks
from simulated_agent import SimulatedAgent
from simulated_pool import Pool, pool_of
from simulated_service import Service
from simulated_trainings import Trainings

from edgefront.core.store.database import Database


@pytest.fixture
def sent_tasks(database: Database) -> SentTasks:
    """The tasks that were sent."""
    found: SentTasks = []
    database.send = lambda task, arguments: found.append((task, arguments))
    return found


@pytest.fixture
def leasing(database: Database, sent_tasks: SentTasks) -> Leasing:
    return Leasing(database)


@pytest.fixture
def service(database: Database) -> Service:
    return Service(database)


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database)


@pytest.fixture
def pool(database: Database, tmp_path: Path) -> Pool:
    """A pool of trainings whose worker has four GPUs."""
    return pool_of(database, tmp_path, gpus=4)


@pytest.fixture
def trainings(service: Service, tmp_path: Path) -> Trainings:
    pool = pool_of(service.database, tmp_path)
    pool.user = service.user
    return Trainings(pool)
