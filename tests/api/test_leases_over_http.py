"""The agent's side of the API: enrol, lease by long poll, start, heartbeat, report, give back."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from concurrency import until
from databases import ON_BOTH
from running_api import Service, problem
from simulated_agent import CLASS

from edgefront.api.docs.examples import example
from edgefront.core.schemas.agent import WITHHELD_HEADER, LeaseResponse, ReportResponse
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.services.settings import LeaseSettings
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Device


def lease(agent: httpx.Client, **body: Any) -> LeaseResponse:
    response = agent.post("/v1/leases", json={"wait_s": 0, **body})
    assert response.status_code == 200, response.text
    return LeaseResponse.model_validate_json(response.content)


def reports(leased: LeaseResponse, **result: Any) -> dict[str, Any]:
    shown = example("report_request")["reports"][0]["result"]
    return {
        "reports": [
            {"launch_id": item.launch_id, "fence": item.fence, "result": {**shown, **result}} for item in leased.items
        ],
        "busy_s": 1.0,
    }


@pytest.fixture
def agent(service: Service) -> httpx.Client:
    return service.agent("board", CLASS)


@pytest.fixture
def job(service: Service, agent: httpx.Client) -> dict[str, Any]:
    return service.submit(service.client("user", "bob"))


def test_enrolment_over_http(service: Service) -> None:
    admin = service.client()
    token = admin.post("/v1/enrolment-tokens", json={"name": "lab", "uses": 1}).json()
    assert admin.get("/v1/enrolment-tokens").json()[0]["token"] is None
    newcomer = service.client_with({"Authorization": f"Bearer {token['token']}"})
    made = newcomer.post("/v1/agents/enrol", json=example("enrol_request"))
    assert made.status_code == 201
    problem(newcomer.get("/v1/me"), 401)
    problem(newcomer.post("/v1/agents/enrol", json={**example("enrol_request"), "name": "other"}), 401)
    problem(admin.post("/v1/agents/enrol", json=example("enrol_request")), 401)
    agent = service.client_with({"Authorization": f"Bearer {made.json()['credential']}"})
    assert agent.get("/v1/me").json()["device_id"] == made.json()["device_id"]
    problem(agent.get("/v1/quality/laws"), 403)
    assert agent.get(f"/v1/devices/{made.json()['device_id']}").json()["name"] == "lab-7"
    unused = admin.post("/v1/enrolment-tokens", json={}).json()
    assert admin.delete(f"/v1/enrolment-tokens/{unused['id']}").status_code == 204
    late = service.client_with({"Authorization": f"Bearer {unused['token']}"})
    problem(late.post("/v1/agents/enrol", json=example("enrol_request")), 401)


def test_lease_start_heartbeat_report(service: Service, agent: httpx.Client, job: dict[str, Any]) -> None:
    leased = lease(agent, max_items=2, facts=example("enrol_request")["facts"])
    assert len(leased.items) == 2
    assert leased.heartbeat_s == service.settings.leases.heartbeat_s
    first = leased.items[0]
    assert agent.post(f"/v1/launches/{first.launch_id}/start", json={"fence": first.fence}).status_code == 204
    problem(agent.post(f"/v1/launches/{first.launch_id}/start", json={"fence": first.fence + 1}), 409)
    problem(agent.post("/v1/launches/lau_unknown/start", json={"fence": 1}), 404)
    beat = agent.post(f"/v1/leases/{leased.lease_id}/heartbeat").json()
    assert beat["cancelled"] == []
    problem(agent.post("/v1/leases/lse_unknown/heartbeat"), 404)

    answer = agent.post("/v1/reports", json=reports(leased))
    receipts = ReportResponse.model_validate_json(answer.content).receipts
    assert [receipt.outcome for receipt in receipts] == ["accepted", "accepted"]
    again = ReportResponse.model_validate_json(agent.post("/v1/reports", json=reports(leased)).content).receipts
    assert [receipt.outcome for receipt in again] == ["duplicate", "duplicate"]
    other = reports(leased, build_s=9.0)
    late = ReportResponse.model_validate_json(agent.post("/v1/reports", json=other).content).receipts
    assert [receipt.outcome for receipt in late] == ["conflict", "conflict"]
    view = service.client("admin", "root").get(f"/v1/jobs/{job['id']}").json()
    assert view["targets"][0]["launches_done"] == 2


class Waiting:
    """A lease request that waits in a thread of its own."""

    def __init__(self, service: Service, agent: httpx.Client, wait_s: float = 20) -> None:
        before = _waiting(service)
        self._pool = ThreadPoolExecutor(1)
        self._answer = self._pool.submit(lease, agent, wait_s=wait_s)
        until(lambda: _waiting(service) > before)

    def answer(self) -> LeaseResponse:
        response = self._answer.result(60)
        self._pool.shutdown()
        return response


def _waiting(service: Service) -> int:
    size: int = service.context.room.size
    return size


def test_a_waiting_agent_gets_work_as_soon_as_there_is_some(service: Service, agent: httpx.Client) -> None:
    waiting = Waiting(service, agent)
    service.submit(service.client("user", "bob"))
    assert waiting.answer().items
    assert _waiting(service) == 0


def test_the_servers_bound_on_waiting_holds(start_service: Callable[..., Service], database: Database) -> None:
    service = start_service(database, leases=LeaseSettings(max_wait_s=0.2))
    assert lease(service.agent(), wait_s=60).items == ()


def test_a_device_in_quarantine_is_told_why(service: Service, database: Database) -> None:
    device, credential = service.enrol("board", CLASS)
    agent = service.client_with({"Authorization": f"Bearer {credential}"})
    assert WITHHELD_HEADER not in agent.post("/v1/leases", json={"wait_s": 0}).headers
    waiting = Waiting(service, agent)
    with database.write() as session:
        session.get_one(Device, device).quarantine = "its anchor failed 3 times: out of memory – 3 µs\nof many"
    service.client().post(f"/v1/devices/{device}/drain")  # wakes it
    assert waiting.answer().state == "draining"
    sent = agent.post("/v1/leases", json={"wait_s": 0})
    LeaseResponse.model_validate_json(sent.content)
    said = unquote(sent.headers[WITHHELD_HEADER])
    assert said.startswith("it is in quarantine: its anchor failed 3 times: out of memory – 3 µs\nof many; its owner ")
    assert said.endswith(f"(edgefront device trust {device})")
    service.client().post(f"/v1/devices/{device}/activate")
    service.client().post(f"/v1/devices/{device}/trust")
    assert WITHHELD_HEADER not in agent.post("/v1/leases", json={"wait_s": 0}).headers


def test_a_client_that_disconnects_stops_waiting_and_leaves_no_lease(
    service: Service,
) -> None:
    _, credential = service.enrol("board", CLASS)
    asks = (
        f"POST /v1/leases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {credential}\r\n"
        'Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{"wait_s": 30}'
    )
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port or 80)) as impatient:
        impatient.sendall(asks.encode())
        until(lambda: _waiting(service) == 1)
    until(lambda: _waiting(service) == 0)
    service.submit(service.client("user", "bob"))
    agent = service.client_with({"Authorization": f"Bearer {credential}"})
    assert len(lease(agent, max_items=32).items) == 2 * BASELINE_LAUNCHES


@ON_BOTH
def test_stopping_the_server_answers_waiting_requests(
    start_service: Callable[..., Service], database: Database
) -> None:
    service = start_service(database)
    waiting = Waiting(service, service.agent("board", CLASS), wait_s=60)
    service.server.should_exit = True
    assert waiting.answer().items == ()
