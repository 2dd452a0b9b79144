"""A database that goes away for a while: 503 that says so, nothing lost, and all well again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from httpx_sse import EventSource
from running_api import Service, problem
from simulated_agent import CLASS
from sqlalchemy import make_url
from tcp_proxy import Proxy, proxy

from edgefront.api.docs.examples import example
from edgefront.api.http.credentials import Credential
from edgefront.core.common.states import JobEventKind
from edgefront.core.schemas.messages import Event
from edgefront.core.services import event_log
from edgefront.core.services.event_log import Entry
from edgefront.core.store.database import Database


@pytest.fixture
def line(postgres_url: str) -> Iterator[Proxy]:
    """The line to the database."""
    url = make_url(postgres_url)
    if url.host is None or url.host.startswith("/"):
        pytest.fail("these tests reach Postgres over TCP: give EDGEFRONT_TEST_DATABASE_URL with a host")
    with proxy((url.host, url.port or 5432)) as made:
        yield made


@pytest.fixture
def service(
    postgres_url: str,
    line: Proxy,
    open_database: Callable[..., Database],
    start_service: Callable[..., Service],
) -> Service:
    url = make_url(postgres_url).set(host="127.0.0.1", port=line.port)
    return start_service(open_database(url.render_as_string(hide_password=False)))


def until(answer: Callable[[], httpx.Response], status: int, seconds: float = 60) -> httpx.Response:
    end = time.monotonic() + seconds
    while True:
        response = answer()
        if response.status_code == status:
            return response
        assert time.monotonic() < end, response.text
        time.sleep(0.05)


def test_requests_get_503_and_then_are_served_again(service: Service, line: Proxy) -> None:
    client = service.client()
    credential = Credential(client.headers["Authorization"].removeprefix("Bearer "))
    while (
        service.context.credentials.remembered(credential) is None
    ):  # what is asked before the first check is forgotten
        assert client.get("/v1/jobs").status_code == 200
        time.sleep(0.05)
    line.cut()
    for response in (client.get("/v1/jobs"), client.post("/v1/keys", json={"name": "x"})):
        assert problem(response, 503)["kind"] == "unavailable"
        assert int(response.headers["retry-after"]) >= 1
        assert "127.0.0.1" not in response.text
    assert problem(service.client_with({"Authorization": "Bearer efk_x"}).get("/v1/me"), 503)
    ready = client.get("/v1/ready")
    assert ready.status_code == 503
    assert ready.json()["checks"]["database"] != "ok"
    assert client.get("/v1/health").status_code == 200
    assert "edgefront_database_up 0.0" in client.get("/metrics").text

    line.mend()
    assert until(lambda: client.get("/v1/jobs"), 200)
    assert client.get("/v1/ready").json()["checks"]["database"] == "ok"
    assert client.post("/v1/keys", json={"name": "x"}).status_code == 201


def test_a_report_sent_again_after_the_outage_is_counted_once(service: Service, line: Proxy) -> None:
    agent = service.agent("board", CLASS)
    made = service.submit(service.client("user", "bob"))
    leased = agent.post("/v1/leases", json={"wait_s": 0, "max_items": 1}).json()
    report = {**example("report_request")["reports"][0]}
    report |= {key: leased["items"][0][key] for key in ("launch_id", "fence")}
    line.cut()
    problem(agent.post("/v1/reports", json={"reports": [report]}), 503)
    line.mend()
    answer = until(lambda: agent.post("/v1/reports", json={"reports": [report]}), 200)
    assert answer.json()["receipts"][0]["outcome"] == "accepted"
    assert agent.post("/v1/reports", json={"reports": [report]}).json()["receipts"][0]["outcome"] == "duplicate"
    view = service.client("admin", "root").get(f"/v1/jobs/{made['id']}").json()
    assert view["targets"][0]["launches_done"] == 1


def test_a_stream_lives_through_the_outage(service: Service, line: Proxy) -> None:
    service.enrol("board", CLASS)
    client = service.client("user", "bob")
    made = service.submit(client)
    path = f"/v1/jobs/{made['id']}"
    last = client.get(path).json()["last_event"]
    with client.stream("GET", f"{path}/events") as response:
        events = (event for event in EventSource(response).iter_sse() if event.data)
        numbers = [int(next(events).id) for _ in range(last)]
        line.cut()
        until(lambda: client.get(path), 503)
        line.mend()
        until(lambda: client.get(path), 200)
        with service.database.write() as session:
            event_log.append(session, made["id"], [Entry(JobEventKind.LAUNCH, {})], service.database.now(session))
        view = Event.model_validate_json(next(events).data)
        assert [*numbers, view.number] == list(range(1, last + 2))


def test_a_waiting_agent_waits_through_the_outage(service: Service, line: Proxy) -> None:
    agent = service.agent("board", CLASS)
    client = service.client("user", "bob")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agent.post, "/v1/leases", json={"wait_s": 30}, timeout=40)
        while not service.context.room.size:
            time.sleep(0.01)
        line.cut()
        until(lambda: client.get("/v1/jobs"), 503)
        time.sleep(2.5)  # longer than a waiting agent's patience: it asks anew in vain
        line.mend()
        until(lambda: client.get("/v1/jobs"), 200)
        service.submit(client)
        answer = waiting.result(60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["items"]
