"""While an algorithm computes, nothing is held: no transaction, no connection, and no other task waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from databases import ON_BOTH
from simulated_agent import SimulatedAgent, by_size
from simulated_service import Service, request
from sqlalchemy import select, text

from edgefront.core.common.states import Purpose, WorkKind
from edgefront.core.schemas.jobs import JobView
from edgefront.core.search.evolution import LightweightTransformerSearch
from edgefront.core.search.interface import Answer, Context, Snapshot
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.search import advance, snapshots
from edgefront.core.services.settings import Settings
from edgefront.core.services.work import SEARCH
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Target
from edgefront.workers.work import Worker, compute_and_store, next_compute_step


class SlowAlgorithm:
    """An algorithm that computes until it may end, and remembers what it was asked with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.asked: list[Snapshot] = []
        answer = LightweightTransformerSearch.answer

        def blocked(search: LightweightTransformerSearch, context: Context) -> Answer:
            self.asked.append(context.snapshot)
            self.begun.set()
            assert self.may_end.wait(60)
            return answer(search, context)

        monkeypatch.setattr(LightweightTransformerSearch, "answer", blocked)


@pytest.fixture
def service(database: Database) -> Service:
    return Service(database)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowAlgorithm:
    return SlowAlgorithm(monkeypatch)


@contextmanager
def worker(service: Service, tmp_path: Path, slots: int = 3) -> Iterator[Slots]:
    with ThreadPoolExecutor(slots) as threads:
        made = Slots(Worker(service.database, Settings(home=tmp_path), slots=slots), threads)
        try:
            yield made
        finally:
            made.worker.stop()


@dataclass
class Slots:
    """A worker, and the threads in which its tasks run."""

    worker: Worker
    threads: ThreadPoolExecutor

    def advance(self, target_id: str) -> Future[None]:
        """Takes the target's short steps; the future ends with what is computed."""
        self.worker.requested(WorkKind.ADVANCE, target_id)
        return self.threads.submit(self.worker.work, SEARCH)


def measured_baselines(service: Service, agent: SimulatedAgent, job: JobView) -> None:
    """Measures without moving the search on."""
    while agent.step():
        pass
    service.inbox.clear()
    assert service.get(job.id).targets[0].generation == -1


def proposed(service: Service, job: JobView) -> list[tuple[int, str]]:
    with service.database.read() as session:
        query = select(Candidate.generation, Candidate.digest).where(
            Candidate.job_id == job.id, Candidate.role == "search"
        )
        return [(row.generation, row.digest) for row in session.execute(query.order_by(Candidate.number))]


def open_transactions(service: Service) -> int:
    """Of other connections to the database (Postgres)."""
    with service.database.read() as session:
        others = "datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
        return int(session.scalar(text(f"SELECT count(*) FROM pg_stat_activity WHERE {others}")) or 0)


@ON_BOTH
def test_others_read_and_write_while_an_algorithm_computes(
    service: Service, slow: SlowAlgorithm, tmp_path: Path
) -> None:
    agent = SimulatedAgent(service.database, by_size())
    job = service.submit()
    measured_baselines(service, agent, job)
    with worker(service, tmp_path) as at_work:
        at_work.advance(job.targets[0].id)  # returns at once
        assert slow.begun.wait(60)
        assert service.database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        if not service.database.sqlite:
            assert open_transactions(service) == 0
        # Another job is stored, moved on by the same worker, leased, reported and settled meanwhile.
        other = service.create(request(name="other", seed=8))
        service.inbox.clear()
        at_work.advance(other.targets[0].id)
        assert agent.step(4) == 4  # its baselines; what its algorithm is asked waits behind the other's
        service.act("pause", other.id)
        service.act("resume", other.id)
        slow.may_end.set()
        finish(service, at_work, agent, [job, other])
    assert service.get(job.id).state == service.get(other.id).state == "finished"
    reference = service.submit(request(name="reference"))
    service.run(agent)
    assert proposed(service, job) == proposed(service, reference)
    assert len(proposed(service, job)) == 18


def finish(service: Service, at_work: Slots, agent: SimulatedAgent, jobs: list[JobView]) -> None:
    waited = threading.Event()
    for _ in range(3000):
        while service.inbox:
            at_work.advance(service.inbox.pop(0))
        if not agent.step():
            if all(service.get(job.id).state == "finished" for job in jobs):
                return
            waited.wait(0.01)
    raise AssertionError("the jobs have not ended")


@ON_BOTH
def test_results_that_come_meanwhile_do_not_change_what_decides(service: Service, slow: SlowAlgorithm) -> None:
    """A generation follows from the snapshot that is stored with it, whatever is measured while it is computed."""
    slow.may_end.set()
    agent = SimulatedAgent(service.database, by_size(noise=0.3))
    job = service.create(request(algorithm={"name": "lts", "settings": {"iterations": 3, "population": 10}}))
    while service.get(job.id).targets[0].generation < 1:
        service.work()
        agent.step(1)
    while agent.step() and service.get(job.id).targets[0].settled < 3 + 10 + 8:
        pass
    (target,) = service.get(job.id).targets
    step = next_compute_step(service.database, target.id)
    assert step is not None
    assert step.number == 2
    computed = step.compute()
    with service.database.write() as session:
        locked, of_target = job_queries.lock_target(session, target.id), Candidate.target_id == target.id
        assert locked is not None
        measured = set(session.scalars(select(Candidate.measurement_id).where(of_target, Candidate.on_frontier)))
        demand.add_launches(session, locked, measured, purpose=Purpose.REFINEMENT, now=service.database.now(session))
    while agent.step(4):
        pass
    with service.database.read() as session:
        _, now = snapshots.take(session, target.id, 2)
        assert now != step.snapshot
        assert snapshots.restore(session, target.id, 2) == step.snapshot
    with service.database.write() as session:
        advance.store(session, step, computed, service.database.now(session))
    with service.database.read() as session:
        assert snapshots.restore(session, target.id, 2) == step.snapshot
    service.run(agent)
    assert service.get(job.id).state == "finished"


def test_workers_that_compute_the_same_come_to_the_same(service: Service) -> None:
    """The first is stored, the other thrown away."""
    agent = SimulatedAgent(service.database)
    job = service.submit()
    measured_baselines(service, agent, job)
    target_id = job.targets[0].id
    step, again = (next_compute_step(service.database, target_id) for _ in range(2))
    assert step is not None
    assert again is not None
    assert again.snapshot == step.snapshot
    assert not compute_and_store(service.database, again)
    before = proposed(service, job)
    compute_and_store(service.database, step)
    assert proposed(service, job) == before
    assert len(before) == 10


def test_results_computed_for_a_paused_or_deleted_job_are_discarded(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    job = service.submit()
    measured_baselines(service, agent, job)
    step = next_compute_step(service.database, job.targets[0].id)
    assert step is not None
    service.act("pause", job.id)
    assert not compute_and_store(service.database, step)
    assert proposed(service, job) == []
    service.act("resume", job.id)
    service.work()
    first = [(0, proposed.proposal.architecture.digest) for proposed in step.compute().proposed]
    assert proposed(service, job) == first
    assert next_compute_step(service.database, job.targets[0].id) is None
    service.act("delete", job.id)
    assert not compute_and_store(service.database, step)
    with service.database.read() as session:
        assert session.scalars(select(Target)).all() == []
