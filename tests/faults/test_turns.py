"""What one owner or device asks for leaves room for the others: threads, long polls, exports, searches, scores,
trainings."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import httpx
import pytest
from running_api import Service, job, problem
from simulated_agent import CLASS, SimulatedAgent, by_size, principal
from simulated_pool import Pool, settings_for
from simulated_service import Service as Searches
from simulated_service import request
from sqlalchemy import func, select

from edgefront.api.candidates import tables
from edgefront.api.http import concurrency
from edgefront.api.jobs import endpoints
from edgefront.api.live.long_poll import OF_DEVICE
from edgefront.core.errors import InvalidInput, TooManyRequests
from edgefront.core.search.registry import make
from edgefront.core.services.access import keys
from edgefront.core.services.quality import scoring
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.claims import Machine
from edgefront.core.services.work import SCORES
from edgefront.core.spaces.catalogue import space
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training, WebSession, WorkItem
from edgefront.core.wire.jobs import JobView
from edgefront.workers.work import Worker


@pytest.fixture
def service(sqlite_url: str, open_database: Callable[..., Database], start_service: Callable[..., Service]) -> Service:
    return start_service(open_database(sqlite_url), slow_requests=3)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# Requests ------------------------------------------------------------------------------------------------------------


def test_short_requests_of_one_owner_leave_threads_for_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, begun, may_end = endpoints.jobs.list_jobs, threading.Semaphore(0), threading.Event()

    def blocked(session: Any, person: Any, *given: Any, **named: Any) -> Any:
        if person.owner == "eve":
            begun.release()
            assert may_end.wait(60)
        return listed(session, person, *given, **named)

    monkeypatch.setattr(endpoints.jobs, "list_jobs", blocked)
    eve, bob, agent = service.client("user", "eve"), service.client("user", "bob", timeout=20), service.agent()
    most = service.context.shares.of_owner
    with ThreadPoolExecutor(40) as many:
        sent = [many.submit(eve.get, "/v1/jobs") for _ in range(40)]
        try:
            for _ in range(most):
                assert begun.acquire(timeout=60)
            assert bob.get("/v1/jobs").status_code == 200
            assert agent.post("/v1/leases", json={"wait_s": 0}, timeout=20).status_code == 200
            assert not begun.acquire(blocking=False)
        finally:
            may_end.set()
        assert {future.result().status_code for future in sent} == {200}


class Blocked:
    """Listing of eve's jobs, which takes until it may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self.calls = 0
        listed = endpoints.jobs.list_jobs

        def blocked(session: Any, person: Any, *given: Any, **named: Any) -> Any:
            if person.owner == "eve":
                self.calls += 1
                self.begun.release()
                assert self.may_end.wait(60)
            return listed(session, person, *given, **named)

        monkeypatch.setattr(endpoints.jobs, "list_jobs", blocked)


def test_beyond_some_requests_that_wait_an_owner_is_refused_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = Blocked(monkeypatch)
    eve, bob = service.client("user", "eve"), service.client("user", "bob", timeout=20)
    shares = service.context.shares
    monkeypatch.setattr(shares, "_waiting", 5)
    most = shares.of_owner + 5
    with ThreadPoolExecutor(40) as many:
        sent = [many.submit(eve.get, "/v1/jobs") for _ in range(40)]
        try:
            until(lambda: sum(future.done() for future in sent) == 40 - most)
            answers = [future.result() for future in sent if future.done()]
            assert {answer.status_code for answer in answers} == {429}
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
            assert problem(answers[0], 429)["detail"].startswith("5 requests wait")
            assert bob.get("/v1/jobs").status_code == 200
        finally:
            blocked.may_end.set()
        assert [future.result().status_code for future in sent].count(200) == most
    assert eve.get("/v1/jobs").status_code == 200


def test_a_request_whose_client_has_gone_takes_no_turn(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = Blocked(monkeypatch)
    key, eve = service.key("user", "eve"), service.client("user", "eve")
    shares, host = service.context.shares, urlsplit(service.url)
    head = f"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"

    def waiting() -> int:
        return shares._users["owner eve"]

    clients = []
    try:
        for _ in range(20):
            clients.append(socket.create_connection((host.hostname, host.port), 20))
            clients[-1].sendall(head.encode())
            until(lambda: waiting() == len(clients))
        for client in clients[shares.of_owner :]:
            client.close()
        until(lambda: len(service.server.server_state.connections) <= shares.of_owner)
    finally:
        blocked.may_end.set()
        for client in clients[: shares.of_owner]:
            assert client.recv(12) == b"HTTP/1.1 200"
        for client in clients:
            client.close()
    until(lambda: waiting() == 0)
    assert blocked.calls == shares.of_owner
    assert eve.get("/v1/jobs").status_code == 200


def test_a_device_waits_in_few_requests(service: Service) -> None:
    agent = service.agent()
    body = {"wait_s": 20, "max_items": 1}
    with ThreadPoolExecutor(12) as many:
        sent = [many.submit(agent.post, "/v1/leases", json=body) for _ in range(12)]
        until(lambda: sum(future.done() for future in sent) == 12 - OF_DEVICE)
        assert service.context.room.size == OF_DEVICE
        service.context.room.close()
        assert {future.result().json()["lease_id"] for future in sent} == {None}


def test_devices_of_one_owner_leave_threads_for_others() -> None:
    """However many they are: each may have four requests in threads, and all together half of the connections."""
    shares, lock, at_once, most = concurrency.Shares(8), threading.Lock(), 0, 0
    full, may_end = threading.Event(), threading.Event()

    def work() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once == shares.of_devices:
                full.set()
        assert may_end.wait(60)
        with lock:
            at_once -= 1

    async def send(owner: str, device_id: str | None, work: Callable[[], None]) -> None:
        concurrency.asked_by(shares, owner=owner, device_id=device_id)
        await concurrency.in_turn(work)

    async def all_of_them() -> None:
        sent = [asyncio.create_task(send("eve", f"dev_{number % 10}", work)) for number in range(30)]
        try:
            await asyncio.to_thread(full.wait, 60)
            for device_id in (None, "dev_bob"):
                await asyncio.wait_for(send("bob", device_id, lambda: None), 60)
            await asyncio.wait_for(send("eve", None, lambda: None), 60)
        finally:
            may_end.set()
        await asyncio.gather(*sent)

    asyncio.run(all_of_them())
    assert most == shares.of_devices == 4


def test_large_bodies_of_one_owners_devices_are_parsed_one_by_one() -> None:
    shares, at_once, most = concurrency.Shares(8), 0, 0

    async def send(device_id: str) -> None:
        nonlocal at_once, most
        concurrency.asked_by(shares, owner="eve", device_id=device_id)
        asker = concurrency._asker.get()
        assert asker is not None
        async with asker.body():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    async def all_of_them() -> None:
        await asyncio.gather(*(asyncio.create_task(send(f"dev_{number}")) for number in range(20)))

    asyncio.run(all_of_them())
    assert most == 1


def test_bodies_of_one_owners_devices_count_together() -> None:
    shares = concurrency.Shares(8)
    with ExitStack() as under_way:
        for number in range(4):
            under_way.enter_context(shares.body("eve", f"dev_{number}"))(32 << 20)
        with shares.body("eve", "dev_5") as add, pytest.raises(TooManyRequests, match="128 MiB"):
            add(1)
        with shares.body("bob", "dev_6") as add:
            add(1)
    with shares.body("eve", "dev_5") as add:
        add(1)


def test_log_lines_of_a_device_that_come_all_the_time_are_refused_unread(service: Service) -> None:
    service.context.log_rates._clock = lambda: 0.0  # however long the requests take
    agent, other = service.agent("one"), service.agent("other")
    line = {"lines": [{"at": "2026-01-01T00:00:00Z", "level": "info", "message": "x"}]}
    statuses = [agent.post("/v1/agents/log", json=line).status_code for _ in range(12)]
    assert statuses == [204] * 12
    refused = agent.post("/v1/agents/log", content=b"not even JSON", headers={"Content-Type": "application/json"})
    problem(refused, 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 5
    assert other.post("/v1/agents/log", json=line).status_code == 204


def test_a_job_is_not_paused_and_resumed_all_the_time(service: Service) -> None:
    service.context.job_commands._clock = lambda: 0.0  # however long the requests take
    service.enrol(device_class=CLASS)
    eve, bob = service.client("user", "eve"), service.client("user", "bob")
    made, bobs = (service.submit(person)["id"] for person in (eve, bob))
    statuses = []
    for _ in range(15):
        statuses += [eve.post(f"/v1/jobs/{made}/{verb}").status_code for verb in ("pause", "resume")]
    assert statuses == [200] * 30
    refused = eve.post(f"/v1/jobs/{made}/pause")
    problem(refused, 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert bob.post(f"/v1/jobs/{bobs}/pause").status_code == 200
    assert eve.post(f"/v1/jobs/{made}/cancel").status_code == 200


def test_an_export_is_under_way_until_it_is_sent(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[IO[bytes]] = []
    may_end = threading.Event()

    def slowly(file: IO[bytes]) -> Iterator[bytes]:
        files.append(file)
        assert may_end.wait(60)
        yield file.read()

    monkeypatch.setattr(tables, "chunks", slowly)
    service.enrol(device_class=CLASS)
    eve, bob = service.client("user", "eve"), service.client("user", "bob")
    path = f"/v1/jobs/{service.submit(eve)['id']}/candidates?format=csv"
    with ThreadPoolExecutor(3) as many:
        try:
            sent = [many.submit(eve.get, path) for _ in range(3)]
            until(lambda: len(files) == 3)
            assert problem(eve.get(path), 429)["detail"].startswith("3 requests of 'eve'")
            assert bob.post("/v1/jobs/estimate", json=job()).status_code == 200
        finally:
            may_end.set()
        assert {future.result().status_code for future in sent} == {200}
    until(lambda: all(file.closed for file in files))
    assert eve.get(path).status_code == 200


def test_browser_sessions_of_a_key_are_bounded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_WEB_SESSIONS", 3)
    key, nobody = service.key("user", "eve"), service.client(None)
    cookies = []
    for _ in range(5):
        answer = nobody.post("/v1/session", json={"key": key})
        assert answer.status_code == 201
        cookies.append(answer.headers["set-cookie"].split(";")[0])
    nobody.cookies.clear()
    with service.database.read() as session:
        assert session.scalar(select(func.count()).select_from(WebSession)) == 3
    codes = [nobody.get("/v1/me", headers={"Cookie": cookie}).status_code for cookie in cookies]
    assert codes == [401, 401, 200, 200, 200]


# Work ----------------------------------------------------------------------------------------------------------------


def of(searches: Searches, owner: str) -> Searches:
    """The same database as another user has it."""
    other = Searches.__new__(Searches)
    other.__dict__.update(searches.__dict__, user=principal(searches.database, owner))
    return other


def test_scores_of_owners_are_computed_in_turn(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = Searches(database)
    SimulatedAgent(database, by_size())

    def scored(searches: Searches, seed: int) -> JobView:
        return searches.submit(
            request(proxy="snip", proxy_settings={"rows": 2, "length": 4}, proxy_seed=seed, baseline_layers=[1, 2, 3])
        )

    jobs = {scored(ann, 1).id: "ann", scored(ann, 2).id: "ann", scored(of(ann, "bob"), 3).id: "bob"}
    assert len(jobs) == 3
    worker, order = Worker(database, Settings()), []

    def compute(score_id: str) -> None:
        with database.write() as session:
            scoring.store_score(session, score_id, 1.0, None, database.now(session))
            order.append(session.get_one(WorkItem, ("score", score_id)).owner)

    monkeypatch.setattr(worker.scoring, "compute", compute)
    worker.work(SCORES)
    assert order == ["ann", "bob"] * 3 + ["ann"] * 3


def test_trainings_of_owners_start_in_turn(database: Database, tmp_path: Path) -> None:
    pool = Pool(database, settings_for(database.url.render_as_string(hide_password=False), tmp_path))
    owners = {pool.submit(f"ann {number}"): "ann" for number in range(4)}
    pool.user = principal(database, "bob")
    owners |= {pool.submit(f"bob {number}"): "bob" for number in range(2)}
    pool.user = principal(database, "ann")
    fourth, last = (next(id_ for id_ in reversed(owners) if owners[id_] == name) for name in ("ann", "bob"))
    assert pool.get(fourth).note.startswith("5 before it in the queue")
    pool.user = principal(database, "bob")
    assert pool.get(last).note.startswith("3 before it in the queue")
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


def test_a_turn_is_taken_by_whatever_starts_and_outlives_it(database: Database, tmp_path: Path) -> None:
    """Of one slot: ann's trainings are resumed, and deleted when they have ended."""
    pool = Pool(database, settings_for(database.url.render_as_string(hide_password=False), tmp_path))
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
    assert "at most 10" in document["allowed"]
    # A stored job that asks for more continues.
    assert make("surrogate", endless["settings"], space("lts-gpt2"))
