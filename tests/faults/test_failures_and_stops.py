"""One rule for every kind of work: an exception uses up an attempt, the third gives up; a stop costs none."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from databases import ON_BOTH
from recorder import Recorder, items
from simulated_agent import SimulatedAgent, by_size
from simulated_pool import pool_of
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.common.states import WorkKind
from edgefront.core.services import work
from edgefront.core.services.measuring import result_processing
from edgefront.core.services.search import advance
from edgefront.core.services.search.computing import ComputeStep
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import claims
from edgefront.core.services.trainings.claims import FinishedRun, RunReport
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Launch
from edgefront.workers.work import Worker


@pytest.fixture
def service(database: Database) -> Service:
    made = Service(database)
    SimulatedAgent(database, by_size())
    return made


def broken(times: list[int]) -> Any:
    def fail(*_: object, **__: object) -> None:
        times.append(1)
        raise ZeroDivisionError("secret detail")

    return fail


@pytest.mark.parametrize(
    ("kind", "place", "name"),
    [(WorkKind.ADVANCE, advance, "advance"), (WorkKind.SEARCH, ComputeStep, "compute")],
)
def test_a_search_that_always_fails_ends_at_the_third_attempt(
    service: Service, monkeypatch: pytest.MonkeyPatch, kind: WorkKind, place: Any, name: str
) -> None:
    job = service.create()
    agent, (target,) = SimulatedAgent(service.database, by_size()), job.targets
    if kind == WorkKind.SEARCH:
        service.work()
        while agent.step():
            pass
    times: list[int] = []
    monkeypatch.setattr(place, name, broken(times))
    worker = Worker(service.database, Settings())
    worker.requested(WorkKind.ADVANCE, target.id)
    worker.work(work.SEARCH)
    ended = service.get(job.id)
    assert (len(times), ended.state) == (3, "failed")
    assert "3 attempts; the last: internal error (ZeroDivisionError)" in ended.targets[0].note
    assert "secret" not in ended.model_dump_json()
    assert items(service) == {}


def test_a_report_that_can_never_be_processed_fails_at_the_third_attempt(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.database.send = None
    job = service.create()
    with service.database.write() as session:
        advance.advance(session, job.targets[0].id, service.database.now(session))
    worker = Worker(service.database, Settings())
    worker.requested(WorkKind.ADVANCE, job.targets[0].id)
    assert SimulatedAgent(service.database, by_size()).step(1)
    times: list[int] = []
    monkeypatch.setattr(result_processing, "process_launches", broken(times))
    monkeypatch.setattr(result_processing, "process", broken([]))
    worker.requested(WorkKind.RESULTS, job.targets[0].id)
    assert len(times) == 4 * 2, "at each attempt and when it is given up, with and without the targets that wait for it"
    with service.database.read() as session:
        (launch,) = session.scalars(select(Launch).where(Launch.state == "failed"))
        assert "its report cannot be processed: internal error (ZeroDivisionError)" in (launch.reason or "")
    assert items(service) == {}


def test_what_fails_once_is_done_at_its_second_attempt(service: Service) -> None:
    worker, left = Recorder(service), ["fails once"]

    def once(held: work.Claim) -> None:
        worker.order.append(f"{held.subject} {held.attempts}")
        if left:
            raise RuntimeError(left.pop())

    worker.do(once)
    worker.request(WorkKind.RESULTS, "tgt_1", "eve")
    worker.work(work.SHORT)
    assert worker.order == ["tgt_1 1", "tgt_1 2"]
    assert items(service) == {}


@ON_BOTH
@pytest.mark.parametrize("kind", WorkKind)
def test_three_stops_cost_no_attempt(service: Service, kind: WorkKind) -> None:
    """The worker that stops loses its claim at once; what it still does ends nothing."""
    for _ in range(3):
        worker = Recorder(service)
        worker.blocked["eve"] = threading.Event()
        worker.request(kind, "subject", "eve")
        with ThreadPoolExecutor(1) as slot:
            running = slot.submit(worker.work, work.queue_of(kind))
            assert worker.begun.acquire(timeout=60)
            worker.stop()
            worker.blocked["eve"].set()
            running.result(60)
        (item,) = items(service).values()
        assert (item.attempts, item.holder, item.claimed_until) == (0, None, None)
    last = Recorder(service)
    last.work(work.queue_of(kind))
    assert last.order == ["subject"]
    assert items(service) == {}


def test_stops_of_a_training_cost_no_attempt_and_failures_do(database: Database, tmp_path: Path) -> None:
    pool = pool_of(database, tmp_path)
    training = pool.submit()

    def end(ending: str) -> tuple[str, int]:
        claim = pool.claim()
        assert claim is not None
        with database.write() as session:
            outcome = FinishedRun(ending, "as it said")  # type: ignore[arg-type]
            claims.finish(session, claim.training_id, claim.fence, RunReport(), outcome, database.now(session))
        view = pool.get(training)
        return view.state, view.attempts

    assert [end("stopped") for _ in range(4)] == [("queued", 0)] * 4
    assert [end("failed") for _ in range(3)] == [("queued", 1), ("queued", 2), ("failed", 3)]
