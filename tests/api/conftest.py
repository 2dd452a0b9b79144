"""A running API on real databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_api import Service, address, running

from edgefront.core.services.settings import (
    BrokerSettings,
    DatabaseSettings,
    HttpSettings,
    LeaseSettings,
    Settings,
)
from edgefront.core.store.database import Database


@pytest.fixture
def anyio_backend() -> str:
    """The API runs on asyncio."""
    return "asyncio"


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """`start_service(database, **http_settings)`: a running API on `database`."""
    with ExitStack() as stack:

        def start(database: Database, leases: LeaseSettings | None = None, **http: Any) -> Service:
            settings = Settings(
                home=tmp_path / "home",
                database=DatabaseSettings(url=database.url.render_as_string(hide_password=False)),
                broker=BrokerSettings(),
                leases=leases or LeaseSettings(),
                http=HttpSettings(**http),
            )
            server = stack.enter_context(running(settings, database))
            return Service(address(server), database, settings, server, stack)

        yield start


@pytest.fixture
def service(database: Database, start_service: Callable[..., Service]) -> Service:
    """A running API on SQLite and on Postgres."""
    return start_service(database)


@pytest.fixture
def sqlite_service(
    sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]
) -> Service:
    """A running API on SQLite: for what does not reach the database."""
    return start_service(open_database(sqlite_url))


@pytest.fixture
def client(service: Service) -> httpx.Client:
    """A user, bob."""
    return service.client("user", "bob")


@pytest.fixture
def bob(sqlite_service: Service) -> httpx.Client:
    """The same on SQLite."""
    return sqlite_service.client("user", "bob")
