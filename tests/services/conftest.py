from __future__ import annotations

from collections.abc import Callable

import pytest
from lease_world import World
from simulated_service import Service

from edgefront.core.store.database import Database


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


@pytest.fixture
def service(database: Database) -> Service:
    return Service(database)


@pytest.fixture
def sqlite_service(sqlite_url: str, open_database: Callable[..., Database]) -> Service:
    return Service(open_database(sqlite_url))
