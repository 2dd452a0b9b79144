"""Worlds of other rooms, for the faults that they must stand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgefront.core.services.settings import DatabaseSettings, HttpSettings, OwnerSettings, Settings
from edgefront.core.store.database import Database

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("api", "services")]

from lease_world import World  # noqa: E402
from running_api import Service, address, running  # noqa: E402


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """`start_service(database, owners=…, **http_settings)`: a running API on `database`."""
    with ExitStack() as stack:

        def start(database: Database, owners: OwnerSettings | None = None, **http: Any) -> Service:
            settings = Settings(
                home=tmp_path / "home",
                database=DatabaseSettings(url=database.url.render_as_string(hide_password=False)),
                owners=owners or OwnerSettings(),
                http=HttpSettings(**http),
            )
            server = stack.enter_context(running(settings, database))
            return Service(address(server), database, settings, server, stack)

        yield start
