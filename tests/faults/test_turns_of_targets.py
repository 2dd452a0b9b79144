"""However many messages one owner causes, each target waits once, and those of others get their turn."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from databases import ON_BOTH
from recorder import Recorder, items
from simulated_agent import CLASS, SimulatedAgent, by_size
from simulated_service import Service, request
from sqlalchemy import update

from edgefront.core.common.states import WorkKind
from edgefront.core.schemas.jobs import JobView
from edgefront.core.services import tasks, work
from edgefront.core.services.search import stalled as search_stalled
from edgefront.core.services.settings import Settings
from edgefront.core.services.work import SEARCH, SHORT
from edgefront.core.store.database import Database
from edgefront.core.store.tables import WorkItem
from edgefront.workers.sweep import sweep_once
from edgefront.workers.work import Worker


@pytest.fixture
def eve(database: Database, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A user. No task ends before its work does: on a busy machine the clock would end it, and another would follow."""
    monkeypatch.setattr("edgefront.workers.work.TASK_S", 600.0)
    service = Service(database)
    SimulatedAgent(database, by_size())
    return service.of("eve")


def many_targets(count: int) -> list[dict[str, object]]:
    return [
        {"name": str(index), "device_class": CLASS, "protocol": {"sequence_length": 64 + index}}
        for index in range(count)
    ]


def many(service: Service, count: int = 16) -> JobView:
    """A job with so many targets."""
    return service.create(request(targets=many_targets(count)))


def test_a_target_waits_once_however_often_it_is_sent(eve: Service) -> None:
    worker = Recorder(eve)
    ids = [target.id for target in many(eve).targets]
    for _ in range(20):
        for target_id in ids:
            worker.request(WorkKind.RESULTS, target_id, "eve")
    worker.work(SHORT)
    assert sorted(worker.order) == sorted(ids)
    assert items(eve) == {}


@ON_BOTH
def test_what_is_requested_while_it_is_done_is_done_once_more(eve: Service) -> None:
    """What its worker has read may be of before."""
    worker = Recorder(eve)
    worker.blocked["eve"] = threading.Event()
    worker.request(WorkKind.RESULTS, "tgt_1", "eve")
    with ThreadPoolExecutor(1) as slot:
        done = slot.submit(worker.work, SHORT)
        assert worker.begun.acquire(timeout=60)
        for _ in range(3):
            worker.request(WorkKind.RESULTS, "tgt_1", "eve")
        worker.blocked["eve"].set()
        done.result(60)
    assert worker.order == ["tgt_1"] * 2


def test_owners_take_turns_between_the_parts_of_their_targets(eve: Service) -> None:
    worker = Recorder(eve)
    ids = [target.id for target in many(eve).targets]
    bobs = eve.of("bob").create(request(name="bob")).targets[0].id
    worker.parts = {ids[0]: 100, bobs: 2}
    for target_id in ids:
        worker.request(WorkKind.ADVANCE, target_id, "eve")
    worker.requested(WorkKind.ADVANCE, bobs)
    places = [place for place, target_id in enumerate(worker.order) if target_id == bobs]
    assert len(places) == 3
    assert places[-1] <= 2 * 3
    assert set(worker.order[: len(ids) + 3]) == {*ids, bobs}  # eve's other targets before the parts of her first
    assert worker.order.count(ids[0]) == 101


@ON_BOTH
def test_what_takes_long_leaves_a_slot_to_what_does_not(eve: Service) -> None:
    worker = Recorder(eve, slots=2)
    worker.blocked = {"eve": threading.Event(), "bob": threading.Event()}
    for subject, owner in (("tgt_1", "eve"), ("tgt_2", "bob")):  # by subject where both are of one millisecond
        worker.request(WorkKind.SEARCH, subject, owner)
    worker.request(WorkKind.RESULTS, "tgt_cy", "cy")
    with ThreadPoolExecutor(3) as pool:
        try:
            pool.submit(worker.work, SEARCH)
            assert worker.begun.acquire(timeout=60)
            pool.submit(worker.work, SEARCH).result(60)  # not for bob
            worker.work(SHORT)
            assert worker.order == ["tgt_1", "tgt_cy"]
        finally:
            for event in worker.blocked.values():
                event.set()


@ON_BOTH
def test_several_workers_share_one_owners_searches(eve: Service) -> None:
    workers = [Recorder(eve, slots=2) for _ in range(3)]
    for number in range(10):
        workers[0].request(WorkKind.SEARCH, f"tgt_{number}", "eve")
    for worker in workers:
        worker.blocked["eve"] = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        try:
            for worker in workers:
                pool.submit(worker.work, SEARCH)
            for worker in workers:
                assert worker.begun.acquire(timeout=60)
        finally:
            for worker in workers:
                worker.blocked["eve"].set()
    done = [subject for worker in workers for subject in worker.order]
    assert sorted(done) == sorted(f"tgt_{number}" for number in range(10))


def test_a_worker_that_dies_is_followed_by_another(eve: Service) -> None:
    with eve.database.write() as session:
        now = eve.database.now(session)
        work.request(session, WorkKind.SEARCH, {"tgt_1": "eve"}, now)
        first = work.claim(session, SEARCH, "wrk_dead", 1, now)
        assert first is not None
        assert work.claim(session, SEARCH, "wrk_2", 1, now) is None
        work.resend(session, now)
        assert session.info.get("edgefront.outbox") is None
        later = now + work.CLAIM
        work.resend(session, later)
        second = work.claim(session, SEARCH, "wrk_2", 1, later)
        assert second is not None
        assert (second.fence, second.attempts) == (2, 2)
        assert not work.extend(session, first, later)
        work.finish(session, first, later)  # the dead one was only slow: it ends nothing
        assert work.extend(session, second, later)
        work.finish(session, second, later)
        assert work.claim(session, SEARCH, "wrk_2", 1, later) is None


def test_a_sweep_wakes_workers_for_what_nobody_does(eve: Service) -> None:
    with eve.database.write() as session:
        work.request(session, WorkKind.LEARN, {"key eve": "eve"}, eve.database.now(session))
    eve.tasks.others.clear()
    sweep_once(eve.database)
    assert (tasks.WORK, {"queue": "search"}) in eve.tasks.others


@ON_BOTH
def test_a_target_of_which_workers_die_fails_with_the_reason(eve: Service) -> None:
    job = many(eve, 1)
    (target,) = job.targets
    worker = Worker(eve.database, Settings())
    with eve.database.write() as session:
        now = eve.database.now(session)
        work.request(session, WorkKind.SEARCH, {target.id: "eve"}, now)
        for _ in range(work.WORK_ATTEMPTS):
            assert work.claim(session, SEARCH, "wrk_dead", 1, now) is not None
            session.execute(update(WorkItem).values(claimed_until=now - timedelta(seconds=1)))
            session.expire_all()
    worker.work(SEARCH)
    assert "3 workers died during this work" in eve.get(job.id).targets[0].note
    assert items(eve) == {}


@ON_BOTH
def test_a_claim_is_extended_while_the_work_takes_long(eve: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefront.workers.work.interval_s", lambda hold_s: hold_s / 2000)
    extend, broken, extended = work.extend, [RuntimeError("broken")], threading.Event()

    def breaks_once(*arguments: object) -> bool:
        if broken:
            raise broken.pop()
        extended.set()
        return extend(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "extend", breaks_once)
    worker = Recorder(eve)
    worker.blocked["eve"] = threading.Event()
    worker.request(WorkKind.SEARCH, "tgt_1", "eve")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(worker.work, SEARCH)
        assert extended.wait(60)
        worker.blocked["eve"].set()
    assert items(eve) == {}


# What the sweep sends for --------------------------------------------------------------------------------------------


def stalled(service: Service) -> list[str]:
    with service.database.write() as session:
        return search_stalled.stalled(session, service.database.now(session))


def test_a_target_whose_step_is_requested_is_not_sent_for(eve: Service) -> None:
    agent = SimulatedAgent(eve.database, by_size())
    (target,) = eve.submit().targets
    while agent.step():
        pass
    eve.inbox.clear()
    assert stalled(eve) == [target.id]  # nobody was asked
    with eve.database.write() as session:
        work.request(session, WorkKind.SEARCH, {target.id: "eve"}, eve.database.now(session))
    assert stalled(eve) == []


def test_a_sweep_sends_for_some_of_each_owner(eve: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_stalled, "MAX_TARGETS", 5)
    for number in range(3):
        eve.create(request(name=str(number), targets=many_targets(16), seed=number))
    bobs = eve.of("bob").create(request(name="bob")).targets[0].id
    eve.inbox.clear()
    sent = set()
    for _ in range(2):
        sweep_once(eve.database)
        assert len(eve.inbox) == 5
        assert bobs in eve.inbox
        sent.update(eve.inbox)
        eve.inbox.clear()
    assert len(sent) > 5  # others of eve's
