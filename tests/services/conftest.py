from __future__ import annotations

from pathlib import Path

import pytest
from lease_world import World
from simulated_agent import SimulatedAgent
from simulated_pool import Pool, settings_for
from simulated_service import Service
from simulated_trainings import Trainings

from edgefront.core.store.database import Database


@pytest.fixture
def sent(database: Database) -> list[tuple[str, dict[str, object]]]:
    """The tasks that were sent."""
    found: list[tuple[str, dict[str, object]]] = []
    database.send = lambda task, arguments: found.append((task, arguments))
    return found


@pytest.fixture
def world(database: Database, sent: list[tuple[str, dict[str, object]]]) -> World:
    return World(database)


@pytest.fixture
def service(database: Database) -> Service:
    return Service(database)


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database)


@pytest.fixture
def trainings(service: Service, tmp_path: Path) -> Trainings:
    url = service.database.url.render_as_string(hide_password=False)
    pool = Pool(service.database, settings_for(url, tmp_path))
    pool.user = service.user
    return Trainings(pool)
