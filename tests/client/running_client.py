"""What the client and the command line are tried on: a service, a finished job, and the board that measured it."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import edgefront
from simulated_agent import SimulatedAgent

from edgefront.cli import exits
from edgefront.client.client import Client
from edgefront.client.resources.jobs import Job
from edgefront.core.store.database import Database
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
    job: Job
    home: Path
    board: str
    """Name of the simulated device."""

    def command(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """`edgefront` against this service."""
        return edgefront(*arguments, home=self.home, **options)

    def read(self, *arguments: str) -> Any:
        """The JSON that a command prints, which is all that it prints."""
        return json.loads(self.command(*arguments, "--json", code=exits.OK).stdout)

    def show(self, *arguments: str) -> str:
        """What a command prints for people."""
        return self.command(*arguments, code=exits.OK).stdout


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
        idle = 0
        # Seldom while there is nothing to do: it stays until the last test of the whole suite.
        while not self._over.wait(0.02 if idle < 25 else 0.25):
            idle = 0 if self.agent.step() else idle + 1
