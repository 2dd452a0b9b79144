"""A service and leases, for the faults that they must stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from leasing import Leasing
from running_api import Service, starts  # noqa: F401

from edgefront.core.store.database import Database


@pytest.fixture
def leasing(database: Database) -> Leasing:
    return Leasing(database)


@pytest.fixture
def service(sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]) -> Service:
    return start_service(open_database(sqlite_url))
