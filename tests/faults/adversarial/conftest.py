"""A running API on real databases, and devices that talk to it over HTTP: honest ones, and liars."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dishonest import Fleet
from running_api import Service

from edgefront.core.store.database import Database


@pytest.fixture
def service(database: Database, start_service: Callable[[Database], Service]) -> Service:
    """On SQLite and on Postgres."""
    return start_service(database)


@pytest.fixture
def fleet(service: Service) -> Fleet:
    return Fleet(service)
