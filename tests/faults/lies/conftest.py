"""A running API on real databases, and devices that talk to it over HTTP: honest ones, and liars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dishonest import Fleet
from running_api import Service, address, running

from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.store.database import Database


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[[Database], Service]]:
    with ExitStack() as stack:

        def start(database: Database) -> Service:
            settings = Settings(
                home=tmp_path / "home",
                database=DatabaseSettings(url=database.url.render_as_string(hide_password=False)),
            )
            server = stack.enter_context(running(settings, database))
            return Service(address(server), database, settings, server, stack)

        yield start


@pytest.fixture
def service(database: Database, start_service: Callable[[Database], Service]) -> Service:
    """On SQLite and on Postgres."""
    return start_service(database)


@pytest.fixture
def fleet(service: Service) -> Fleet:
    return Fleet(service)
