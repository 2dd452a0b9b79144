"""Worlds of other rooms, for the faults that they must stand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgefront.core.store.database import Database

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("api", "services")]

from lease_world import World  # noqa: E402
from running_api import starts  # noqa: E402, F401


@pytest.fixture
def world(database: Database) -> World:
    return World(database)
