"""However many messages one owner causes, a worker notes each target once, and advances those of others in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_size, principal
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.services import sweep
from edgefront.core.services.search import advance as advancing
from edgefront.core.services.settings import DatabaseSettings, Settings
from edgefront.core.services.tasks import ADVANCE, SETTLE
from edgefront.core.store.database import Database
from edgefront.core.store.tables import ProxyScore
from edgefront.core.wire.jobs import JobView
from edgefront.workers import learning
from edgefront.workers.app import create_celery
from edgefront.workers.searching import next_compute_step
from edgefront.workers.targets import Noted, Targets


def of(service: Service, owner: str) -> Service:
    """The same database as another user has it."""
    other = Service.__new__(Service)
    other.__dict__.update(service.__dict__, user=principal(service.database, owner))
    return other


@pytest.fixture
def eve(database: Database) -> Service:
    service = Service(database)
    SimulatedAgent(database, by_size())
    return of(service, "eve")


def many_targets(count: int) -> list[dict[str, object]]:
    return [
        {"name": str(index), "device_class": CLASS, "protocol": {"sequence_length": 64 + index}}
        for index in range(count)
    ]


def many(service: Service, count: int = 16) -> JobView:
    """A job with so many targets."""
    return service.create(request(targets=many_targets(count)))


class Held:
    """What is done for targets: noted, and held up until it may go on."""

    def __init__(self) -> None:
        self.order: list[Noted] = []
        self.begun, self.may_go = threading.Semaphore(0), threading.Semaphore(0)
        self.parts: dict[Noted, int] = {}
        """Of a target so many more parts follow."""

    def __call__(self, target_id: Noted) -> bool:
        self.order.append(target_id)
        self.begun.release()
        assert self.may_go.acquire(timeout=60)
        left = self.parts.get(target_id, 0)
        self.parts[target_id] = left - 1
        return left > 0

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.may_go.release()


@pytest.fixture
def held(eve: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Held, Targets]]:
    monkeypatch.setattr("edgefront.workers.targets.AT_ONCE", 1)
    does = Held()
    targets = Targets("test", eve.database, does)
    yield does, targets
    does.go(10_000)
    targets.stop()


def ended(targets: Targets) -> None:
    for thread in list(targets._threads):
        thread.join(60)
        assert not thread.is_alive()


def test_a_target_waits_once_however_often_it_is_sent(eve: Service, held: tuple[Held, Targets]) -> None:
    does, targets = held
    ids = [one.id for one in many(eve).targets]
    for _ in range(500):
        for id_ in ids:
            targets.add(id_)
    does.go(10_000)
    ended(targets)
    assert set(does.order) == set(ids)
    # One for which something is being done may be noted again meanwhile: what it read may be of before.
    assert len(does.order) <= 2 * len(ids)


def test_owners_take_turns_between_the_parts_of_their_targets(eve: Service, held: tuple[Held, Targets]) -> None:
    does, targets = held
    ids = [one.id for one in many(eve).targets]
    bobs = of(eve, "bob").create(request(name="bob")).targets[0].id
    does.parts = {ids[0]: 100, bobs: 2}
    for id_ in ids:
        targets.add(id_)
    assert does.begun.acquire(timeout=60)
    targets.add(bobs)
    does.go(10_000)
    ended(targets)
    places = [place for place, id_ in enumerate(does.order) if id_ == bobs]
    assert len(places) == 3
    assert places[-1] <= 1 + 2 * 3
    assert set(does.order[: len(ids) + 3]) == {*ids, bobs}  # eve's other targets before the parts of her first
    assert does.order.count(ids[0]) == 101


def test_what_an_owner_holds_up_holds_up_nobody_else(eve: Service) -> None:
    """A step that waits for a lock of its owner's request, for as long as that takes."""
    ids = [one.id for one in many(eve).targets]
    bobs = of(eve, "bob").create(request(name="bob")).targets[0].id
    may_go, came = threading.Event(), threading.Event()
    at_once: list[Noted] = []

    def do(target_id: Noted) -> bool:
        at_once.append(target_id)
        if target_id == bobs:
            came.set()
        else:
            assert may_go.wait(60)
        return False

    targets = Targets("test", eve.database, do)
    try:
        for id_ in (*ids, bobs):
            targets.add(id_)
        assert came.wait(60)
        assert set(at_once) == {ids[0], bobs}
    finally:
        may_go.set()
        targets.stop()


def test_a_step_that_fails_stops_no_other(eve: Service) -> None:
    ids = [one.id for one in many(eve, 3).targets]
    seen: list[Noted] = []

    def do(target_id: Noted) -> bool:
        seen.append(target_id)
        raise RuntimeError("no")

    targets = Targets("test", eve.database, do)
    for id_ in (*ids, None, "tgt_deleted"):
        targets.add(id_)
    ended(targets)
    assert sorted(map(str, seen)) == sorted(map(str, (*ids, None, "tgt_deleted")))


def test_tasks_only_note_their_targets(eve: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = eve.database.url.render_as_string(hide_password=False)
    app = create_celery(Settings(home=tmp_path, database=DatabaseSettings(url=url)), eve.database)
    ids = [one.id for one in many(eve).targets]
    may_go, steps = threading.Event(), []

    def step(target_id: str) -> bool:
        steps.append(target_id)
        assert may_go.wait(60)
        return False

    monkeypatch.setattr(app.edgefront_searching, "step", step)
    try:
        for _ in range(100):  # all of this while the first step has not ended
            for id_ in ids:
                app.tasks[ADVANCE](target_id=id_)
                app.tasks[SETTLE](target_id=id_)
        assert len(steps) <= 1
        assert len(app.edgefront_advancing._noted) <= len(ids)
        may_go.set()
        ended(app.edgefront_advancing)
        ended(app.edgefront_settling)
    finally:
        may_go.set()
        app.edgefront_advancing.stop()
        app.edgefront_settling.stop()
    assert set(steps) == set(ids)


def test_jobs_of_owners_are_moved_to_other_laws_in_turn(eve: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    eves = [eve.create(request(name=str(number), seed=number)).id for number in range(4)]
    bobs = of(eve, "bob").create(request(name="bob")).id
    order: list[str] = []
    begun, may_go = threading.Event(), threading.Event()

    def move(_database: Database, job_id: str) -> None:
        order.append(job_id)
        begun.set()
        assert may_go.wait(60)

    monkeypatch.setattr(learning, "move", move)
    learns = learning.Learning(eve.database)
    learns.move(eves[0])
    assert begun.wait(60)
    for job_id in (*eves, *eves[1:], bobs):  # the first is being moved, and waits once more
        learns.move(job_id)
    thread = learns._thread
    assert thread is not None
    may_go.set()
    thread.join(60)
    assert order == [eves[0], bobs, eves[0], *eves[1:]]


# What the sweep sends for --------------------------------------------------------------------------------------------


def stalled(service: Service, later: timedelta = timedelta(0)) -> list[str]:
    with service.database.write() as session:
        return advancing.stalled(session, service.database.now(session) + later)


def test_a_target_that_waits_for_scores_is_not_sent_for(eve: Service) -> None:
    asked = request(proxy="snip", proxy_settings={"rows": 2, "length": 4}, baseline_layers=[1, 2])
    (target,) = eve.submit(asked).targets
    assert stalled(eve) == []
    with eve.database.write() as session:  # a worker has computed them, and the task that says so was lost
        for row in session.scalars(select(ProxyScore)):
            row.state, row.value = "done", 1.0
    assert stalled(eve) == [target.id]


def test_a_target_whose_generation_is_computed_is_not_sent_for(eve: Service) -> None:
    agent = SimulatedAgent(eve.database, by_size())
    (target,) = eve.submit().targets
    while agent.step():
        pass
    eve.inbox.clear()
    assert stalled(eve) == [target.id]  # nobody computes it
    assert next_compute_step(eve.database, target.id) is not None
    assert stalled(eve) == []
    assert stalled(eve, advancing.CLAIM) == [target.id]


def test_a_target_whose_baselines_have_further_launches_is_not_sent_for(eve: Service) -> None:
    agent = SimulatedAgent(eve.database, by_size())
    (target,) = eve.submit().targets
    seen: list[list[str]] = []
    while agent.step(1):
        eve.inbox.clear()
        seen.append(stalled(eve))
    assert seen == [[]] * (len(seen) - 1) + [[target.id]]


def test_a_target_that_refines_is_not_sent_for(database: Database) -> None:
    service = Service(database)
    agent = SimulatedAgent(database, by_size(noise=0.3))
    job = service.submit()
    for _ in range(300):
        service.work()
        if service.get(job.id).targets[0].state == "refining":
            break
        agent.step(2)
    assert service.get(job.id).state == "running"
    assert stalled(service) == []


def test_a_sweep_sends_for_some_of_each_owner(eve: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SENT_FOR", 5)
    for number in range(3):
        eve.create(request(name=str(number), targets=many_targets(16), seed=number))
    bobs = of(eve, "bob").create(request(name="bob")).targets[0].id
    eve.inbox.clear()
    sent = set()
    for _ in range(2):
        with eve.database.write() as session:
            sweep.sweep(session, eve.database.now(session))
        assert len(eve.inbox) == 5
        assert bobs in eve.inbox
        sent.update(eve.inbox)
        eve.inbox.clear()
    assert len(sent) > 5  # others of eve's
