"""Trainings that are stored and moved on by the services, as a worker would: nothing is trained here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings import lifecycle as trainings
from edgefront.core.services.trainings.claims import FinishedRun, Machine, ReportedScore, RunReport, TrainingClaim
from edgefront.core.services.trainings.lifecycle import SupernetRequest
from edgefront.core.store.database import Database
from edgefront.embedded.service import EmbeddedService

ARCHITECTURE = {
    "version": 1,
    "d_model": 32,
    "positions": {"kind": "learned", "length": 256},
    "embedding": {"vocab_size": 4096},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}],
}


@contextmanager
def serving(home: Path, **environment: str) -> Iterator[EmbeddedService]:
    """One whose own worker trains nothing: a `Pool` does."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"EDGEFRONT_TRAINING__SLOTS": "0", **environment}.items():
            patched.setenv(name, value)
        with EmbeddedService(home, port=0, agent=False, isolated=True) as service:
            yield service


class Pool:
    """What a worker says of trainings, said by the test."""

    def __init__(self, service: EmbeddedService, database: Database, api: httpx.Client) -> None:
        self.settings = Settings(home=service.home)
        self.database, self.api = database, api

    def submit(self, **request: Any) -> str:
        subject = {} if "candidate" in request else {"architecture": ARCHITECTURE}
        made = self.api.post("/v1/trainings", json={**subject, "dataset": "python", **request})
        return str(made.raise_for_status().json()["items"][0]["id"])

    def claim(self) -> TrainingClaim:
        with self.database.write() as session:
            machine = Machine("lab-7", slots=99, memory_bytes=1 << 40)
            claimed = training_claims.claim(session, machine, "cpu", self.database.now(session), 3600)
        assert claimed is not None
        return claimed

    def report(self, claim: TrainingClaim, **said: Any) -> None:
        with self.database.write() as session:
            report = RunReport("training", steps=300, **said)
            now = self.database.now(session)
            training_claims.report(session, claim.training_id, claim.fence, report, now, 3600)

    def start(self, claim: TrainingClaim) -> None:
        with self.database.write() as session:
            now = self.database.now(session)
            training_claims.start(session, claim.training_id, claim.fence, ARCHITECTURE, "d" * 64, now, 3600)

    def finish(self, claim: TrainingClaim, perplexity: float) -> None:
        scores = [ReportedScore("test", "perplexity", perplexity), ReportedScore("test", "loss", math.log(perplexity))]
        with self.database.write() as session:
            outcome = FinishedRun("done", result={"best_step": 300}, scores=scores)
            now = self.database.now(session)
            training_claims.finish(session, claim.training_id, claim.fence, RunReport(), outcome, now)

    def supernet(self) -> str:
        with self.database.write() as session:
            made = trainings.create_supernet(
                session,
                SupernetRequest("local", "a supernet", "python", "quick", seed=3),
                self.settings,
                self.database.now(session),
            )
            return made.id


def metric(step: int, loss: float = 4.0, **more: Any) -> dict[str, Any]:
    figures = {"lr": 1e-3, "tokens_per_s": 2048.0}
    return {"step": step, "tokens": 1024 * step, "seconds": 0.5 * step, "loss": loss, **figures, **more}
