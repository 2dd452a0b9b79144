"""What one owner or device asks for leaves room for the others: threads, long polls, exports, searches, trainings."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from databases import ON_BOTH
from running_api import Service, job, problem
from simulated_agent import CLASS, principal
from simulated_pool import pool_of
from sqlalchemy import select

from edgefront.core.common.errors import InvalidInput
from edgefront.core.services.trainings.claims import Machine
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training

# Work ----------------------------------------------------------------------------------------------------------------


def test_trainings_of_owners_start_in_turn(database: Database, tmp_path: Path) -> None:
    pool = pool_of(database, tmp_path)
    owners = {pool.submit(f"ann {number}"): "ann" for number in range(4)}
    pool.user = principal(database, "bob")
    owners |= {pool.submit(f"bob {number}"): "bob" for number in range(2)}
    pool.user = principal(database, "ann")
    fourth, last = (next(id_ for id_ in reversed(owners) if owners[id_] == name) for name in ("ann", "bob"))
    assert pool.get(fourth).note == "trainings ahead in the queue train-cpu: 5"
    pool.user = principal(database, "bob")
    assert pool.get(last).note == "trainings ahead in the queue train-cpu: 3"
    order = []
    for number in range(4):
        claim = pool.claim(Machine(f"worker {number}", 1, 1 << 40))
        assert claim is not None
        order.append(owners[claim.training_id])
    assert order == ["ann", "bob", "ann", "bob"]
    with database.write() as session:  # all of bob's end
        for row in session.scalars(select(Training).where(Training.owner == "bob")):
            row.state = "done"
    pool.user = principal(database, "bob")
    pool.submit("bob again")
    claims = [pool.claim(Machine(f"another worker {number}", 1, 1 << 40)) for number in range(2)]
    with database.read() as session:
        owned = [session.get_one(Training, claim.training_id).owner for claim in claims if claim is not None]
    assert owned == ["ann", "bob"]


@ON_BOTH
def test_a_turn_is_taken_by_whatever_starts_and_outlives_it(database: Database, tmp_path: Path) -> None:
    """Of one slot: ann's trainings are resumed, and deleted when they have ended."""
    pool = pool_of(database, tmp_path)
    owners = {pool.submit(f"ann {number}"): "ann" for number in range(3)}
    with database.write() as session:  # they ran, were paused, and are resumed
        now = database.now(session)
        for row in session.scalars(select(Training)):
            row.started_at = now - timedelta(hours=1)
    pool.user = principal(database, "bob")
    owners |= {pool.submit(f"bob {number}"): "bob" for number in range(3)}
    order = []
    for _ in range(6):
        claim = pool.claim(Machine("worker", 1, 1 << 40))
        assert claim is not None
        order.append(owners[claim.training_id])
        with database.write() as session:
            session.delete(session.get_one(Training, claim.training_id))
    assert order == ["ann", "bob"] * 3


def test_one_generation_of_predictions_is_bounded(service: Service) -> None:
    service.enrol(device_class=CLASS)
    eve = service.client("user", "eve")
    endless = {"name": "surrogate", "settings": {"population": 100_000, "steps": 1000}}
    asked_: dict[str, Any] = job(algorithm=endless, proxy="decoder_parameters")
    answer: httpx.Response = eve.post("/v1/jobs", json=asked_)
    document = problem(answer, 422)
    assert (document["field"], document["kind"]) == ("algorithm.settings.steps", InvalidInput.kind)
    assert "at most 1,000,000 predictions" in document["detail"]
