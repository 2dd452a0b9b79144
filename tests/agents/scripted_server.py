"""A small real HTTP server that speaks the agent protocol and does as a test tells it.

For what the real service does only by chance or not at all: being away, refusing, losing leases. What the two agree
on is the wire models. Uvicorn on loopback, any port, in a thread.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from edgefront.core.schemas.agent import (
    WITHHELD_HEADER,
    EnrolRequest,
    EnrolResponse,
    HeartbeatResponse,
    LaunchReport,
    LeaseItem,
    LeaseRequest,
    LeaseResponse,
    ReleaseRequest,
    ReportReceipt,
    ReportRequest,
    ReportResponse,
    StartRequest,
)

TOKEN = "efe_" + "t" * 43
CREDENTIAL = "efa_" + "c" * 43


@dataclass
class Script:
    """What the server has to give, how it behaves, and what it was told."""

    items: deque[LeaseItem] = field(default_factory=deque)
    status: dict[str, int] = field(default_factory=dict)
    """Path prefix → status to answer with instead."""
    headers: dict[str, str] = field(default_factory=dict)
    first: tuple[int, dict[str, str], bytes] | None = None
    """Status, headers and body with which the first request of each kind is answered."""
    state: str = "active"
    blocked_reason: str | None = None
    """As it is sent: percent-encoded."""
    heartbeat_s: float = 0.2
    cancelled: tuple[str, ...] = ()
    credential: str = CREDENTIAL
    gone: int = 0
    """So many requests for work are still answered as those of a revoked device."""
    outcome: Callable[[LaunchReport], str] = lambda report: "accepted"
    away_after: int | None = None
    """From the answer with this lease on, the server is away (503): before the agent can do anything with it."""

    enrolled: list[EnrolRequest] = field(default_factory=list)
    facts: list[Any] = field(default_factory=list)
    leases: list[tuple[str, ...]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    heartbeats: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    reports: list[LaunchReport] = field(default_factory=list)
    busy_s: float = 0.0
    polls_cut_short: int = 0
    requests: list[str] = field(default_factory=list)


class ScriptedServer:
    def __init__(self, script: Script, port: int = 0) -> None:
        self.script = script
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            _app(script), log_level="warning", lifespan="off", timeout_graceful_shutdown=1, access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        wait_for(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(15)
        self._socket.close()


def wait_for(condition: Callable[[], Any], timeout_s: float = 120.0, pause_s: float = 0.02) -> None:
    """Wait until something is so; fails the test if it never is."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(pause_s)


def _app(script: Script) -> FastAPI:
    class Refusal(Exception):
        pass

    async def behave(request: Request) -> None:
        kind = request.url.path.rpartition("/")[2]
        is_first = all(path.rpartition("/")[2] != kind for path in script.requests)
        script.requests.append(request.url.path)
        if is_first and script.first is not None:
            raise Refusal(script.first)
        if any(request.url.path.startswith(prefix) for prefix in script.status):
            raise Refusal
        given = request.headers.get("authorization")
        token = TOKEN if request.url.path == "/v1/agents/enrol" else script.credential
        if given != f"Bearer {token}":
            raise Refusal

    app = FastAPI(dependencies=[Depends(behave)])

    @app.exception_handler(Refusal)
    async def refuse(request: Request, refusal: Refusal) -> Response:
        if refusal.args:
            status, headers, body = refusal.args[0]
            return Response(body, status, headers=headers)
        for prefix, status in script.status.items():
            if request.url.path.startswith(prefix):
                return Response('{"detail": "as scripted"}', status, headers=script.headers)
        return Response('{"detail": "unknown credential"}', 401)

    @app.post("/v1/agents/enrol", status_code=201, response_model=EnrolResponse)
    async def enrol(body: EnrolRequest) -> EnrolResponse | JSONResponse:
        script.enrolled.append(body)
        return EnrolResponse(device_id="dev_1", credential=script.credential)

    @app.post("/v1/leases")
    async def lease(body: LeaseRequest, request: Request, response: Response) -> LeaseResponse:
        if script.gone:
            script.gone -= 1
            raise HTTPException(410)
        if body.facts is not None:
            script.facts.append(body.facts)
        end = time.monotonic() + body.wait_s
        while not await request.is_disconnected():
            if script.items and script.state == "active":
                break
            if time.monotonic() >= end or script.state == "draining":
                if script.blocked_reason is not None:
                    response.headers[WITHHELD_HEADER] = script.blocked_reason
                return LeaseResponse(state=script.state)
            await asyncio.sleep(0.01)
        else:
            script.polls_cut_short += 1
            return LeaseResponse()
        items = tuple(script.items.popleft() for _ in range(min(body.max_items, len(script.items))))
        script.leases.append(tuple(item.launch_id for item in items))
        if len(script.leases) == script.away_after:
            script.status["/v1/"] = 503
        expires = datetime.now(timezone.utc) + timedelta(seconds=60)
        lease_id = f"lse_{len(script.leases)}"
        return LeaseResponse(
            lease_id=lease_id, items=items, expires_at=expires, ttl_s=60, heartbeat_s=script.heartbeat_s
        )

    @app.post("/v1/leases/{lease_id}/heartbeat")
    async def heartbeat(lease_id: str) -> HeartbeatResponse:
        script.heartbeats.append(lease_id)
        return HeartbeatResponse(expires_at=datetime.now(timezone.utc), cancelled=script.cancelled)

    @app.post("/v1/leases/{lease_id}/release", status_code=204)
    async def release(lease_id: str, body: ReleaseRequest) -> None:
        script.released.extend(body.launch_ids)

    @app.post("/v1/launches/{launch_id}/start", status_code=204)
    async def start(launch_id: str, body: StartRequest) -> None:
        script.started.append(launch_id)
        script.conditions += [] if body.conditions is None else [body.conditions]

    @app.post("/v1/reports")
    async def report(body: ReportRequest) -> ReportResponse:
        script.reports.extend(body.reports)
        script.busy_s += body.busy_s
        receipts = [ReportReceipt(launch_id=item.launch_id, outcome=script.outcome(item)) for item in body.reports]
        return ReportResponse(receipts=tuple(receipts))

    return app
