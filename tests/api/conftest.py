"""A running API on real databases."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from running_api import Service, starts  # noqa: F401

from edgefront.core.store.database import Database


@pytest.fixture
def anyio_backend() -> str:
    """The API runs on asyncio."""
    return "asyncio"


@pytest.fixture
def service(database: Database, start_service: Callable[..., Service]) -> Service:
    """A running API."""
    return start_service(database)


@pytest.fixture
def client(service: Service) -> httpx.Client:
    """A user, bob."""
    return service.client("user", "bob")
