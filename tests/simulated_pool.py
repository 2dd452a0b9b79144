"""A pool for tests: a database, a user, settings with short times, and prepared data that nobody reads."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import simulated_agent as simulated
from sqlalchemy import select

from edgefront.core.data.prepared.prepared import MANIFEST, Manifest
from edgefront.core.schemas.trainings import TrainingRequest, TrainingView
from edgefront.core.services.settings import BrokerSettings, DatabaseSettings, LeaseSettings, Settings, TrainingSettings
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings.claims import Machine, TrainingClaim
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training, TrainingEvent
from edgefront.workers.app import start_waiting
from edgefront.workers.training.launch import running

ARCHITECTURE: dict[str, Any] = {
    "version": 1,
    "d_model": 16,
    "positions": {"kind": "learned", "length": 4096},
    "embedding": {"vocab_size": 100},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 32}],
}
DATA = "letters"
VOCABULARY = 28
COMMAND = (sys.executable, str(Path(__file__).parent / "tiny_run.py"))


def prepare(data_folder: Path, name: str = DATA, settings: str = "") -> Path:
    """The folder of a data set without any text; by other settings it is another one of the same name."""
    digest = hashlib.sha256((name + settings).encode()).hexdigest()
    folder = data_folder / digest
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        format=1, name=name, digest=digest, level="characters", vocab_size=VOCABULARY,
        settings={}, originals=(), tokenizer=(), splits={},
    )  # fmt: skip
    (folder / MANIFEST).write_text(manifest.model_dump_json())
    return folder


def settings_for(url: str, home: Path, broker: str = "memory://localhost/", **changes: Any) -> Settings:
    """Times so short that tests need not wait, and `tiny_run` for a training."""
    own: dict[str, Any] = {"poll_s": 0.05, "ttl_s": 20, "grace_s": 5, "worker": "here", "command": COMMAND, "gpus": 0}
    prepare(home / "data")
    return Settings(
        home=home,
        database=DatabaseSettings(url=url),
        broker=BrokerSettings(url=broker),
        leases=LeaseSettings(sweep_s=0.2),
        training=TrainingSettings(**(own | changes)),
    )


def pool_of(database: Database, home: Path, **training: Any) -> Pool:
    """A pool of this database."""
    return Pool(database, settings_for(database.url.render_as_string(hide_password=False), home, **training))


def asked(title: str = "", *, steps: int = 3, **changes: Any) -> TrainingRequest:
    value: dict[str, Any] = {
        "architecture": ARCHITECTURE,
        "dataset": DATA,
        "recipe": "quick",
        "overrides": {"title": title, "steps": steps, "checkpoint_every": 2, "segment": 8, "schedule": {"warmup": 0}},
    }
    return TrainingRequest.model_validate(value | changes)


class Pool:
    """What users and workers do, in short words. Tasks that were sent wait in `inbox`."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        self.inbox: list[tuple[str, dict[str, Any]]] = []
        if database.send is None:
            database.send = lambda task, arguments: self.inbox.append((task, arguments))
        self.user = simulated.principal(database)

    # As a user ----------------------------------------------------------------------------------------------------

    def create(self, request: TrainingRequest | None = None, key: str | None = None) -> tuple[TrainingView, ...]:
        return trainings.submit_trainings(self.database, self.user, request or asked(), self.settings, key)

    def submit(self, title: str = "", **changes: Any) -> str:
        return self.create(asked(title, **changes))[0].id

    def get(self, training_id: str) -> TrainingView:
        with self.database.read() as session:
            return trainings.get_training(session, self.user, training_id)

    def act(self, verb: str, training_id: str) -> TrainingView:
        """pause, resume or cancel."""
        with self.database.write() as session:
            now = self.database.now(session)
            view: TrainingView = getattr(trainings, f"{verb}_training")(session, self.user, training_id, now)
            return view

    def delete(self, training_id: str) -> bool:
        with self.database.write() as session:
            return trainings.delete_training(session, self.user, training_id)

    def folder(self, training_id: str) -> Path:
        return training_folder(self.settings, training_id)

    def events(self, training_id: str) -> list[TrainingEvent]:
        with self.database.read() as session:
            query = select(TrainingEvent).where(TrainingEvent.training_id == training_id)
            return list(session.scalars(query.order_by(TrainingEvent.number)))

    def states(self, training_id: str) -> list[str]:
        return [event.data["state"] for event in self.events(training_id) if event.kind == "state"]

    def steps(self, training_id: str) -> list[int]:
        with self.database.read() as session:
            page = trainings.list_metrics(session, self.user, training_id)
            return [item.step for item in page.items]

    # As a worker --------------------------------------------------------------------------------------------------

    def claim(self, machine: Machine | None = None, queue: str = "cpu") -> TrainingClaim | None:
        machine = machine or Machine("here", 1, 1 << 40)
        with self.database.write() as session:
            return training_claims.claim(session, machine, queue, self.database.now(session), 60.0)

    def claimed(self, machine: Machine | None = None, queue: str = "cpu") -> TrainingClaim:
        claim = self.claim(machine, queue)
        assert claim is not None
        return claim

    def start(self, queue: str = "cpu") -> int:
        """Starts real supervisors of what waits."""
        return start_waiting(self.database, self.settings, queue)

    def change(self, training_id: str, **values: Any) -> None:
        with self.database.write() as session:
            row = session.get_one(Training, training_id)
            for name, value in values.items():
                setattr(row, name, value)

    def row(self, training_id: str) -> Training:
        with self.database.read() as session:
            return session.get_one(Training, training_id)

    def until(self, condition: Callable[[], object], seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"it did not happen in time; {self.logs()}"
            time.sleep(0.05)

    def until_state(self, training_id: str, *states: str) -> TrainingView:
        self.until(lambda: self.get(training_id).state in states)
        return self.get(training_id)

    def logs(self) -> str:
        """What supervisors and runs have said, for a test that fails."""
        paths = sorted((self.settings.artifact_folder / "trainings").glob("*/*.log"))
        paths += sorted((self.settings.artifact_folder / "trainings").glob("*/log.txt"))
        return "\n".join(
            f"{path.parent.name}/{path.name}:\n{path.read_text(errors='replace')[-2000:]}" for path in paths
        )

    def starts(self, training_id: str) -> list[int]:
        """Process ids of the runs of a training so far."""
        path = self.folder(training_id) / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def supervisors(self) -> dict[str, int]:
        return running(self.settings.home)

    def end(self) -> None:
        """Kills what is left."""
        for pid in self.supervisors().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.until(lambda: not self.supervisors())


def alive(pid: int) -> bool:
    """A process of this id runs (a zombie does not)."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
