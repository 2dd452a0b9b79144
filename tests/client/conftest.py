"""A running service with a simulated board: what the client and the command line talk to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from rough_server import Rough, rough_server
from running_client import SMALL, Board, Running
from simulated_pool import COMMAND

from edgefront.client.client import Client
from edgefront.core.services.dispatch import sender
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.store.database import Database
from edgefront.embedded.service import EmbeddedService


@pytest.fixture
def rough() -> Iterator[Rough]:
    with rough_server() as server:
        yield server


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("service") / "home"
    with ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        # Its trainings are `tiny_run`: what trains for real is tried elsewhere.
        own = {"command": COMMAND, "poll_s": 0.1, "gpus": 0}
        monkeypatch.setenv("EDGEFRONT_TRAINING", json.dumps(own))
        service = stack.enter_context(EmbeddedService(home, port=0, agent=False, isolated=True))
        client = stack.enter_context(Client(home=home))
        settings = Settings(home=home, database=DatabaseSettings())
        database = Database(settings.database_url, send=sender(settings))
        try:
            with Board(database) as board:
                job = client.jobs.wait(client.jobs.create(SMALL).id, timeout_s=60)
                yield Running(service, client, job, home, board.agent.name)
        finally:
            database.dispose()
