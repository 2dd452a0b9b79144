"""A running service with a simulated board: what the client and the command line talk to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from simulated_agent import SimulatedAgent

from core.services.dispatch import sender
from core.services.settings import DatabaseSettings, Settings
from core.store.database import Database
from core.wire.jobs import JobView
from edgefront.client import Client
from edgefront.embedded.service import EmbeddedService

BOARD = "simulated board"
SMALL = {
    "name": "small",
    "space": {"name": "lts-gpt2", "narrow": {"n_layer": {"max": 3}, "d_model": [128, 192], "d_inner": {"max": 640}}},
    "targets": [{"name": "board", "device_class": BOARD}],
    "algorithm": {"name": "lts", "settings": {"iterations": 2, "population": 10}},
    "budget": {"refinement": 0},
    "seed": 7,
}


@dataclass(frozen=True)
class Running:
    """The service, a client with its key, and a finished job in it."""

    service: EmbeddedService
    client: Client
    job: JobView
    home: Path
    board: str
    """Name of the simulated device."""


class Board:
    """A simulated device that works in a thread until the end."""

    def __init__(self, database: Database) -> None:
        self.agent = SimulatedAgent(database)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Board:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.02):
            self.agent.step()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("service") / "home"
    with EmbeddedService(home, port=0, agent=False, isolated=True) as service, Client(home=home) as client:
        settings = Settings(home=home, database=DatabaseSettings())
        database = Database(settings.database_url, send=sender(settings))
        try:
            with Board(database) as board:
                job = client.jobs.wait(client.jobs.create(SMALL).id, timeout_s=60)
                yield Running(service, client, job, home, board.agent.name)
        finally:
            database.dispose()
